//! Clock guard: time never runs backwards in a store, and a clock leap erases nothing.
//!
//! The store keeps a mark, the latest time at which it was used. `now` is the greater of the node's clock and the
//! mark, so a clock that is set back revives nothing, even across a restart. A clock that is ahead of the mark by
//! more than a bound has leapt: requests are answered by it (records may look expired, which fails closed), but the
//! mark does not move and nothing is swept until an operator confirms the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::admin::Admin;
use crate::backend::{BackendExt as _, Budget, Swept};
use crate::model::error::{Error, Result};
use crate::model::time::{Clock, Timestamp};

/// Guarded clock of one store.
pub struct ClockGuard {
    backend: Arc<dyn Admin>,
    clock: Arc<dyn Clock>,
    bound: Duration,
    /// Latest time that was returned, in milliseconds; leaps excluded.
    latest: AtomicU64,
}

/// Lead of the clock over the store's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leap {
    /// Latest time at which the store was used.
    pub mark: Timestamp,
    /// Time of the node's clock.
    pub clock: Timestamp,
}

impl fmt::Display for Leap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.clock.since(self.mark);
        let hours = ahead.as_secs() / 3_600;
        write!(
            f,
            "the clock is {} days and {} hours ahead of the last use of this store; nothing is swept until an \
             operator confirms the clock",
            hours / 24,
            hours % 24
        )
    }
}

impl ClockGuard {
    /// Default bound on the lead of the clock over the mark: a day.
    pub const DEFAULT_BOUND: Duration = Duration::from_secs(24 * 3_600);

    /// Guards `backend` with `clock`.
    pub async fn new(backend: Arc<dyn Admin>, clock: impl Clock, bound: Duration) -> Result<Self> {
        let mark = backend.clock_mark().await?.unwrap_or(Timestamp::ZERO);
        let latest = AtomicU64::new(mark.as_millis());
        Ok(Self { backend, clock: Arc::new(clock), bound, latest })
    }

    /// Guards a store that was never used, and so has no mark.
    pub(crate) fn unmarked(backend: Arc<dyn Admin>, clock: impl Clock) -> Self {
        Self { backend, clock: Arc::new(clock), bound: Self::DEFAULT_BOUND, latest: AtomicU64::new(0) }
    }

    /// Whether the clock has leapt, by the mark that the store has now.
    pub async fn leap(&self) -> Result<Option<Leap>> {
        let (mark, clock) = (self.backend.clock_mark().await?, self.clock.now());
        Ok(mark.filter(|mark| clock.since(*mark) > self.bound).map(|mark| Leap { mark, clock }))
    }

    /// Moves the mark to the clock, on an operator's confirmation that the clock is right.
    pub async fn confirm(&self) -> Result<Timestamp> {
        let now = self.clock.now();
        self.backend.set_clock_mark(now).await?;
        self.latest.fetch_max(now.as_millis(), Ordering::AcqRel);
        Ok(now)
    }

    /// Moves the mark of a store that is open but idle, so that a quiet week is no leap. Call it every minute.
    pub async fn tick(&self) -> Result<()> {
        const WORTH_A_WRITE: Duration = Duration::from_secs(60);
        let (mark, now) = (self.backend.clock_mark().await?, self.now());
        if self.leap().await?.is_none() && mark.is_none_or(|mark| now.since(mark) >= WORTH_A_WRITE) {
            self.backend.set_clock_mark(now).await?;
        }
        Ok(())
    }

    /// Instant of a sweep, captured once for all of its steps. Returns an error if the clock has leapt: then nothing
    /// may be removed.
    pub async fn sweep_until(&self) -> Result<Timestamp> {
        match self.leap().await? {
            Some(leap) => Err(Error::unavailable(leap.to_string())),
            None => Ok(self.now()),
        }
    }

    /// Sweeps completely, in steps of `budget`, up to one instant. Returns an error if the clock has leapt.
    pub async fn sweep(&self, budget: &Budget) -> Result<Swept> {
        self.backend.sweep_all(self.sweep_until().await?, budget).await
    }
}

impl Clock for ClockGuard {
    fn now(&self) -> Timestamp {
        let clock = self.clock.now();
        let latest = Timestamp::from_stored(self.latest.load(Ordering::Acquire)).unwrap_or(Timestamp::ZERO);
        if latest > Timestamp::ZERO && clock.since(latest) > self.bound {
            return clock;
        }
        self.latest.fetch_max(clock.as_millis(), Ordering::AcqRel);
        clock.max(latest)
    }
}

impl fmt::Debug for ClockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockGuard").field("bound", &self.bound).finish_non_exhaustive()
    }
}
