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

use super::registry::{Store, question};
use super::shared::finding::{Finding, RecordState};
use super::shared::setters::setters;
use super::{Stores, check_length, check_optional};
use crate::model::digest::Digest;
use crate::model::error::Result;
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
    /// Time for which the proof is refused after this check; 60 seconds by default.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Time for which the proof is refused after its TTL.
    #[serde(skip)]
    pub hold: Duration,
}

impl Proof {
    /// Maximum length of an identifier, in bytes.
    pub const MAX_JTI_BYTES: usize = 256;

    /// Maximum length of a namespace and of a key thumbprint, in bytes.
    pub const MAX_NAME_BYTES: usize = 256;

    /// Creates a proof that is bound to no key.
    pub fn new(namespace: impl Into<String>, jti: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), jti: jti.into(), jkt: None, ttl: None, hold: Duration::ZERO }
    }

    setters!(jkt: String, ttl: Ttl);

    /// Keeps refusing the proof for that long after its TTL.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    fn digest(&self) -> Result<Digest> {
        check_length("namespace", &self.namespace, Self::MAX_NAME_BYTES)?;
        check_length("jti", &self.jti, Self::MAX_JTI_BYTES)?;
        check_optional("key thumbprint", self.jkt.as_deref(), Self::MAX_NAME_BYTES)?;
        let mut parts = vec![self.namespace.as_bytes(), self.jti.as_bytes()];
        parts.extend(self.jkt.as_deref().map(str::as_bytes));
        Ok(Digest::of("replay", &parts))
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
}

question! {
    /// Proof to explain.
    ReplayQuestion {
        namespace: String,
        jti: String,
        jkt: Option<String>,
    }
}

impl Store for Replays {
    const KINDS: &'static [Kind] = &[Kind::Replay];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(60));
    type Question = ReplayQuestion;

    async fn explain(&self, question: &ReplayQuestion) -> Result<Finding> {
        let mut proof = Proof::new(&*question.namespace, &*question.jti);
        proof.jkt.clone_from(&question.jkt);
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
        if self.seen_in_doubt(&key, now).await? {
            return Ok(ReplayOutcome::Replay);
        }
        let expires_at = self.end(proof, now)?;
        let record = self.stores.record("", expires_at);
        let commit = self.stores.backend().insert(key, record, now).await?;
        Ok(if commit.is_applied() { ReplayOutcome::Fresh { expires_at } } else { ReplayOutcome::Replay })
    }

    /// Checks each proof, and records those that are fresh. A proof that occurs twice is fresh at most once. After an
    /// error, some may have been recorded.
    pub async fn check_batch(&self, proofs: &[Proof]) -> Result<Vec<ReplayOutcome>> {
        let now = self.stores.now()?;
        let keys = proofs.iter().map(|proof| self.key(proof)).collect::<Result<Vec<_>>>()?;
        let mut met = HashSet::with_capacity(keys.len());
        let mut ends = Vec::with_capacity(keys.len());
        let mut inserts = Vec::with_capacity(keys.len());
        for (key, proof) in keys.iter().zip(proofs) {
            let seen = !met.insert(key) || self.seen_in_doubt(key, now).await?;
            let end = (!seen).then(|| self.end(proof, now)).transpose()?;
            if let Some(end) = end {
                let record = self.stores.record("", end);
                inserts.push(Batch::try_from(Write::Insert { key: key.clone(), record })?);
            }
            ends.push(end);
        }
        let mut commits = self.stores.backend().commit_each(inserts, now).await?.into_iter();
        let mut outcomes = Vec::with_capacity(ends.len());
        for end in ends {
            let commit = end.and_then(|_| commits.next()).map(TimedCommit::into_commit).transpose()?;
            outcomes.push(match (end, commit) {
                (Some(expires_at), Some(Commit::Applied)) => ReplayOutcome::Fresh { expires_at },
                _ => ReplayOutcome::Replay,
            });
        }
        Ok(outcomes)
    }

    /// True if the proof is known to have been seen while the clock is in doubt: nothing new can be recorded then, but
    /// what was recorded still blocks.
    async fn seen_in_doubt(&self, key: &Key, now: Now) -> Result<bool> {
        Ok(!now.is_confirmed() && self.stores.backend().get(key, now).await?.is_some())
    }

    /// End of the time for which a proof that is fresh at `now` is refused.
    fn end(&self, proof: &Proof, now: Now) -> Result<Timestamp> {
        let ttl = self.stores.ttl(Kind::Replay, &self.scope, proof.ttl, self.stores.profile().replay)?;
        now.end(ttl)?.checked_add(proof.hold)
    }

    fn key(&self, proof: &Proof) -> Result<Key> {
        Key::new(Kind::Replay, &self.scope, &[proof.digest()?.part()], &[])
    }
}
