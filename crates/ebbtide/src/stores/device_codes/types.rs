//! Requests and answers.

use serde::Deserialize;

use super::guesses::shown;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::Field;
use crate::stores::access_tokens::{AccessDraft, asked};
use crate::stores::codes::Redeemed;
use crate::stores::grants::{GrantId, GrantTtls, asked_grant};
use crate::stores::shared::confirmation::{Confirmation, Resources};
use crate::stores::shared::payload::{Payload, present};
use crate::stores::shared::setters::setters;

/// Request to start a flow.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct DeviceRequest {
    /// Client on the device.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "tv"))]
    pub client_id: String,
    /// Requested OAuth scope.
    pub scope: Option<String>,
    /// Resources that its access tokens are meant for (RFC 8707).
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub resource: Option<Resources>,
    /// Payload, stored sealed.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Lifetime: ten minutes by default, an hour at most.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Seconds from one poll to the next, 1 to 60; 5 by default.
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub interval_seconds: Option<u64>,
}

impl DeviceRequest {
    /// Request of the client on a device.
    pub fn new(client_id: impl Into<String>) -> Self {
        let client_id = client_id.into();
        Self { client_id, scope: None, resource: None, data: None, ttl: None, interval_seconds: None }
    }

    setters!(scope: String, resource: Resources, data: Payload, ttl: Ttl);

    /// Sets [`interval_seconds`](Self#structfield.interval_seconds).
    pub fn interval_seconds(mut self, seconds: u64) -> Self {
        self.interval_seconds = Some(seconds);
        self
    }
}

/// Started flow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartedDevice {
    /// Device code, for polls and the redemption.
    pub device_code: Secret,
    /// User code, for the user to type: `XXXX-XXXX`.
    pub user_code: Secret,
    /// Seconds from one poll to the next.
    pub interval_seconds: u64,
    /// End of the flow.
    pub expires_at: Timestamp,
}

/// Approval of a flow by the user.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Approve {
    /// User code, as it was typed.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "WDJB-MJHT"))]
    pub user_code: Secret,
    /// Subject that the device may speak for.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub subject: String,
    /// Payload, stored sealed, in place of the one that the flow was started with.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Origin of the user code, such as an address or a session: wrong codes are counted by it. The subject by default.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub source: Option<Secret>,
}

impl Approve {
    /// Approval of `user_code`: the device may speak for `subject`.
    pub fn new(user_code: impl Into<Secret>, subject: impl Into<String>) -> Self {
        Self { user_code: user_code.into(), subject: subject.into(), data: None, source: None }
    }

    setters!(data: Payload, source: Secret);
}

/// Denial of a flow by the user.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Deny {
    /// User code, as it was typed.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "WDJB-MJHT"))]
    pub user_code: Secret,
    /// Origin of the user code, such as an address or a session: wrong codes are counted by it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub source: Secret,
}

impl Deny {
    /// Denial of `user_code`, which came from `source`.
    pub fn new(user_code: impl Into<Secret>, source: impl Into<Secret>) -> Self {
        Self { user_code: user_code.into(), source: source.into() }
    }
}

/// Question what a user code asks for, before the user decides.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Inspect {
    /// User code, as it was typed.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "WDJB-MJHT"))]
    pub user_code: Secret,
    /// Origin of the user code, such as an address or a session: wrong codes are counted by it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub source: Secret,
}

impl Inspect {
    /// Question about `user_code`, which came from `source`.
    pub fn new(user_code: impl Into<Secret>, source: impl Into<Secret>) -> Self {
        Self { user_code: user_code.into(), source: source.into() }
    }
}

/// Answer to what a user code asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum InspectOutcome {
    /// The user has not decided yet.
    Pending {
        /// Client of the flow.
        client_id: String,
        /// Requested OAuth scope.
        scope: Option<String>,
        /// Resources that its access tokens are meant for.
        resource: Option<Resources>,
        /// End of the flow.
        expires_at: Timestamp,
    },
    /// The flow was decided before.
    Used,
    /// The flow has expired.
    Expired,
    /// Not a user code of a live flow in this scope.
    Unknown,
    /// Too many wrong codes came from the source. The code was not looked up.
    TooManyGuesses {
        /// Time at which the next code is accepted.
        retry_at: Timestamp,
    },
}

/// Decision of the user on a flow.
#[derive(Debug, Clone)]
#[must_use]
pub enum Decision {
    /// The device may speak for a subject.
    Approve(Approve),
    /// It may not.
    Deny(Deny),
}

impl From<Approve> for Decision {
    fn from(approve: Approve) -> Self {
        Self::Approve(approve)
    }
}

impl From<Deny> for Decision {
    fn from(deny: Deny) -> Self {
        Self::Deny(deny)
    }
}

impl Decision {
    pub(super) fn user_code(&self) -> &Secret {
        match self {
            Self::Approve(Approve { user_code, .. }) | Self::Deny(Deny { user_code, .. }) => user_code,
        }
    }

    /// Origin that a wrong code is counted for.
    pub(super) fn source(&self) -> &str {
        match self {
            Self::Approve(Approve { source, subject, .. }) => source.as_ref().map_or(subject, Secret::expose),
            Self::Deny(Deny { source, .. }) => source.expose(),
        }
    }

    /// Origin as the audit log shows it.
    pub(super) fn shown_source(&self) -> String {
        match self {
            Self::Approve(Approve { source: None, subject, .. }) => subject.clone(),
            Self::Approve(Approve { source: Some(source), .. }) | Self::Deny(Deny { source, .. }) => {
                shown(source)
            }
        }
    }
}

/// Answer to a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the decision may have come too late"]
pub enum DecideOutcome {
    /// The decision is recorded.
    Decided {
        /// Client of the flow.
        client_id: String,
        /// Requested OAuth scope.
        scope: Option<String>,
    },
    /// The flow was decided before.
    Used,
    /// The flow has expired.
    Expired,
    /// Not a user code of a live flow in this scope.
    Unknown,
    /// Too many wrong codes came from the source. The code was not looked up.
    TooManyGuesses {
        /// Time at which the next code is accepted.
        retry_at: Timestamp,
    },
}

/// Answer to a poll.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only an approved code can be redeemed"]
pub enum PollOutcome {
    /// The user has approved; the code can be redeemed.
    Approved {
        /// Subject that it speaks for.
        subject: String,
        /// Granted OAuth scope.
        scope: Option<String>,
    },
    /// The user has not decided yet.
    Pending {
        /// Seconds to wait.
        interval_seconds: u64,
    },
    /// The user has not decided yet, and the poll was too early: the interval is five seconds longer from now on.
    SlowDown {
        /// Seconds to wait from now on.
        interval_seconds: u64,
    },
    /// The user has denied.
    Denied,
    /// The code was redeemed before.
    Used,
    /// It belongs to another client. Nothing is changed.
    Mismatch(Field),
    /// The code has expired.
    Expired,
    /// Not a device code of this scope, or forgotten, or its subject or client was deleted.
    Unknown,
}

/// Request to poll with a device code, or to redeem it: RFC 8628 §3.4 has one request for both.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct DeviceRedeem {
    /// Device code.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub device_code: Secret,
    /// Client that presents the code.
    #[cfg_attr(feature = "schema", schema(example = "tv"))]
    pub client_id: String,
    /// Thumbprint of the key whose proof came with the code; the grant is bound to it.
    pub dpop_jkt: Option<String>,
    /// Key that came with the code, by `jkt` or `x5t#S256`; the grant is bound to it.
    pub cnf: Option<Confirmation>,
    /// Asks for a grant, issued in the commit that redeems the code: `true`, or its lifetimes.
    #[serde(default, deserialize_with = "asked_grant")]
    pub grant: Option<GrantTtls>,
    /// Asks for an access token, issued in the same commit: `true`, or what differs from the code.
    #[serde(default, deserialize_with = "asked")]
    pub access_token: Option<AccessDraft>,
}

impl DeviceRedeem {
    /// Request of `client_id` with `device_code`.
    pub fn new(device_code: impl Into<Secret>, client_id: impl Into<String>) -> Self {
        Self {
            device_code: device_code.into(),
            client_id: client_id.into(),
            dpop_jkt: None,
            cnf: None,
            grant: None,
            access_token: None,
        }
    }

    setters!(dpop_jkt: String, cnf: Confirmation, grant: GrantTtls, access_token: AccessDraft);

    /// Asks for a grant with the lifetimes of the profile.
    pub fn with_grant(self) -> Self {
        self.grant(GrantTtls::default())
    }
}

/// Answer to a redemption.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only a redeemed code may be honoured"]
pub enum DeviceRedeemOutcome {
    /// The code was approved, and is now redeemed.
    Redeemed(Box<Redeemed>),
    /// The code was redeemed before. Its grant is revoked.
    Reused {
        /// Grant that was issued for it, if any.
        grant_id: Option<GrantId>,
    },
    /// The code cannot be redeemed. This counts as a poll, and has the answer to one.
    Refused(PollOutcome),
}
