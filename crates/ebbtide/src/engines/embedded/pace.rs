//! Rests within a step that cannot be divided.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::model::time::Stopwatch;
use crate::ops::sweeper::Share;

/// After so many records it is looked whether a rest is due.
const EVERY: u64 = 256;

/// A shorter rest would cost more than it gives.
const SHORTEST: Duration = Duration::from_millis(4);

/// Keeps a long step to its share of the time: a few milliseconds of work, and then a rest.
#[derive(Debug)]
pub(in crate::engines) struct Pace {
    share: Share,
    stopwatch: Stopwatch,
    records: AtomicU64,
    rested_micros: AtomicU64,
    is_hurried: AtomicBool,
}

impl Pace {
    pub(in crate::engines) fn new(share: Share) -> Self {
        Self {
            share,
            stopwatch: Stopwatch::start(),
            records: AtomicU64::new(0),
            rested_micros: AtomicU64::new(0),
            is_hurried: AtomicBool::new(false),
        }
    }

    /// Is called for each record, and rests when enough was worked.
    pub(in crate::engines) fn record(&self) {
        if !self.records.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            return;
        }
        let rested = self.rested();
        let worked = self.stopwatch.elapsed().saturating_sub(rested);
        let due = self.share.rest_after(worked).saturating_sub(rested);
        if due >= SHORTEST && !self.is_hurried.load(Ordering::Relaxed) {
            let resting = Stopwatch::start();
            sleep(due);
            let micros = u64::try_from(resting.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.rested_micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// How long it has rested so far.
    pub(in crate::engines) fn rested(&self) -> Duration {
        Duration::from_micros(self.rested_micros.load(Ordering::Relaxed))
    }

    /// No more rests.
    pub(in crate::engines) fn hurry(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works for some milliseconds with ten thousand records, and answers how long it took and rested. A rest may be taken
    /// after the last of them, so that no work is left without its rest.
    fn work(pace: &Pace) -> (Duration, Duration) {
        for _ in 0..=40 * EVERY {
            let working = Stopwatch::start();
            while working.elapsed() < Duration::from_micros(2) {}
            pace.record();
        }
        (pace.stopwatch.elapsed(), pace.rested())
    }

    #[test]
    fn a_quarter_rests_three_times_as_long_as_it_works() {
        let (took, rested) = work(&Pace::new(Share::QUARTER));
        assert!(rested > took.saturating_sub(rested) * 2, "{rested:?} of {took:?}");
        assert!(rested < took, "{rested:?} of {took:?}");
    }

    #[test]
    fn the_whole_time_leaves_no_rest_and_a_hurry_none_either() {
        assert_eq!(work(&Pace::new(Share::WHOLE)).1, Duration::ZERO);
        let pace = Pace::new(Share::QUARTER);
        pace.hurry();
        assert_eq!(work(&pace).1, Duration::ZERO);
    }
}
