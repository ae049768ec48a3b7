//! Replay detection: a proof or assertion is accepted once (RFC 9449 §11.1).
//!
//! ```
//! use ebbtide::Ebbtide;
//! use ebbtide::stores::replays::{Proof, ReplayOutcome};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! let proof = Proof::new("dpop", "jti-1").jkt("0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I");
//! assert!(matches!(acme.replays().check(&proof).await?, ReplayOutcome::Fresh { .. }));
//! assert_eq!(acme.replays().check(&proof).await?, ReplayOutcome::Replay);
//! # Ok(())
//! # }
//! ```

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;

use super::profile::Profile;
use super::registry::{Store, question};
use super::shared::finding::{Finding, RecordState};
use super::shared::refusal::RefusalCause;
use super::shared::setters::setters;
use super::{Stores, check_length, check_optional};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Commit, Write};
use crate::timekeeping::{Now, TimedCommit};

/// Replay store of one scope.
#[derive(Debug, Clone)]
pub struct Replays {
    stores: Stores,
    scope: Scope,
}

/// Proof to be checked: an identifier within a namespace, and the key that it is bound to, if any.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Proof {
    /// Namespace of the identifier, such as `dpop`.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256, example = "dpop"))]
    pub namespace: String,
    /// Identifier of the proof.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256, example = "n-0S6"))]
    pub jti: String,
    /// Thumbprint of the key that the proof is bound to.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 256))]
    pub jkt: Option<String>,
    /// Time for which the proof is refused after this check; 300 seconds by default, and at least the default lifetime
    /// of a nonce.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Time for which the proof is refused after its end.
    #[serde(rename = "hold_seconds", default, deserialize_with = "whole_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 0))]
    pub hold: Duration,
    /// End of the proof, in milliseconds since 1970, instead of a TTL. A proof that has ended is never fresh.
    pub expires_at: Option<u64>,
    /// `iat` of the proof, in seconds since 1970, instead of a TTL: the proof ends `window_seconds` after it.
    pub iat: Option<u64>,
    /// Time for which a proof is accepted after its `iat`; the default of a TTL without one.
    #[serde(rename = "window_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub window: Option<Ttl>,
    /// HTTP method of the request that the proof is for.
    #[cfg_attr(feature = "schema", schema(example = "POST"))]
    pub htm: Option<String>,
    /// URI of the request that the proof is for, of any length: a proof is seen once for each.
    #[cfg_attr(feature = "schema", schema(example = "https://api.example/v1/orders"))]
    pub htu: Option<String>,
    /// Profile whose lifetime is used: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "oauth"))]
    pub profile: Option<String>,
}

fn whole_seconds<'de, D: serde::Deserializer<'de>>(member: D) -> Result<Duration, D::Error> {
    Ok(Duration::from_secs(Option::<u32>::deserialize(member)?.unwrap_or_default().into()))
}

impl Proof {
    /// Maximum length of an identifier, in bytes.
    pub const MAX_JTI_BYTES: usize = 256;

    /// Maximum length of a namespace and of a key thumbprint, in bytes.
    pub const MAX_NAME_BYTES: usize = 256;

    /// Creates a proof that is bound to no key.
    pub fn new(namespace: impl Into<String>, jti: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            jti: jti.into(),
            jkt: None,
            ttl: None,
            hold: Duration::ZERO,
            expires_at: None,
            iat: None,
            window: None,
            htm: None,
            htu: None,
            profile: None,
        }
    }

    setters!(jkt: String, ttl: Ttl, expires_at: u64, iat: u64, window: Ttl, htm: String, htu: String, profile: String);

    /// Keeps refusing the proof for that long after its TTL.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    fn digest(&self) -> Result<Digest> {
        check_length("namespace", &self.namespace, Self::MAX_NAME_BYTES)?;
        check_length("jti", &self.jti, Self::MAX_JTI_BYTES)?;
        check_optional("jkt", self.jkt.as_deref(), Self::MAX_NAME_BYTES)?;
        let mut parts = vec![self.namespace.as_bytes(), self.jti.as_bytes()];
        if self.htm.is_none() && self.htu.is_none() {
            parts.extend(self.jkt.as_deref().map(str::as_bytes));
            return Ok(Digest::of("replay", &parts));
        }
        for part in [&self.jkt, &self.htm, &self.htu] {
            parts.push(if part.is_some() { b"+" } else { b"-" });
            parts.push(part.as_deref().unwrap_or_default().as_bytes());
        }
        Ok(Digest::of("replay of a request", &parts))
    }
}

/// Answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a replay must be refused"]
#[non_exhaustive]
pub enum ReplayOutcome {
    /// The proof is new, and is recorded now.
    Fresh {
        /// Time until which the proof is refused.
        expires_at: Timestamp,
    },
    /// The proof was seen before.
    Replay,
    /// The proof has ended: it is not fresh, seen before or not. Nothing is recorded.
    Expired,
}

question! {
    /// Proof to explain.
    ReplayQuestion {
        namespace: String,
        jti: String,
        jkt: Option<String>,
        htm: Option<String>,
        htu: Option<String>,
    }
}

impl Store for Replays {
    const KINDS: &'static [Kind] = &[Kind::Replay];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(300));
    type Question = ReplayQuestion;

    async fn explain(&self, question: &ReplayQuestion) -> Result<Finding> {
        let mut proof = Proof::new(&*question.namespace, &*question.jti);
        proof.jkt.clone_from(&question.jkt);
        proof.htm.clone_from(&question.htm);
        proof.htu.clone_from(&question.htu);
        let record = self.stores.backend().get(&self.key(&proof)?, self.stores.now()?).await?;
        Ok(match record {
            Some(record) => Finding::new(RecordState::Live, "it was seen, and is refused until its end")
                .until(record.expires_at),
            None => Finding::unknown("it was not seen, or long enough ago to be fresh again"),
        })
    }
}

impl Replays {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Records a proof unless it is recorded, in one atomic step. Of any number of callers with one proof, exactly
    /// one is answered `Fresh`.
    pub async fn check(&self, proof: &Proof) -> Result<ReplayOutcome> {
        let (now, key) = (self.stores.now()?, self.key(proof)?);
        self.check_fence(proof, now)?;
        if self.seen_in_doubt(&key, now).await? {
            return Ok(ReplayOutcome::Replay);
        }
        let Some(expires_at) = self.end(proof, now)? else { return Ok(ReplayOutcome::Expired) };
        let record = self.stores.record("", expires_at);
        let commit = self.stores.backend().insert(key, record, now).await?;
        Ok(if commit.is_applied() { ReplayOutcome::Fresh { expires_at } } else { ReplayOutcome::Replay })
    }

    /// Checks each proof, and records those that are fresh. A proof that occurs twice is fresh at most once. After an
    /// error, some may have been recorded.
    pub async fn check_batch(&self, proofs: &[Proof]) -> Result<Vec<ReplayOutcome>> {
        let now = self.stores.now()?;
        proofs.iter().try_for_each(|proof| self.check_fence(proof, now))?;
        let keys = proofs.iter().map(|proof| self.key(proof)).collect::<Result<Vec<_>>>()?;
        let mut met = HashSet::with_capacity(keys.len());
        let mut ends = Vec::with_capacity(keys.len());
        let mut inserts = Vec::with_capacity(keys.len());
        for (key, proof) in keys.iter().zip(proofs) {
            let seen = met.contains(key) || self.seen_in_doubt(key, now).await?;
            let end = if seen { None } else { Some(self.end(proof, now)?) };
            if let Some(Some(end)) = end {
                met.insert(key);
                let record = self.stores.record("", end);
                inserts.push(Batch::try_from(Write::Insert { key: key.clone(), record })?);
            }
            ends.push(end);
        }
        let mut commits = self.stores.backend().commit_each(inserts, now).await?.into_iter();
        let mut outcomes = Vec::with_capacity(ends.len());
        for end in ends {
            outcomes.push(match end {
                None => ReplayOutcome::Replay,
                Some(None) => ReplayOutcome::Expired,
                Some(Some(expires_at)) => match commits.next().map(TimedCommit::into_commit).transpose()? {
                    Some(Commit::Applied) => ReplayOutcome::Fresh { expires_at },
                    _ => ReplayOutcome::Replay,
                },
            });
        }
        Ok(outcomes)
    }

    /// `Unavailable` while a proof from before a restored backup may still be valid, unless this one was made after it.
    fn check_fence(&self, proof: &Proof, now: Now) -> Result<()> {
        let Some(fence) = self.stores.fence() else { return Ok(()) };
        let made = proof.iat.map(|iat| Timestamp::from_millis(iat.saturating_mul(1_000))).transpose()?;
        if made.is_some_and(|made| made > fence.at) || !now.before(fence.until)? {
            return Ok(());
        }
        RefusalCause::Fence.note();
        Err(Error::unavailable(
            "a backup was restored: a proof without an `iat` after that is refused until those from before have ended",
        ))
    }

    /// True if the proof is known to have been seen while the clock is in doubt: nothing new can be recorded then, but
    /// what was recorded still blocks.
    async fn seen_in_doubt(&self, key: &Key, now: Now) -> Result<bool> {
        Ok(!now.is_confirmed() && self.stores.backend().get(key, now).await?.is_some())
    }

    /// End of the time for which a proof that is fresh at `now` is refused; none if the proof itself has ended.
    fn end(&self, proof: &Proof, now: Now) -> Result<Option<Timestamp>> {
        let profile = self.stores.profile_or_default(proof.profile.as_deref())?;
        let retention = |given| self.retention(given, profile);
        let own_end = match (proof.ttl, proof.expires_at, proof.iat, proof.window) {
            (_, None, None, None) => None,
            (None, Some(expires_at), None, None) => Some(Timestamp::from_millis(expires_at)?),
            (None, None, Some(iat), window) => {
                let iat =
                    Timestamp::from_millis(iat.saturating_mul(1_000)).map_err(|error| error.about("iat"))?;
                Some(iat.checked_add(retention(window)?.duration())?)
            }
            _ => {
                return Err(Error::invalid(
                    "one of ttl_seconds, expires_at, or iat with window_seconds is given",
                )
                .about("ttl_seconds"));
            }
        };
        let end = match own_end {
            Some(end) if !now.before(end)? => return Ok(None),
            Some(end) if end.since(now.latest()) > Ttl::MAX.duration() => {
                return Err(
                    Error::invalid("the proof ends more than a hundred years from now").about("expires_at")
                );
            }
            Some(end) => {
                now.check_confirmed()?;
                end
            }
            None => now.end(retention(proof.ttl)?)?,
        };
        end.checked_add(proof.hold).map(Some)
    }

    /// Time for which a proof is refused, if the request gives that or none. By default a proof is not fresh again while
    /// its nonce is good, whatever a policy says of proofs.
    fn retention(&self, given: Option<Ttl>, profile: Profile) -> Result<Ttl> {
        let own = self.stores.ttl(Kind::Replay, &self.scope, given, profile.replay.max(profile.nonce))?;
        if given.is_some() {
            return Ok(own);
        }
        Ok(own.max(self.stores.ttl(Kind::Nonce, &self.scope, None, profile.nonce)?))
    }

    fn key(&self, proof: &Proof) -> Result<Key> {
        Key::new(Kind::Replay, &self.scope, &[proof.digest()?.part()], &[])
    }
}
