//! The time of one request.

use std::fmt;
use std::time::Duration;

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;

/// The time of one request: two instants with the true time between them.
///
/// * Exact: both are the same instant. This is normal running.
/// * Held: they differ, and `latest` is confirmed. Presence is judged at `latest`; absence must hold at `earliest`.
/// * Not confirmed: an answer that differs between the two is `Unavailable`, and so is every new end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Now {
    earliest: Timestamp,
    latest: Timestamp,
    confirmed: bool,
}

impl Now {
    /// The instant `at`, known exactly.
    #[must_use]
    pub const fn exact(at: Timestamp) -> Self {
        Self { earliest: at, latest: at, confirmed: true }
    }

    /// A confirmed `latest`, behind which `earliest` is held back. An `earliest` past `latest` is moved to it.
    #[must_use]
    pub fn held(earliest: Timestamp, latest: Timestamp) -> Self {
        Self { earliest: earliest.min(latest), latest, confirmed: true }
    }

    /// An interval in doubt, given by its two ends in either order.
    #[must_use]
    pub fn unconfirmed(one: Timestamp, other: Timestamp) -> Self {
        Self { earliest: one.min(other), latest: one.max(other), confirmed: false }
    }

    /// The instant that engines are handed, and up to which a sweep may go. Not for comparisons: those are
    /// [`before`](Self::before).
    #[must_use]
    pub const fn earliest(self) -> Timestamp {
        self.earliest
    }

    /// The later end, for messages and for the time at which something is said to have happened.
    #[must_use]
    pub const fn latest(self) -> Timestamp {
        self.latest
    }

    /// True if new ends can be made.
    #[must_use]
    pub const fn is_confirmed(self) -> bool {
        self.confirmed
    }

    /// True if the request has one confirmed instant: the handle has nothing to add to what the engine answers.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.confirmed && self.earliest == self.latest
    }

    /// The distance between the two ends.
    #[must_use]
    pub fn width(self) -> Duration {
        self.latest.since(self.earliest)
    }

    /// True while `end` is in the future, that is while a record with this end is live. This is the only comparison
    /// with the time, also for instants inside a value. `Unavailable` if the ends give different answers and none of
    /// them is confirmed.
    pub fn before(self, end: Timestamp) -> Result<bool> {
        if self.confirmed || !self.differs_at(end) {
            return Ok(self.latest < end);
        }
        Err(Error::unavailable(format!(
            "the clock is in doubt by {} ms, and the answer depends on it",
            self.width().as_millis()
        )))
    }

    /// True if `end` lies in the interval: live at `earliest` and past at `latest`.
    #[must_use]
    pub fn differs_at(self, end: Timestamp) -> bool {
        self.earliest < end && end <= self.latest
    }

    /// The end of something that begins now and lives for `ttl`. This is the only way to a new end. `Unavailable`
    /// while the clock is in doubt.
    #[expect(clippy::disallowed_methods, reason = "this is the way to a new end")]
    pub fn end(self, ttl: Ttl) -> Result<Timestamp> {
        self.check_confirmed()?;
        ttl.expires_at(self.latest)
    }

    /// The end of something that begins now and lives for `duration`, which a record already has and no caller asks
    /// for. `Unavailable` while the clock is in doubt.
    pub fn end_after(self, duration: Duration) -> Result<Timestamp> {
        self.check_confirmed()?;
        self.latest.checked_add(duration)
    }

    /// `Unavailable` while the clock is in doubt: for what needs a new end, or renews one by reading.
    pub fn check_confirmed(self) -> Result<()> {
        if self.confirmed {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "the clock is in doubt by {} ms; nothing that expires is issued until it is confirmed",
            self.width().as_millis()
        )))
    }

    /// True if a record with this end may be written. One that ended at or before `latest` is answered with "expired"
    /// and not written: a check whose window is already past is never fresh.
    #[must_use]
    pub fn may_write(self, end: Timestamp) -> bool {
        self.latest < end
    }
}

impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() {
            return write!(f, "{}", self.latest);
        }
        let state = if self.confirmed { "held" } else { "not confirmed" };
        write!(f, "{} to {} ({state})", self.earliest, self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::ErrorKind;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn at_its_end_a_record_is_past() {
        let now = Now::exact(at(10));
        assert!(now.before(at(11)).unwrap());
        assert!(!now.before(at(10)).unwrap());
        assert!(now.before(Timestamp::NEVER).unwrap());
        assert!(now.may_write(at(11)) && !now.may_write(at(10)));
    }

    #[test]
    fn in_doubt_only_what_both_ends_agree_on_is_answered() {
        let now = Now::unconfirmed(at(20), at(10));
        assert!(!now.before(at(10)).unwrap());
        for end in 11..=20 {
            assert_eq!(now.before(at(end)).unwrap_err().kind(), ErrorKind::Unavailable, "{end}");
        }
        assert!(now.before(at(21)).unwrap());
    }

    #[test]
    fn in_doubt_there_are_no_new_ends() {
        let ttl = Ttl::from_secs(1).unwrap();
        assert_eq!(Now::unconfirmed(at(1), at(1)).end(ttl).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(Now::exact(at(1)).end(ttl).unwrap(), at(1_001));
        assert_eq!(Now::held(at(1), at(5)).end(ttl).unwrap(), at(1_005));
    }

    #[test]
    fn a_hold_judges_at_latest() {
        let now = Now::held(at(10), at(20));
        assert!(!now.before(at(20)).unwrap());
        assert!(now.before(at(21)).unwrap());
        assert!(now.differs_at(at(11)) && now.differs_at(at(20)));
        assert!(!now.differs_at(at(10)) && !now.differs_at(at(21)));
        assert!(!now.is_exact() && Now::held(at(30), at(20)).is_exact());
    }

    #[test]
    fn it_prints_what_is_known() {
        assert_eq!(Now::exact(at(7)).to_string(), "7");
        assert_eq!(Now::unconfirmed(at(1), at(7)).to_string(), "1 to 7 (not confirmed)");
    }
}
