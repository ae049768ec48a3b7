//! Open loop: calls are due at times that were fixed beforehand, regardless of the previous answers, and their
//! latency counts from the due time. A store that stalls is charged for every call that became due meanwhile: nothing
//! is left out because the callers were waiting (coordinated omission).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ebbtide::{SeededRng, Stopwatch};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use super::{Caller, Outcome, Sample};

/// End of a load.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    /// After this time.
    Time(Duration),
    /// Once the flag is set.
    Set(Arc<AtomicBool>),
}

impl Until {
    fn is_over(&self, due: Duration) -> bool {
        match self {
            Self::Time(time) => due >= *time,
            Self::Set(flag) => flag.load(Ordering::Relaxed),
        }
    }
}

/// Issues calls `rate` times a second, independently of each other (a Poisson process), each on the first free
/// caller. Times in the outcome are relative to the start of `stopwatch`.
pub(crate) async fn drive<C: Caller>(
    callers: &mut Vec<C>,
    rate: f64,
    until: Until,
    stopwatch: Stopwatch,
) -> Result<Outcome> {
    let number = callers.len();
    // Callers are handed out in the order of the requests.
    let free = Arc::new(Semaphore::new(number));
    let pool = Arc::new(Mutex::new(std::mem::take(callers)));
    let (tell, mut told) = mpsc::unbounded_channel();
    let (runtime, begun) = (Handle::current(), stopwatch.elapsed());
    let arrivals = {
        let (free, pool) = (Arc::clone(&free), Arc::clone(&pool));
        // A separate thread: the runtime's timer has a resolution of a millisecond, which is longer than most calls
        // take.
        move || {
            let rng = SeededRng::new(number as u64);
            let mut due = begun;
            while !until.is_over(due.saturating_sub(begun)) {
                let early = due.saturating_sub(stopwatch.elapsed());
                if !early.is_zero() {
                    std::thread::sleep(early);
                }
                let (free, pool, tell) = (Arc::clone(&free), Arc::clone(&pool), tell.clone());
                runtime.spawn(async move {
                    let _ = tell.send(take(&free, &pool, due, stopwatch).await);
                });
                due += gap(&rng, rate);
            }
        }
    };
    tokio::task::spawn_blocking(arrivals).await?;
    let mut outcome = Outcome::default();
    // Ends when the last call is answered.
    while let Some(sample) = told.recv().await {
        outcome.samples.push(sample?);
    }
    outcome.seconds = stopwatch.elapsed().saturating_sub(begun).as_secs_f64();
    *callers = std::mem::take(&mut pool.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(outcome)
}

async fn take<C: Caller>(
    free: &Semaphore,
    pool: &Mutex<Vec<C>>,
    due: Duration,
    stopwatch: Stopwatch,
) -> Result<Sample> {
    let _permit = free.acquire().await?;
    let caller = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut caller = caller.context("as many callers as permits")?;
    caller.call().await?;
    let took = stopwatch.elapsed().saturating_sub(due);
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
    Ok(Sample::new(due, took))
}

/// Time to the next call: exponentially distributed, as for independent callers.
fn gap(rng: &SeededRng, rate: f64) -> Duration {
    const STEPS: u64 = 1 << 53;
    // Above zero, at most one.
    let even = (rng.below(STEPS) + 1) as f64 / STEPS as f64;
    Duration::from_secs_f64(-even.ln() / rate)
}

#[cfg(test)]
mod tests {
    use super::super::StatelessCaller;
    use super::*;

    #[test]
    fn gaps_are_as_long_as_the_rate_asks_for() {
        let rng = SeededRng::new(1);
        let sum: Duration = (0..100_000).map(|_| gap(&rng, 1_000.0)).sum();
        assert!((95.0..105.0).contains(&sum.as_secs_f64()), "{sum:?}");
    }

    /// A store that stalls for half a second, called a hundred times a second by one caller: a closed loop would see
    /// one slow call, but half of a second's calls are slow.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_stall_is_charged_to_all_that_came_meanwhile() {
        let stalled = Arc::new(AtomicBool::new(false));
        let call = StatelessCaller(move || {
            let first = !stalled.swap(true, Ordering::Relaxed);
            async move {
                if first {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Ok(())
            }
        });
        let mut callers = vec![call];
        let second = Until::Time(Duration::from_secs(1));
        let outcome = drive(&mut callers, 100.0, second, Stopwatch::start()).await.unwrap();
        let slow = outcome.samples.iter().filter(|sample| sample.took_micros > 100_000).count();
        assert!(slow > 20, "{slow} of {}", outcome.samples.len());
        assert_eq!(callers.len(), 1, "the caller comes back");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_that_fails_ends_it() {
        let mut callers = vec![StatelessCaller(|| async { anyhow::bail!("refused") })];
        let short = Until::Time(Duration::from_millis(20));
        assert!(drive(&mut callers, 1_000.0, short, Stopwatch::start()).await.is_err());
    }
}
