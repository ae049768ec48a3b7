//! Points in time and clocks.
//!
//! This module owns the clocks: nothing else in the library reads one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::model::error::{Error, Result};

/// Point in time, in milliseconds since 1970, or [`NEVER`](Timestamp::NEVER).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Expiry of a record that does not expire. It sorts after every other time, and fits a signed 64-bit column.
    pub const NEVER: Self = Self(i64::MAX as u64);

    /// Earliest time: the first millisecond of 1970.
    pub const ZERO: Self = Self(0);

    /// Latest time that can be written: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// Creates a time from milliseconds since 1970. Returns `Invalid` past [`Timestamp::MAX`].
    pub fn from_millis(millis: u64) -> Result<Self> {
        if millis > Self::MAX.0 {
            return Err(Error::invalid(format!(
                "a time must be at most {} milliseconds since 1970 (the end of the year 9999)",
                Self::MAX.0
            )));
        }
        Ok(Self(millis))
    }

    /// Reads a stored time as [`as_millis`](Self::as_millis) wrote it, `NEVER` included.
    pub fn from_stored(millis: u64) -> Result<Self> {
        if millis == Self::NEVER.0 { Ok(Self::NEVER) } else { Self::from_millis(millis) }
    }

    /// Milliseconds since 1970; for `NEVER` the largest signed 64-bit number.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns true for [`NEVER`](Self::NEVER).
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// Adds `duration`. `NEVER` stays `NEVER`; a time past [`Timestamp::MAX`] is `Invalid`.
    pub fn checked_add(self, duration: Duration) -> Result<Self> {
        if self.is_never() {
            return Ok(self);
        }
        let millis = u64::try_from(duration.as_millis()).ok().and_then(|more| self.0.checked_add(more));
        millis.map_or_else(|| Self::from_millis(u64::MAX), Self::from_millis)
    }

    /// Time elapsed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() { f.write_str("never") } else { write!(f, "{}", self.0) }
    }
}

/// Source of the current time. Only the binary and the typed stores hold one.
pub trait Clock: Send + Sync + 'static {
    /// Current time.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        self.as_ref().now()
    }
}

/// Clock of the node.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is handed in")]
    fn now(&self) -> Timestamp {
        // A clock before 1970 or after 9999 is clamped: nothing panics, and the clock guard reports it.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX).min(Timestamp::MAX.0))
    }
}

/// Clock that moves only when it is told to, for tests. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows `start`.
    #[must_use]
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// Sets the clock to `to`, forwards or backwards.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }

    /// Moves the clock forwards, to [`Timestamp::MAX`] at the most.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().checked_add(by).unwrap_or(Timestamp::MAX));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Stopwatch for metrics and budgets. No answer depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts measuring.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this module owns the monotonic clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_sorts_after_every_time() {
        assert!(Timestamp::NEVER > Timestamp::MAX);
    }

    #[test]
    fn adding_past_the_last_time_is_refused_and_names_the_bound() {
        let error = Timestamp::MAX.checked_add(Duration::from_millis(1)).unwrap_err();
        assert!(error.message().contains("253402300799999"), "{error}");
        assert!(Timestamp::ZERO.checked_add(Duration::MAX).is_err());
    }

    #[test]
    fn never_plus_anything_is_never() {
        assert_eq!(Timestamp::NEVER.checked_add(Duration::MAX).unwrap(), Timestamp::NEVER);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at(Timestamp::ZERO);
        let same = clock.clone();
        clock.advance(Duration::from_millis(5));
        assert_eq!(same.now().as_millis(), 5);
    }
}
