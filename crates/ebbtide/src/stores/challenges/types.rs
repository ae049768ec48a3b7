//! Requests and answers of challenges.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use minicbor::{Decode, Encode};
use serde::Deserialize;

use crate::model::error::{Error, Result};
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::shared::payload::{Payload, present};
use crate::stores::shared::setters::setters;

/// Form of a challenge's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Form {
    /// Six digits, for a person to type.
    #[n(0)]
    Digits6,
    /// A token of 256 random bits for a link, with the prefix `ebh_`.
    #[n(1)]
    Token,
    /// 32 random bytes in base64url, as `WebAuthn` takes them.
    #[n(2)]
    Bytes32,
}

impl Form {
    /// Name, as HTTP has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Digits6 => "digits6",
            Self::Token => "token",
            Self::Bytes32 => "bytes32",
        }
    }
}

/// Treatment of the other live challenges of the same purpose and subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Siblings {
    /// They stay valid.
    Keep,
    /// They end, in the commit that issues the new one.
    Invalidate,
}

/// Identifier of a challenge. It is not secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChallengeId([u8; ChallengeId::BYTES]);

impl ChallengeId {
    /// Size of an id in bytes.
    pub const BYTES: usize = 16;

    pub(super) const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for ChallengeId {
    /// Prints 22 characters of base64url.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Base64UrlUnpadded::encode_string(&self.0))
    }
}

impl fmt::Debug for ChallengeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChallengeId({self})")
    }
}

impl FromStr for ChallengeId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("the id of a challenge is 22 characters of base64url").about("id");
        let mut bytes = [0; Self::BYTES];
        let decoded = Base64UrlUnpadded::decode(text, &mut bytes).map_err(|_| wrong())?.len();
        if decoded == Self::BYTES { Ok(Self(bytes)) } else { Err(wrong()) }
    }
}

/// Challenge to issue.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct ChallengeRequest {
    /// Purpose, such as `login` or `reset`. A secret of one purpose is good for no other.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "login"))]
    pub purpose: String,
    /// Subject that has to answer: an account, an address, a session.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub subject: String,
    /// Form of the secret.
    pub form: Form,
    /// Lifetime: ten minutes by default, 30 days at most.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Number of wrong secrets after which the challenge is closed, 1 to 100; 5 by default.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100))]
    pub attempts: Option<u32>,
    /// Payload, stored sealed, and returned to the caller that verifies.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// `invalidate` ends the other challenges of this purpose and subject.
    pub siblings: Option<Siblings>,
}

impl ChallengeRequest {
    /// Challenge of this form for `subject`.
    pub fn new(purpose: impl Into<String>, subject: impl Into<String>, form: Form) -> Self {
        Self {
            purpose: purpose.into(),
            subject: subject.into(),
            form,
            ttl: None,
            attempts: None,
            data: None,
            siblings: None,
        }
    }

    setters!(ttl: Ttl, attempts: u32, data: Payload, siblings: Siblings);
}

/// Issued challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IssuedChallenge {
    /// Id, to verify by.
    pub id: ChallengeId,
    /// Secret, for the subject alone.
    pub secret: Secret,
    /// End of the challenge.
    pub expires_at: Timestamp,
}

/// Request to verify the secret of a challenge.
///
/// The challenge is named by its id; without one, by the secret itself if it is a token or 32 bytes; otherwise it is
/// the latest of the purpose and the subject.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Verify {
    /// Id of the challenge.
    pub id: Option<String>,
    /// Purpose that it was issued for.
    #[cfg_attr(feature = "schema", schema(example = "login"))]
    pub purpose: String,
    /// Subject that it was issued to.
    #[cfg_attr(feature = "schema", schema(example = "alice"))]
    pub subject: Option<String>,
    /// Secret, as it was presented.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "123456"))]
    pub secret: Secret,
}

impl Verify {
    /// Request with a secret for this purpose.
    pub fn new(purpose: impl Into<String>, secret: impl Into<Secret>) -> Self {
        Self { id: None, purpose: purpose.into(), subject: None, secret: secret.into() }
    }

    setters!(id: String, subject: String);
}

/// Request to look at a challenge without using it up.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Peek {
    /// Id of the challenge.
    pub id: Option<String>,
    /// Purpose that it was issued for.
    #[cfg_attr(feature = "schema", schema(example = "login"))]
    pub purpose: String,
    /// Subject that it was issued to.
    #[cfg_attr(feature = "schema", schema(example = "alice"))]
    pub subject: Option<String>,
    /// Secret. A wrong one counts as an attempt, so that peeking helps nobody to guess. Without one, the answer has no
    /// data.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub secret: Option<Secret>,
}

impl Peek {
    /// Request for a challenge of this purpose.
    pub fn new(purpose: impl Into<String>) -> Self {
        Self { id: None, purpose: purpose.into(), subject: None, secret: None }
    }

    setters!(id: String, subject: String, secret: Secret);
}

/// Challenge, as a caller sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Challenge {
    /// Id.
    pub id: ChallengeId,
    /// Purpose that it was issued for.
    pub purpose: String,
    /// Subject that it was issued to.
    pub subject: String,
    /// Form of the secret.
    pub form: Form,
    /// Time at which it was issued.
    pub issued_at: Timestamp,
    /// End of the challenge.
    pub expires_at: Timestamp,
    /// Number of wrong secrets that are still allowed.
    pub attempts_left: u32,
    /// Payload; none for a peek without the secret.
    pub data: Option<Payload>,
}

/// Answer to a verification or a peek.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only a verified challenge may be honoured"]
pub enum VerifyOutcome {
    /// The secret is right. After a verification the challenge is used; after a peek it is still open.
    Verified(Box<Challenge>),
    /// The challenge was verified before.
    Used,
    /// The challenge has expired.
    Expired,
    /// A later challenge of the same purpose and subject has ended this one.
    Superseded,
    /// The secret is wrong, and the attempt is counted.
    Mismatch {
        /// Number of wrong secrets that are still allowed.
        attempts_left: u32,
    },
    /// Too many wrong secrets were presented. The secret was not compared.
    Exceeded,
    /// Not a challenge of this scope, purpose and subject, or forgotten, or its subject was deleted.
    Unknown,
}
