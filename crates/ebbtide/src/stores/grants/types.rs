//! Grants and answers.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::Deserialize;

use crate::model::error::{Error, Result};
use crate::model::record::Version;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::stores::Field;
use crate::stores::access_tokens::IssuedAccessToken;
use crate::stores::shared::confirmation::Resources;
use crate::stores::shared::payload::Payload;

/// Id of a grant. It is no secret: no token can be derived from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct GrantId([u8; GrantId::BYTES]);

impl GrantId {
    /// Length of an id, in bytes.
    pub const BYTES: usize = 16;

    /// Id with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Bytes of the id.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for GrantId {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantId({self})")
    }
}

impl FromStr for GrantId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let id = text
            .parse::<Version>()
            .map_err(|_| Error::invalid("a grant id is 32 hexadecimal digits").about("grant_id"))?;
        Ok(Self(*id.as_bytes()))
    }
}

impl TryFrom<String> for GrantId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

/// Reason why a grant was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
#[non_exhaustive]
pub enum Why {
    /// A caller requested it.
    #[n(0)]
    Requested,
    /// A refresh token of it was used a second time.
    #[n(1)]
    RefreshReused,
    /// Its code was redeemed a second time.
    #[n(2)]
    CodeReused,
    /// Its subject was signed out.
    #[n(3)]
    SignedOut,
    /// Everything of its client was revoked.
    #[n(4)]
    ClientRevoked,
    /// Its session was ended.
    #[n(5)]
    SessionEnded,
}

impl Why {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Requested => "someone asked for it",
            Self::RefreshReused => "a refresh token of it was used a second time",
            Self::CodeReused => "the code that it came from was redeemed a second time",
            Self::SignedOut => "its subject was signed out",
            Self::ClientRevoked => "everything of its client was revoked",
            Self::SessionEnded => "its session was ended",
        }
    }
}

/// State of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantState {
    /// Active.
    Active,
    /// Revoked, until its cap.
    Revoked {
        /// Time of the revocation.
        at: Timestamp,
        /// Reason of the revocation.
        why: Why,
    },
    /// Idle for too long.
    Expired,
}

/// Grant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Grant {
    /// Id of the grant.
    pub id: GrantId,
    /// Subject that it speaks for.
    pub subject: String,
    /// Client that holds it.
    pub client_id: String,
    /// Granted OAuth scope.
    pub scope: Option<String>,
    /// Thumbprint of the key that it is bound to.
    pub dpop_jkt: Option<String>,
    /// Thumbprint of the client certificate that it is bound to.
    pub x5t_s256: Option<String>,
    /// Resources that its access tokens are meant for.
    pub resource: Option<Resources>,
    /// Payload; removed when the grant is revoked.
    pub data: Option<Payload>,
    /// Number of rotations.
    pub generation: u64,
    /// Time of issue.
    pub created_at: Timestamp,
    /// Time of the last rotation, or of the issue.
    pub rotated_at: Timestamp,
    /// End of the grant unless it is rotated before.
    pub expires_at: Timestamp,
    /// End of the grant, however often it is rotated.
    pub ends_at: Timestamp,
    /// Session that it came from.
    pub sid: Option<String>,
    /// State of the grant.
    pub state: GrantState,
}

/// Issued grant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IssuedGrant {
    /// Id of the grant.
    pub grant_id: GrantId,
    /// First refresh token.
    pub refresh_token: Secret,
    /// End of the grant unless it is rotated before.
    pub expires_at: Timestamp,
    /// End of the grant, however often it is rotated.
    pub ends_at: Timestamp,
}

/// Successor of a refresh token, and the content of its grant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rotated {
    /// The successor.
    pub refresh_token: Secret,
    /// Number of rotations of the family.
    pub generation: u64,
    /// Id of the family.
    pub grant_id: GrantId,
    /// Subject that it speaks for.
    pub subject: String,
    /// Client that holds it.
    pub client_id: String,
    /// Granted OAuth scope.
    pub scope: Option<String>,
    /// Thumbprint of the key that it is bound to.
    pub dpop_jkt: Option<String>,
    /// Resources that its access tokens are meant for.
    pub resource: Option<Resources>,
    /// Access token, if one was asked for.
    pub access_token: Option<IssuedAccessToken>,
    /// Payload of the grant.
    pub data: Option<Payload>,
    /// End of the grant unless it is rotated before.
    pub expires_at: Timestamp,
    /// End of the grant, however often it is rotated.
    pub ends_at: Timestamp,
}

/// Answer to a rotation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only a rotated or retried token may be honoured"]
pub enum RotateOutcome {
    /// The token was the current one, and has a successor now.
    Rotated(Box<Rotated>),
    /// The token was rotated a moment ago and its successor was not used yet: the same successor again.
    Retried(Box<Rotated>),
    /// An old token within its own retry window, or one of a family that is rotated faster than its windows end.
    /// Nothing is changed: read the stored token again, and try once more later.
    Raced {
        /// Id of the family.
        grant_id: GrantId,
    },
    /// The token was used before. The family is revoked.
    Reused {
        /// Id of the family.
        grant_id: GrantId,
    },
    /// The token belongs to another client or key. Nothing is changed.
    Mismatch(Field),
    /// The family was revoked before.
    Revoked {
        /// Time of the revocation.
        at: Timestamp,
        /// Reason of the revocation.
        why: Why,
    },
    /// The family was idle for too long, or has reached its cap.
    Expired,
    /// Not a refresh token of this scope. Nothing is changed.
    Unknown,
}
