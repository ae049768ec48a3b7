//! Nonces that a server issues and a client returns (RFC 9449 §8 and §9).
//!
//! ```
//! use ebbtide::Ebbtide;
//! use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let nonces = Ebbtide::in_memory().scope("tenant:acme")?.nonces();
//! let issued = nonces.issue(NonceRequest::new("as.example")).await?;
//! let check = NonceCheck::new("as.example", issued.nonce);
//! assert!(matches!(nonces.accept(&check).await?, NonceOutcome::Accepted { .. }));
//! assert_eq!(nonces.accept(&check).await?, NonceOutcome::Used);
//! # Ok(())
//! # }
//! ```

mod stateless;

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Deserialize;
use stateless::{NonceSource, Stateless};

use super::registry::Store;
use super::shared::finding::{Finding, RecordState};
use super::shared::refusal::RefusalCause;
use super::shared::setters::setters;
use super::shared::token;
use super::shared::update::Step;
use super::{Stores, check_length};
use crate::keyring::Keyring;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::timekeeping::Now;

/// Shortest time for which an ended nonce is remembered.
const LEAST_RETENTION: Duration = Duration::from_secs(10);

/// Nonces of one scope.
///
/// A nonce has one audience: an authorization server's nonce is unknown to a resource server. The record outlives the
/// nonce by its TTL, at least ten seconds, so that `Expired` and `Used` differ from `Unknown`, also after a sweep.
#[derive(Debug, Clone)]
pub struct Nonces {
    stores: Stores,
    scope: Scope,
}

/// Nonce to be issued.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct NonceRequest {
    /// Server that accepts the nonce.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 1024, example = "as.example"))]
    pub audience: String,
    /// Lifetime; 300 seconds by default.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// `stored`, which is the default, or `stateless`: derived from the keyring, so that issuing one writes
    /// no record.
    #[serde(default)]
    pub mode: NonceMode,
    /// Profile whose lifetime is used: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "oauth"))]
    pub profile: Option<String>,
}

/// Kind of a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NonceMode {
    /// Random, with a record of its own.
    #[default]
    Stored,
    /// Derived from the keyring, without a record.
    Stateless,
}

impl NonceRequest {
    /// Creates a request for an audience.
    pub fn new(audience: impl Into<String>) -> Self {
        Self { audience: audience.into(), ttl: None, mode: NonceMode::Stored, profile: None }
    }

    setters!(ttl: Ttl, profile: String);

    /// Asks for a nonce that is derived from the keyring, without a record.
    pub fn stateless(mut self) -> Self {
        self.mode = NonceMode::Stateless;
        self
    }
}

/// Nonce that a client presents.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct NonceCheck {
    /// Server that checks the nonce.
    #[cfg_attr(feature = "schema", schema(example = "as.example"))]
    pub audience: String,
    /// Nonce.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub nonce: Secret,
}

impl NonceCheck {
    /// Creates a check of a nonce by an audience.
    pub fn new(audience: impl Into<String>, nonce: impl Into<Secret>) -> Self {
        Self { audience: audience.into(), nonce: nonce.into() }
    }
}

/// Issued nonce.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IssuedNonce {
    /// Nonce.
    pub nonce: Secret,
    /// End of the nonce's validity.
    pub expires_at: Timestamp,
}

/// Answer to a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only an accepted nonce is good"]
#[non_exhaustive]
pub enum NonceOutcome {
    /// The nonce is valid; `accept` has consumed it.
    Accepted {
        /// End of the nonce's validity.
        expires_at: Timestamp,
    },
    /// The nonce was accepted before.
    Used,
    /// The nonce has expired.
    Expired,
    /// Not a nonce of this scope and audience, or one that expired long ago.
    Unknown,
}

#[derive(Debug, Encode, Decode)]
struct Nonce {
    #[n(0)]
    valid_until: u64,
    #[n(1)]
    used: bool,
}

impl Store for Nonces {
    const KINDS: &'static [Kind] = &[Kind::Nonce];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(300));
    type Question = NonceCheck;

    fn spent(value: &[u8]) -> Result<Option<Vec<u8>>> {
        let nonce: Nonce = codec::decode(value)?;
        Ok((!nonce.used).then(|| codec::encode(&Nonce { used: true, ..nonce })))
    }

    async fn explain(&self, question: &NonceCheck) -> Result<Finding> {
        if let Some(nonce) = self.stateless(question)? {
            let finding = match self.check(question).await? {
                NonceOutcome::Used => Finding::new(RecordState::Used, "it was accepted"),
                NonceOutcome::Expired => Finding::new(RecordState::Expired, "it was not used in its time"),
                _ => Finding::new(RecordState::Live, "it was derived, and not accepted yet"),
            };
            return Ok(finding.until(nonce.valid_until));
        }
        let unknown = || Finding::unknown("not a nonce of this scope and audience, or one from long ago");
        let Some(key) = self.find(&question.audience, &question.nonce)? else { return Ok(unknown()) };
        let now = self.stores.now()?;
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(unknown()) };
        let valid_until = Timestamp::from_stored(codec::decode::<Nonce>(&record.value)?.valid_until)?;
        let finding = match judge(&self.stores, Some(&record), now)?.0 {
            NonceOutcome::Accepted { .. } => Finding::new(RecordState::Live, "it was not accepted yet"),
            NonceOutcome::Used => Finding::new(RecordState::Used, "it was accepted"),
            NonceOutcome::Expired => Finding::new(RecordState::Expired, "it was not used in its time"),
            NonceOutcome::Unknown => unknown(),
        };
        Ok(finding.until(valid_until))
    }
}

impl Nonces {
    /// Maximum length of an audience, in bytes.
    pub const MAX_AUDIENCE_BYTES: usize = 1_024;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Issues a nonce for an audience.
    pub async fn issue(&self, request: NonceRequest) -> Result<IssuedNonce> {
        let NonceRequest { audience, ttl, mode, profile } = request;
        check_length("audience", &audience, Self::MAX_AUDIENCE_BYTES)?;
        let now = self.stores.now()?;
        let asked = (ttl, profile.is_some());
        let profile = self.stores.profile_or_default(profile.as_deref())?;
        let ttl = self.stores.ttl_of_profile(Kind::Nonce, &self.scope, asked, profile.nonce)?;
        if mode == NonceMode::Stateless {
            let expires_at = now.end(ttl)?;
            let keyring = self.stores.keyring();
            let nonce = Stateless::derive(&self.source(&keyring, &audience), expires_at, self.stores.rng());
            return Ok(IssuedNonce { nonce: nonce.to_secret(), expires_at });
        }
        let expires_at = now.end(ttl)?;
        let (nonce, digest) = token::mint(token::NONCE, &[audience.as_bytes()], self.stores.rng());
        let value = Nonce { valid_until: expires_at.as_millis(), used: false };
        let retained = ttl.duration().max(LEAST_RETENTION);
        let record = self.stores.record(codec::encode(&value), expires_at.checked_add(retained)?);
        // The key is the digest of 32 random bytes: no record is overwritten.
        let _ = self.stores.backend().put(self.key(&digest)?, record, now).await?;
        Ok(IssuedNonce { nonce, expires_at })
    }

    /// Checks a nonce without consuming it.
    pub async fn check(&self, check: &NonceCheck) -> Result<NonceOutcome> {
        if let Some(nonce) = self.stateless(check)? {
            let now = self.stores.now()?;
            let used = self.stores.backend().get(&self.stateless_key(&nonce)?, now).await?;
            return judge_stateless(&nonce, used.as_ref(), now);
        }
        let Some(key) = self.find(&check.audience, &check.nonce)? else { return Ok(NonceOutcome::Unknown) };
        let now = self.stores.now()?;
        let standing = self.stores.backend().get(&key, now).await?;
        Ok(judge(&self.stores, standing.as_ref(), now)?.0)
    }

    /// Accepts a nonce once. Of any number of callers with one nonce, exactly one is answered `Accepted`.
    pub async fn accept(&self, check: &NonceCheck) -> Result<NonceOutcome> {
        if let Some(nonce) = self.stateless(check)? {
            return self.accept_stateless(&nonce).await;
        }
        let Some(key) = self.find(&check.audience, &check.nonce)? else { return Ok(NonceOutcome::Unknown) };
        let update = self.stores.update(&key, |record, now| {
            let (answer, nonce) = judge(&self.stores, record.as_ref(), now)?;
            let (Some(record), Some(nonce)) = (record, nonce) else { return Ok(Step::answer(answer)) };
            let used = codec::encode(&Nonce { used: true, ..nonce });
            let used = self.stores.record(used, record.expires_at);
            let write = Write::Replace { key: key.clone(), expected: record.version, record: used };
            Ok(Step::write(vec![write], answer))
        });
        update.await
    }

    /// Reads a stateless nonce of the scope and audience. `Unavailable` if it was derived with a key that only other nodes
    /// have.
    fn stateless(&self, check: &NonceCheck) -> Result<Option<Stateless>> {
        let Some(key) = Stateless::key_of(&check.nonce) else { return Ok(None) };
        let keyring = self.stores.shared_keyring().for_token(key)?;
        Ok(Stateless::read(&self.source(&keyring, &check.audience), &check.nonce))
    }

    fn source<'a>(&'a self, keyring: &'a Keyring, audience: &'a str) -> NonceSource<'a> {
        NonceSource { keyring, scope: &self.scope, audience, fence: self.stores.fence() }
    }

    /// Accepts a stateless nonce once, by inserting the record that it was used.
    async fn accept_stateless(&self, nonce: &Stateless) -> Result<NonceOutcome> {
        let now = self.stores.now()?;
        let fresh = judge_stateless(nonce, None, now)?;
        if !matches!(fresh, NonceOutcome::Accepted { .. }) {
            return Ok(fresh);
        }
        let used = Nonce { valid_until: nonce.valid_until.as_millis(), used: true };
        let record = self.stores.record(codec::encode(&used), nonce.valid_until);
        let commit = self.stores.backend().insert(self.stateless_key(nonce)?, record, now).await?;
        Ok(if commit.is_applied() { fresh } else { NonceOutcome::Used })
    }

    fn stateless_key(&self, nonce: &Stateless) -> Result<Key> {
        self.key(&Digest::of("stateless nonce", &[&nonce.bytes]))
    }

    fn find(&self, audience: &str, nonce: &Secret) -> Result<Option<Key>> {
        let digest = token::read(token::NONCE, &[audience.as_bytes()], nonce);
        digest.map(|digest| self.key(&digest)).transpose()
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::Nonce, &self.scope, &[digest.part()], &[])
    }
}

/// Answer to a stateless nonce, and the record that it was used, if there is one.
fn judge_stateless(nonce: &Stateless, used: Option<&Record>, now: Now) -> Result<NonceOutcome> {
    let expires_at = nonce.valid_until;
    Ok(if !now.before(expires_at)? {
        NonceOutcome::Expired
    } else if used.is_some() {
        NonceOutcome::Used
    } else if nonce.is_fenced {
        RefusalCause::Fence.note();
        NonceOutcome::Used
    } else {
        NonceOutcome::Accepted { expires_at }
    })
}

/// Answer to a record, and its nonce if that is valid.
fn judge(stores: &Stores, standing: Option<&Record>, now: Now) -> Result<(NonceOutcome, Option<Nonce>)> {
    let Some(record) = standing else { return Ok((NonceOutcome::Unknown, None)) };
    let nonce: Nonce = codec::decode(&record.value)?;
    let expires_at = Timestamp::from_stored(nonce.valid_until)?;
    Ok(if nonce.used {
        stores.note_fence(expires_at, stores.profile().nonce);
        (NonceOutcome::Used, None)
    } else if !now.before(expires_at)? {
        (NonceOutcome::Expired, None)
    } else {
        (NonceOutcome::Accepted { expires_at }, Some(nonce))
    })
}
