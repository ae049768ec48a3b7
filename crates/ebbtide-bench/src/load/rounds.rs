//! Sides measured in alternating rounds, so that changes on the machine affect all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide_bench::results::Figure;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use super::{Caller, Outcome, closed};
use crate::cpu::{Meter, Whose};

/// Result of one side in one round.
pub(crate) struct Round {
    /// Figure: calls per second, or the unit of the row.
    pub(crate) figure: f64,
    pub(crate) operations: u64,
    /// Processor seconds by process.
    pub(crate) cpu: BTreeMap<String, f64>,
}

/// One side of a comparison.
pub(crate) struct Contender {
    name: String,
    run: Box<dyn FnMut() -> BoxFuture<'static, Result<Round>>>,
}

impl Contender {
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl FnMut() -> BoxFuture<'static, Result<Round>> + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Callers in a closed loop for a fixed time: calls per second.
    pub(crate) fn closed<C: Caller>(
        name: impl Into<String>,
        who: &[(&'static str, Whose)],
        callers: Vec<C>,
        time: Duration,
    ) -> Self {
        let (callers, who) = (Arc::new(Mutex::new(callers)), who.to_vec());
        Self::new(name, move || {
            let (callers, who) = (Arc::clone(&callers), who.clone());
            Box::pin(async move {
                let mut callers = callers.lock().await;
                rate(&who, closed::drive(&mut callers, time)).await
            })
        })
    }

    /// Callers that make a fixed number of calls together, after a preparation: calls per second.
    pub(crate) fn counted<C: Caller>(
        name: impl Into<String>,
        who: &[(&'static str, Whose)],
        callers: Vec<C>,
        calls: u64,
        prepare: impl Fn() -> BoxFuture<'static, Result<()>> + 'static,
    ) -> Self {
        let (callers, who) = (Arc::new(Mutex::new(callers)), who.to_vec());
        Self::new(name, move || {
            let (callers, who, prepared) = (Arc::clone(&callers), who.clone(), prepare());
            Box::pin(async move {
                prepared.await?;
                let mut callers = callers.lock().await;
                rate(&who, closed::calls(&mut callers, calls)).await
            })
        })
    }
}

/// Runs every side in turn, `rounds` times, after a warm-up that is dropped. The figures come in the order of the
/// sides.
pub(crate) async fn alternate(rounds: usize, sides: &mut [Contender]) -> Result<Vec<Figure>> {
    let mut kept: Vec<Kept> = sides.iter().map(|side| Kept::new(&side.name)).collect();
    for number in 0..=rounds {
        for (side, kept) in sides.iter_mut().zip(&mut kept) {
            let round = (side.run)().await.with_context(|| format!("a round of {}", side.name))?;
            eprintln!("  round {number} of {rounds}: {}: {:.1}", side.name, round.figure);
            if number > 0 {
                kept.add(&round);
            }
        }
    }
    Ok(kept.into_iter().map(Kept::figure).collect())
}

/// Rounds of one side.
pub(crate) struct Kept {
    name: String,
    figures: Vec<f64>,
    operations: u64,
    cpu: BTreeMap<String, f64>,
}

impl Kept {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new(), operations: 0, cpu: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, round: &Round) {
        self.figures.push(round.figure);
        self.operations += round.operations;
        for (who, seconds) in &round.cpu {
            *self.cpu.entry(who.clone()).or_default() += seconds;
        }
    }

    pub(crate) fn figure(self) -> Figure {
        let millions = self.operations as f64 / 1e6;
        let cpu = self.cpu.into_iter().map(|(who, seconds)| (who, seconds / millions)).collect();
        Figure { name: self.name, rounds: self.figures, cpu }
    }
}

/// Measures the rate of a load, and its processor time.
async fn rate(who: &[(&'static str, Whose)], load: impl Future<Output = Result<Outcome>>) -> Result<Round> {
    let meter = Meter::start(who)?;
    let outcome = load.await?;
    Ok(Round { figure: outcome.rate(), operations: outcome.calls(), cpu: meter.stop()? })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A side whose rounds are numbered in the order of execution, over all sides.
    fn side(name: &str, turns: &Arc<AtomicUsize>) -> Contender {
        let turns = Arc::clone(turns);
        Contender::new(name, move || {
            let figure = turns.fetch_add(1, Ordering::Relaxed) as f64;
            let cpu = BTreeMap::from([("both".to_owned(), 1.0)]);
            Box::pin(std::future::ready(Ok(Round { figure, operations: 500_000, cpu })))
        })
    }

    #[tokio::test]
    async fn sides_take_turns_and_the_first_round_is_dropped() {
        let turns = Arc::default();
        let figures = alternate(2, &mut [side("ours", &turns), side("peer", &turns)]).await.unwrap();
        assert_eq!(figures[0].rounds, [2.0, 4.0]);
        assert_eq!(figures[1].rounds, [3.0, 5.0]);
        assert!((figures[0].cpu["both"] - 2.0).abs() < f64::EPSILON, "seconds for a million operations");
    }
}
