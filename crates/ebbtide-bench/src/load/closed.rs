//! A closed loop: each caller makes its next call when the last one is answered. It finds the highest rate, and says
//! nothing of the latency at any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use ebbtide::Stopwatch;
use tokio::task::JoinSet;

use super::{Caller, Outcome, Sample};

/// Lets the callers call for so long.
pub(crate) async fn drive<C: Caller>(callers: &mut Vec<C>, time: Duration) -> Result<Outcome> {
    let stop = Arc::new(AtomicBool::new(false));
    let timer = {
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            stop.store(true, Ordering::Relaxed);
        })
    };
    let outcome = run(callers, move || stop.load(Ordering::Relaxed)).await;
    timer.abort();
    outcome
}

/// Lets the callers make so many calls together.
pub(crate) async fn calls<C: Caller>(callers: &mut Vec<C>, calls: u64) -> Result<Outcome> {
    let begun = Arc::new(AtomicU64::new(0));
    run(callers, move || begun.fetch_add(1, Ordering::Relaxed) >= calls).await
}

async fn run<C: Caller>(
    callers: &mut Vec<C>,
    is_over: impl Fn() -> bool + Clone + Send + 'static,
) -> Result<Outcome> {
    let stopwatch = Stopwatch::start();
    let mut tasks = JoinSet::new();
    for mut caller in callers.drain(..) {
        let is_over = is_over.clone();
        tasks.spawn(async move {
            let mut samples = Vec::new();
            let mut at = stopwatch.elapsed();
            while !is_over() {
                caller.call().await?;
                let answered = stopwatch.elapsed();
                samples.push(Sample::new(at, answered.saturating_sub(at)));
                at = answered;
            }
            anyhow::Ok((caller, samples))
        });
    }
    let mut outcome = Outcome::default();
    while let Some(task) = tasks.join_next().await {
        let (caller, samples) = task??;
        callers.push(caller);
        outcome.samples.extend(samples);
    }
    outcome.seconds = stopwatch.elapsed().as_secs_f64();
    Ok(outcome)
}
