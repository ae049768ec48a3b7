//! Grants and answers, as callers see them.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::Deserialize;

use crate::model::error::{Error, Result};
use crate::model::record::Version;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::stores::Field;
use crate::stores::shared::payload::Payload;

/// Names a grant. It is no secret, and no token can be made from it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct GrantId([u8; GrantId::BYTES]);

impl GrantId {
    /// How many bytes an id has.
    pub const BYTES: usize = 16;

    /// The id with these bytes, as they were stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for GrantId {
    /// 32 hexadecimal digits.
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
        let id =
            text.parse::<Version>().map_err(|_| Error::invalid("a grant id is 32 hexadecimal digits"))?;
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
    /// Someone asked for it.
    #[n(0)]
    Requested,
    /// A refresh token of it was used a second time.
    #[n(1)]
    RefreshReused,
    /// The code that it came from was redeemed a second time.
    #[n(2)]
    CodeReused,
}

impl Why {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Requested => "someone asked for it",
            Self::RefreshReused => "a refresh token of it was used a second time",
            Self::CodeReused => "the code that it came from was redeemed a second time",
        }
    }
}

/// State of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantState {
    /// It can be used.
    Active,
    /// It was revoked, and stays so until its cap.
    Revoked {
        /// When.
        at: Timestamp,
        /// Why.
        why: Why,
    },
    /// It was idle for too long.
    Expired,
}

/// A grant, as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// Whom it speaks for.
    pub subject: String,
    /// Who holds it.
    pub client_id: String,
    /// What was granted.
    pub scope: Option<String>,
    /// The key that it is bound to.
    pub dpop_jkt: Option<String>,
    /// What was kept with it; gone once it is revoked.
    pub data: Option<Payload>,
    /// How often it was rotated.
    pub generation: u64,
    /// When it was issued.
    pub created_at: Timestamp,
    /// When it was rotated last, or issued.
    pub rotated_at: Timestamp,
    /// When it ends unless it is rotated before.
    pub expires_at: Timestamp,
    /// When it ends, however often it is rotated.
    pub ends_at: Timestamp,
    /// What has become of it.
    pub state: GrantState,
}

/// A grant that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedGrant {
    /// Its id.
    pub grant_id: GrantId,
    /// The first refresh token.
    pub refresh_token: Secret,
    /// When it ends unless it is rotated before.
    pub expires_at: Timestamp,
    /// When it ends, however often it is rotated.
    pub ends_at: Timestamp,
}

/// The successor of a refresh token, and what it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotated {
    /// The successor.
    pub refresh_token: Secret,
    /// Its number: how often the family was rotated.
    pub generation: u64,
    /// The family.
    pub grant_id: GrantId,
    /// Whom it speaks for.
    pub subject: String,
    /// Who holds it.
    pub client_id: String,
    /// What was granted.
    pub scope: Option<String>,
    /// The key that it is bound to.
    pub dpop_jkt: Option<String>,
    /// What was kept with the grant.
    pub data: Option<Payload>,
    /// When it ends unless it is rotated before.
    pub expires_at: Timestamp,
    /// When it ends, however often it is rotated.
    pub ends_at: Timestamp,
}

/// The answer to a rotation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only a rotated or retried token may be honoured"]
pub enum RotateOutcome {
    /// The token was the present one, and has a successor now.
    Rotated(Box<Rotated>),
    /// The token was rotated a moment ago and its successor has not been seen in use: here is the same one again.
    Retried(Box<Rotated>),
    /// The token was used before. The family is revoked.
    Reused {
        /// The family.
        grant_id: GrantId,
    },
    /// The token is not the presenter's. Nothing was burned.
    Mismatch(Field),
    /// The family was revoked before.
    Revoked {
        /// When.
        at: Timestamp,
        /// Why.
        why: Why,
    },
    /// The family was idle for too long, or has reached its cap.
    Expired,
    /// Not a refresh token of this scope. Nothing was changed.
    Unknown,
}
