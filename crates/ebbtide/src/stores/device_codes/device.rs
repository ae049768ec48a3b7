//! Device code as it is stored, and the pace of its polls. Pure: the time is a parameter.

use std::time::Duration;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::stores::codes::{StoredDigest, StoredGrantId};
use crate::stores::shared::confirmation::Resources;
use crate::stores::shared::epochs::{Parties, Stamp};
use crate::timekeeping::Now;

/// Seconds that a `slow_down` adds to the interval, permanently (RFC 8628 §3.5).
pub(super) const SLOWER_BY_SECONDS: u64 = 5;

#[derive(Encode, Decode)]
pub(super) struct Device {
    #[n(0)]
    pub(super) client_id: String,
    #[n(1)]
    pub(super) scope: Option<String>,
    /// Payload, sealed for this record; removed when the code is redeemed or denied.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub(super) data: Option<Vec<u8>>,
    #[n(3)]
    pub(super) valid_until: u64,
    #[n(4)]
    pub(super) interval_seconds: u64,
    #[n(5)]
    pub(super) polled_at: Option<u64>,
    #[n(6)]
    pub(super) state: DeviceState,
    #[n(7)]
    pub(super) started_at: u64,
    #[n(8)]
    pub(super) resource: Option<Resources>,
    /// Epochs of its client, and of its subject once it is approved.
    #[n(9)]
    pub(super) stamp: Option<Stamp>,
    /// Digest of its user code, so that no other one leads to it; none where an earlier version wrote it.
    #[n(10)]
    pub(super) user_code: Option<ByteArray<32>>,
}

#[derive(Encode, Decode)]
pub(super) enum DeviceState {
    /// The user has not decided yet.
    #[n(0)]
    Pending,
    #[n(1)]
    Approved(#[n(0)] String),
    #[n(2)]
    Denied,
    /// Redeemed, with the grant that was issued for it, or the access token without one, if any.
    #[n(3)]
    Redeemed(#[n(0)] Option<StoredGrantId>, #[n(1)] Option<StoredDigest>),
}

/// Pace that a device is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Wait { interval_seconds: u64 },
    SlowDown { interval_seconds: u64 },
}

impl DeviceState {
    /// State of a code that has not ended, in words.
    pub(super) fn while_live(&self) -> &'static str {
        match self {
            Self::Approved(_) => "the user has said yes, and it was not redeemed yet",
            _ => "the user has not decided yet",
        }
    }
}

impl Device {
    pub(super) fn valid_until(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.valid_until)
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp.unwrap_or_default()
    }

    /// Client of the code, and its subject once it is approved.
    pub(super) fn parties(&self) -> Parties<'_> {
        match &self.state {
            DeviceState::Approved(subject) => Parties::new(subject, &self.client_id),
            _ => Parties::client(&self.client_id),
        }
    }

    /// Refuses a user who has the name of the client. A sign-out ends nothing of a subject that is its own client, and
    /// who registers may choose the `client_id`.
    pub(super) fn check_user(&self, subject: &str) -> Result<()> {
        if subject == self.client_id {
            let message = "a user approves, who has another name than the client";
            return Err(Error::invalid(message).about("subject"));
        }
        Ok(())
    }

    /// Records a poll while nothing is decided. A poll before the interval is over makes the interval longer,
    /// permanently.
    pub(super) fn poll(&mut self, now: Now) -> Result<Pace> {
        let early = match self.polled_at {
            Some(polled_at) => {
                let interval = Duration::from_secs(self.interval_seconds);
                now.before(Timestamp::from_stored(polled_at)?.checked_add(interval)?)?
            }
            None => false,
        };
        self.polled_at = Some(now.latest().as_millis());
        Ok(if early {
            self.interval_seconds = self.interval_seconds.saturating_add(SLOWER_BY_SECONDS);
            Pace::SlowDown { interval_seconds: self.interval_seconds }
        } else {
            Pace::Wait { interval_seconds: self.interval_seconds }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_that_is_early_makes_the_interval_longer_for_good() {
        let mut device = Device {
            client_id: "tv".into(),
            scope: None,
            data: None,
            valid_until: 0,
            interval_seconds: 5,
            polled_at: None,
            state: DeviceState::Pending,
            started_at: 0,
            resource: None,
            stamp: None,
            user_code: None,
        };
        let mut poll = |millis: u64| {
            let at = Timestamp::from_millis(1_800_000_000_000 + millis).unwrap();
            device.poll(Now::exact(at)).unwrap()
        };
        assert_eq!(poll(0), Pace::Wait { interval_seconds: 5 }, "the first is never early");
        assert_eq!(poll(5_000), Pace::Wait { interval_seconds: 5 });
        assert_eq!(poll(9_999), Pace::SlowDown { interval_seconds: 10 });
        assert_eq!(poll(19_998), Pace::SlowDown { interval_seconds: 15 }, "from the last poll");
        assert_eq!(poll(34_998), Pace::Wait { interval_seconds: 15 });
    }
}
