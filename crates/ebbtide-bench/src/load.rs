//! Load: callers, loops that drive them, and samples.

pub(crate) mod closed;
pub(crate) mod open;
pub(crate) mod rounds;

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

/// Caller that makes one call at a time.
pub(crate) trait Caller: Send + 'static {
    /// Makes one call. An unexpected answer is an error: it must not count as work.
    fn call(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// Caller without state of its own.
#[derive(Clone)]
pub(crate) struct StatelessCaller<F>(pub(crate) F);

impl<F, T> Caller for StatelessCaller<F>
where
    F: Fn() -> T + Send + 'static,
    T: Future<Output = Result<()>> + Send,
{
    fn call(&mut self) -> impl Future<Output = Result<()>> + Send {
        (self.0)()
    }
}

/// Truncates the number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and counts fit, and are not negative"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}

/// Clones a caller.
pub(crate) fn callers<C: Clone>(caller: &C, number: usize) -> Vec<C> {
    vec![caller.clone(); number]
}

/// One call: the time at which it was made or due, and its latency from then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at_millis: u32,
    pub(crate) took_micros: u32,
}

impl Sample {
    pub(crate) fn new(at: Duration, took: Duration) -> Self {
        let most = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
        Self { at_millis: most(at.as_millis()), took_micros: most(took.as_micros()) }
    }
}

/// Outcome of a load.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) samples: Vec<Sample>,
}

impl Outcome {
    pub(crate) fn calls(&self) -> u64 {
        self.samples.len() as u64
    }

    /// Calls per second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls() as f64 / self.seconds
    }

    /// Latencies of the calls between two times, in seconds since the beginning.
    pub(crate) fn between(&self, from: f64, to: f64) -> Latencies {
        let mut latencies = Latencies::new();
        let inside = |sample: &&Sample| (from..to).contains(&(f64::from(sample.at_millis) / 1e3));
        self.samples.iter().filter(inside).for_each(|sample| latencies.add(*sample));
        latencies
    }

    /// Latencies of all calls.
    pub(crate) fn latencies(&self) -> Latencies {
        self.between(0.0, f64::INFINITY)
    }
}

/// Histogram of latencies with three significant digits.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Self {
        // An hour in microseconds is more than any sample.
        Self(Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are good"))
    }

    fn add(&mut self, sample: Sample) {
        self.0.saturating_record(u64::from(sample.took_micros).max(1));
    }

    /// Percentile in milliseconds; `None` without calls.
    pub(crate) fn millis(&self, percent: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(percent / 100.0) as f64 / 1e3)
    }
}
