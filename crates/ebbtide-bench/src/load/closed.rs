//! Closed loop: each caller makes its next call when the last one is answered. It finds the highest rate, and says
//! nothing about the latency at any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use ebbtide::Stopwatch;
use tokio::task::JoinSet;

use super::{Caller, Outcome, Sample};

/// Lets the callers call for `time`.
pub(crate) async fn drive<C: Caller>(callers: &mut Vec<C>, time: Duration) -> Result<Outcome> {
    let stopwatch = Stopwatch::start();
    run(callers, stopwatch, move |now| now >= time).await
}

/// Lets the callers make `calls` calls together.
pub(crate) async fn calls<C: Caller>(callers: &mut Vec<C>, calls: u64) -> Result<Outcome> {
    let begun = Arc::new(AtomicU64::new(0));
    run(callers, Stopwatch::start(), move |_| begun.fetch_add(1, Ordering::Relaxed) >= calls).await
}

async fn run<C: Caller>(
    callers: &mut Vec<C>,
    stopwatch: Stopwatch,
    is_over: impl Fn(Duration) -> bool + Clone + Send + 'static,
) -> Result<Outcome> {
    let mut tasks = JoinSet::new();
    for mut caller in callers.drain(..) {
        let is_over = is_over.clone();
        tasks.spawn(async move {
            let mut samples = Vec::new();
            let mut at = stopwatch.elapsed();
            while !is_over(at) {
                caller.call().await?;
                let answered = stopwatch.elapsed();
                samples.push(Sample::new(at, answered.saturating_sub(at)));
                at = answered;
                // Calls that never wait would starve the other callers.
                tokio::task::consume_budget().await;
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

#[cfg(test)]
mod tests {
    use super::super::StatelessCaller;
    use super::*;

    /// More callers than threads, of which none ever waits.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn calls_that_never_wait_end_in_time_and_leave_room_for_others() {
        let made: [Arc<AtomicU64>; 2] = Default::default();
        let mut callers = made
            .iter()
            .map(|made| {
                let made = Arc::clone(made);
                StatelessCaller(move || {
                    made.fetch_add(1, Ordering::Relaxed);
                    std::future::ready(Ok(()))
                })
            })
            .collect();
        let outcome = drive(&mut callers, Duration::from_millis(50)).await.unwrap();
        let made = made.map(|made| made.load(Ordering::Relaxed));
        assert!(made.iter().all(|made| *made > 0), "{made:?}");
        assert_eq!(outcome.calls(), made.iter().sum::<u64>());
    }

    #[tokio::test]
    async fn as_many_calls_are_made_as_were_asked_for() {
        let mut callers = super::super::callers(&StatelessCaller(|| std::future::ready(Ok(()))), 3);
        assert_eq!(calls(&mut callers, 1_000).await.unwrap().calls(), 1_000);
        assert_eq!(callers.len(), 3, "the callers come back");
    }
}
