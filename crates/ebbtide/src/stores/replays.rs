//! Replays: proofs and assertions that were seen, and must not be accepted again (RFC 9449 §11.1).

use std::collections::HashSet;
use std::time::Duration;

use super::registry::{Store, question};
use super::shared::finding::{Finding, RecordState};
use super::{Stores, check_length};
use crate::backend::BackendExt;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Commit, Write};

/// The replay store of one scope.
#[derive(Debug, Clone)]
pub struct Replays {
    stores: Stores,
    scope: Scope,
}

/// What is checked: an identifier within a namespace, bound to a key where there is one.
#[derive(Debug, Clone)]
pub struct Proof {
    namespace: String,
    jti: String,
    thumbprint: Option<String>,
    ttl: Option<Ttl>,
    hold: Duration,
}

impl Proof {
    /// The longest identifier, in bytes.
    pub const MAX_JTI_BYTES: usize = 256;

    /// The longest namespace and key thumbprint, in bytes.
    pub const MAX_NAME_BYTES: usize = 256;

    /// An identifier within a namespace; empty or too long is invalid.
    pub fn new(namespace: impl Into<String>, jti: impl Into<String>) -> Result<Self> {
        let (namespace, jti) = (namespace.into(), jti.into());
        check_length("namespace", &namespace, Self::MAX_NAME_BYTES)?;
        check_length("jti", &jti, Self::MAX_JTI_BYTES)?;
        Ok(Self { namespace, jti, thumbprint: None, ttl: None, hold: Duration::ZERO })
    }

    /// Binds it to the key with this thumbprint.
    pub fn with_thumbprint(mut self, thumbprint: impl Into<String>) -> Result<Self> {
        let thumbprint = thumbprint.into();
        check_length("key thumbprint", &thumbprint, Self::MAX_NAME_BYTES)?;
        self.thumbprint = Some(thumbprint);
        Ok(self)
    }

    /// Remembers it for that long instead of 60 seconds: the time for which the proof itself is acceptable.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Goes on refusing it for that long after the TTL.
    #[must_use]
    pub fn with_hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }
}

/// The answer to a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a replay must be refused"]
pub enum ReplayOutcome {
    /// It was not seen before, and is recorded now.
    Fresh {
        /// Until when it will be refused.
        expires_at: Timestamp,
    },
    /// It was seen before.
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
        let proof = Proof::new(&*question.namespace, &*question.jti)?;
        let proof = match &question.jkt {
            Some(jkt) => proof.with_thumbprint(jkt)?,
            None => proof,
        };
        let record = self.stores.backend().get(&self.key(&proof)?, self.stores.now()).await?;
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

    /// Records the proof if it is not recorded yet, in one step. Of any number of callers with one proof, exactly
    /// one is answered `Fresh`.
    pub async fn check_and_record(&self, proof: &Proof) -> Result<ReplayOutcome> {
        let now = self.stores.now();
        let expires_at = self.end(proof, now)?;
        let record = self.stores.record("", expires_at);
        let commit = self.stores.backend().insert(self.key(proof)?, record, now).await?;
        Ok(if commit.is_applied() { ReplayOutcome::Fresh { expires_at } } else { ReplayOutcome::Replay })
    }

    /// Checks each of the proofs, which may be many, and records those that are fresh. A proof that comes twice is
    /// fresh at most once. An error means that some may have been recorded.
    pub async fn check_and_record_batch(&self, proofs: &[Proof]) -> Result<Vec<ReplayOutcome>> {
        let now = self.stores.now();
        let keys = proofs.iter().map(|proof| self.key(proof)).collect::<Result<Vec<_>>>()?;
        let mut met = HashSet::with_capacity(keys.len());
        let mut ends = Vec::with_capacity(keys.len());
        let mut inserts = Vec::with_capacity(keys.len());
        for (key, proof) in keys.iter().zip(proofs) {
            let end = met.insert(key).then(|| self.end(proof, now)).transpose()?;
            if let Some(end) = end {
                let record = self.stores.record("", end);
                inserts.push(Batch::try_from(Write::Insert { key: key.clone(), record })?);
            }
            ends.push(end);
        }
        let mut commits = self.stores.backend().commit_each(inserts, now).await?.into_iter();
        let seen = |end| match end {
            Some(expires_at) if commits.next().is_some_and(Commit::is_applied) => {
                ReplayOutcome::Fresh { expires_at }
            }
            _ => ReplayOutcome::Replay,
        };
        Ok(ends.into_iter().map(seen).collect())
    }

    /// Until when a proof that is fresh now will be refused.
    fn end(&self, proof: &Proof, now: Timestamp) -> Result<Timestamp> {
        let ttl = self.stores.ttl(Kind::Replay, &self.scope, proof.ttl, self.stores.profile().replay)?;
        ttl.expires_at(now)?.checked_add(proof.hold)
    }

    fn key(&self, proof: &Proof) -> Result<Key> {
        let digest = match &proof.thumbprint {
            None => Digest::of("replay", &[proof.namespace.as_bytes(), proof.jti.as_bytes()]),
            Some(thumbprint) => {
                let parts = [proof.namespace.as_bytes(), proof.jti.as_bytes(), thumbprint.as_bytes()];
                Digest::of("replay", &parts)
            }
        };
        Key::new(Kind::Replay, &self.scope, &[digest.part()], &[])
    }
}
