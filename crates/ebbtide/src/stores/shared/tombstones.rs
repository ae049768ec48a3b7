//! Tombstones: owners and clients that are being deleted, or were a moment ago.
//!
//! While a deletion goes on, its tombstone has no end: nothing new is written for the owner or client, and nothing that
//! is left is honoured. What makes a record checks in the same commit that there is none, and what honours one looks
//! for it. When the deletion has come to its end the name is free again, but the tombstone rests for [`REST`] and
//! knows when that was: what is listed nowhere, such as a code, and was made before, brings nobody back.

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};
use crate::stores::Stores;

/// For how long a tombstone rests after its deletion has ended: at least as long as any code can be redeemed.
pub const KEPT: Duration = Duration::from_secs(3600);

/// Who can be deleted with all that is theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal<'a> {
    /// An owner: a subject, an identity, whoever has attributes.
    Owner(&'a str),
    /// A client.
    Client(&'a str),
}

impl Principal<'_> {
    /// Names may be longer than a key takes, so that their digest is the partition.
    pub fn tombstone(self, scope: &Scope) -> Result<Key> {
        let (purpose, name) = match self {
            Self::Owner(owner) => ("owner", owner),
            Self::Client(client_id) => ("client", client_id),
        };
        Key::new(Kind::Owner, scope, &[Digest::of(purpose, &[name.as_bytes()]).part()], &[])
    }

    /// Write of the tombstone with which a deletion begins. It has no end.
    pub(crate) fn begin_tombstone(self, stores: &Stores, scope: &Scope) -> Result<Write> {
        Ok(Write::Put { key: self.tombstone(scope)?, record: stores.record("", Timestamp::NEVER) })
    }

    /// Write of the tombstone with which a deletion ends. It keeps the time of the end for [`KEPT`].
    pub(crate) fn end_tombstone(self, stores: &Stores, scope: &Scope, now: Timestamp) -> Result<Write> {
        let record = stores.record(now.as_millis().to_be_bytes().to_vec(), now.checked_add(KEPT)?);
        Ok(Write::Put { key: self.tombstone(scope)?, record })
    }
}

/// What became of a commit that is for the living alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only an applied commit has written something"]
pub(crate) enum Outcome {
    Applied,
    /// One of its own conditions did not hold.
    Refused {
        index: usize,
    },
    /// It is for someone who is being deleted, or was deleted since.
    OwnerDeleted,
}

impl Outcome {
    /// As a commit; that it was for the dead is invalid.
    pub(crate) fn unless_deleted(self) -> Result<Commit> {
        match self {
            Self::Applied => Ok(Commit::Applied),
            Self::Refused { index } => Ok(Commit::Refused { index }),
            Self::OwnerDeleted => Err(owner_is_deleted()),
        }
    }
}

pub(crate) fn owner_is_deleted() -> Error {
    Error::invalid("owner or client is being deleted; no new records are accepted")
}

impl Stores {
    /// Commits `writes` if none of `whom` is being deleted, in one step.
    pub(crate) async fn commit_for(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        writes: Vec<Write>,
        now: Timestamp,
    ) -> Result<Outcome> {
        self.commit_since(scope, whom, None, writes, now).await
    }

    /// Commits `writes` if none of `whom` is being deleted, or was deleted since `made_at`: when that was made which they
    /// go back to.
    pub(crate) async fn commit_since(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        made_at: Option<Timestamp>,
        writes: Vec<Write>,
        now: Timestamp,
    ) -> Result<Outcome> {
        self.commit_unless(tombstones(scope, whom)?, made_at, writes, now).await
    }

    /// Commits `writes` unless one of the tombstones at `keys` forbids it.
    pub(crate) async fn commit_unless(
        &self,
        keys: Vec<Key>,
        made_at: Option<Timestamp>,
        writes: Vec<Write>,
        now: Timestamp,
    ) -> Result<Outcome> {
        if keys.is_empty() {
            return Ok(match self.backend().commit(Batch::new(writes)?, now).await? {
                Commit::Applied => Outcome::Applied,
                Commit::Refused { index } => Outcome::Refused { index },
            });
        }
        let absent: Vec<_> = keys.iter().map(|key| Write::Absent { key: key.clone() }).collect();
        match self.commit_all(&writes, absent, now).await? {
            Outcome::OwnerDeleted => {}
            outcome => return Ok(outcome),
        }
        // A tombstone that rests is in nobody's way who came after it. That it is still the same is checked.
        let found = try_join_all(keys.iter().map(|key| self.backend().get(key, now))).await?;
        let mut still = Vec::with_capacity(keys.len());
        for (key, tombstone) in keys.into_iter().zip(found) {
            still.push(match tombstone {
                None => Write::Absent { key },
                Some(tombstone) if ends_for(&tombstone, made_at)? => return Ok(Outcome::OwnerDeleted),
                Some(tombstone) => Write::Check { key, expected: tombstone.version },
            });
        }
        self.commit_all(&writes, still, now).await
    }

    async fn commit_all(&self, writes: &[Write], conditions: Vec<Write>, now: Timestamp) -> Result<Outcome> {
        let own = writes.len();
        let batch = Batch::new(writes.iter().cloned().chain(conditions).collect())?;
        Ok(match self.backend().commit(batch, now).await? {
            Commit::Applied => Outcome::Applied,
            Commit::Refused { index } if index < own => Outcome::Refused { index },
            Commit::Refused { .. } => Outcome::OwnerDeleted,
        })
    }

    /// Whether one of `whom` is being deleted. The reads are made at once.
    pub async fn is_deleted(&self, scope: &Scope, whom: &[Principal<'_>], now: Timestamp) -> Result<bool> {
        self.is_deleted_since(scope, whom, None, now).await
    }

    /// Whether one of `whom` is being deleted, or was deleted since `made_at`. The reads are made at once.
    pub async fn is_deleted_since(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        made_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<bool> {
        let keys = tombstones(scope, whom)?;
        let found = try_join_all(keys.iter().map(|key| self.backend().get(key, now))).await?;
        for tombstone in found.iter().flatten() {
            if ends_for(tombstone, made_at)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a tombstone is in the way of what was made at `made_at`: any, while the deletion goes on; afterwards only what
/// was made no later than its end.
fn ends_for(tombstone: &Record, made_at: Option<Timestamp>) -> Result<bool> {
    if tombstone.expires_at.is_never() {
        return Ok(true);
    }
    let ended_at = tombstone.value.as_ref().try_into().map(u64::from_be_bytes);
    let ended_at =
        ended_at.map_err(|_| Error::corrupt("a tombstone does not say when its deletion ended"))?;
    Ok(made_at.is_some_and(|made_at| made_at.as_millis() <= ended_at))
}

/// Where their tombstones are, each once.
pub(crate) fn tombstones(scope: &Scope, whom: &[Principal<'_>]) -> Result<Vec<Key>> {
    let mut keys = whom.iter().map(|principal| principal.tombstone(scope)).collect::<Result<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
