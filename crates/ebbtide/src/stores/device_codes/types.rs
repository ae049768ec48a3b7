//! Requests and answers, as callers see them.

use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::Field;
use crate::stores::codes::Redeemed;
use crate::stores::grants::{GrantId, GrantTtls};
use crate::stores::shared::payload::Payload;

/// A flow to be started.
#[derive(Debug, Clone)]
#[must_use]
pub struct DeviceRequest {
    pub(super) client_id: String,
    pub(super) scope: Option<String>,
    pub(super) data: Option<Payload>,
    pub(super) ttl: Option<Ttl>,
    pub(super) interval_seconds: Option<u64>,
}

impl DeviceRequest {
    /// A flow of the client on a device.
    pub fn new(client_id: impl Into<String>) -> Self {
        Self { client_id: client_id.into(), scope: None, data: None, ttl: None, interval_seconds: None }
    }

    /// What is asked for.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Keeps this with the code, sealed.
    pub fn data(mut self, data: impl Into<Payload>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Lets it live that long, at most an hour.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How many seconds the device waits from one poll to the next, 1 to 60.
    pub fn interval_seconds(mut self, seconds: u64) -> Self {
        self.interval_seconds = Some(seconds);
        self
    }
}

/// A flow that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedDevice {
    /// What the device asks with.
    pub device_code: Secret,
    /// What the user types: `XXXX-XXXX`.
    pub user_code: Secret,
    /// How many seconds the device waits from one poll to the next.
    pub interval_seconds: u64,
    /// Until when it can be approved and redeemed.
    pub expires_at: Timestamp,
}

/// What the user decides, and where from.
#[derive(Debug, Clone)]
#[must_use]
pub struct Decision {
    pub(super) approved: Option<(String, Option<Payload>)>,
    pub(super) source: Option<Secret>,
}

impl Decision {
    /// The device may speak for `subject`.
    pub fn approve(subject: impl Into<String>) -> Self {
        Self { approved: Some((subject.into(), None)), source: None }
    }

    /// It may not.
    pub fn deny() -> Self {
        Self { approved: None, source: None }
    }

    /// Keeps this with the approval, sealed, in place of what the flow was started with. A denial keeps nothing.
    pub fn data(mut self, data: impl Into<Payload>) -> Self {
        if let Some((_, kept)) = &mut self.approved {
            *kept = Some(data.into());
        }
        self
    }

    /// Who typed the code: an address, or a session. Wrong codes are counted by source; where none is named an
    /// approval's is its subject, and denials are counted together.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(Secret::new(source));
        self
    }

    pub(super) fn counted_for(&self) -> Option<&str> {
        let subject = self.approved.as_ref().map(|(subject, _)| subject.as_str());
        self.source.as_ref().map(Secret::expose).or(subject)
    }
}

/// The answer to a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the verdict may have come too late"]
pub enum DecideOutcome {
    /// It stands.
    Decided {
        /// The client that it was about.
        client_id: String,
        /// What it asked for.
        scope: Option<String>,
    },
    /// It was decided before, one way or the other.
    Used,
    /// It was not decided in its time.
    Expired,
    /// Not a user code of a live flow in this scope.
    Unknown,
    /// Too many wrong codes came from there. Nothing was looked at.
    TooManyGuesses {
        /// When the next one is let through.
        retry_at: Timestamp,
    },
}

/// The answer to a poll.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "only an approved code can be redeemed"]
pub enum PollOutcome {
    /// It can be redeemed now.
    Approved {
        /// Whom it speaks for.
        subject: String,
        /// What was granted.
        scope: Option<String>,
    },
    /// Nobody has decided yet.
    Pending {
        /// How many seconds to wait.
        interval_seconds: u64,
    },
    /// Nobody has decided yet, and the poll was too early: from now on wait five seconds longer.
    SlowDown {
        /// How many seconds to wait from now on.
        interval_seconds: u64,
    },
    /// The user has said no.
    Denied,
    /// It was redeemed before.
    Used,
    /// It is another client's. Nothing was changed.
    Mismatch(Field),
    /// It was not approved, or not redeemed, in its time.
    Expired,
    /// Not a device code of this scope, or one from long ago, or its subject or client was deleted.
    Unknown,
}

/// A device code, with what its bearer presents.
#[derive(Debug, Clone)]
#[must_use]
pub struct DeviceRedeem {
    pub(super) device_code: Secret,
    pub(super) client_id: String,
    pub(super) thumbprint: Option<String>,
    pub(super) grant: Option<GrantTtls>,
}

impl DeviceRedeem {
    /// The code, and the client that is known to present it.
    pub fn new(device_code: Secret, client_id: impl Into<String>) -> Self {
        Self { device_code, client_id: client_id.into(), thumbprint: None, grant: None }
    }

    /// The thumbprint of the key whose proof came with the code: the grant is bound to it.
    pub fn thumbprint(mut self, thumbprint: impl Into<String>) -> Self {
        self.thumbprint = Some(thumbprint.into());
        self
    }

    /// Asks for a grant, issued in the commit that redeems the code.
    pub fn grant(mut self, terms: GrantTtls) -> Self {
        self.grant = Some(terms);
        self
    }
}

/// The answer to a redemption.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "only a redeemed code may be honoured"]
pub enum DeviceRedeemOutcome {
    /// It was approved, and is used up now.
    Redeemed(Box<Redeemed>),
    /// It was redeemed before. What it gave is revoked.
    Reused {
        /// The grant that it gave, if it gave one.
        grant_id: Option<GrantId>,
    },
    /// It cannot be redeemed: a poll would have been answered so, and this counts as one.
    Refused(PollOutcome),
}
