//! Principals, and the tombstones of those that are being deleted.
//!
//! The record of a principal holds its epoch. During a deletion it is the tombstone: no new record is
//! accepted for the owner or client, and existing ones are not honoured. A write of a record checks in the same commit
//! that there is no tombstone, and a read looks for one. After the deletion the name is free again, and its epoch is
//! raised, so that a record that is in no index, such as a code, is still refused.

use futures_util::future::try_join_all;

use super::epochs::Epoch;
use super::refusal::RefusalCause;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::write::{Batch, Commit, Write};
use crate::stores::Stores;
use crate::timekeeping::Now;

/// Principal that can be deleted with all their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal<'a> {
    /// Owner: a subject, an identity, or anyone who has attributes.
    Owner(&'a str),
    /// Client.
    Client(&'a str),
    /// Session, by its `sid`.
    Session(&'a str),
}

impl Principal<'_> {
    /// Key of the tombstone. A name may be longer than a key allows, so the partition is its digest.
    pub fn tombstone(self, scope: &Scope) -> Result<Key> {
        let (purpose, name) = match self {
            Self::Owner(owner) => ("owner", owner),
            Self::Client(client_id) => ("client", client_id),
            Self::Session(sid) => ("session", sid),
        };
        Key::new(Kind::Owner, scope, &[Digest::of(purpose, &[name.as_bytes()]).part()], &[])
    }
}

/// Result of a commit that requires that no principal is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only an applied commit has written something"]
pub(crate) enum Outcome {
    Applied,
    /// One of its own conditions did not hold.
    Refused {
        index: usize,
    },
    /// A principal is being deleted, or was deleted since.
    OwnerDeleted,
}

impl Outcome {
    /// Converts to a commit. Returns `Invalid` if a principal is being deleted.
    pub(crate) fn unless_deleted(self) -> Result<Commit> {
        match self {
            Self::Applied => Ok(Commit::Applied),
            Self::Refused { index } => Ok(Commit::Refused { index }),
            Self::OwnerDeleted => Err(owner_is_deleted()),
        }
    }
}

pub(crate) fn owner_is_deleted() -> Error {
    RefusalCause::Deleted.note();
    Error::invalid("owner or client is being deleted; no new records are accepted")
}

impl Stores {
    /// Commits `writes` if none of `whom` is being deleted, in one step.
    pub(crate) async fn commit_for(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        writes: Vec<Write>,
        now: Now,
    ) -> Result<Outcome> {
        self.commit_unless(tombstones(scope, whom)?, writes, now).await
    }

    /// Commits `writes` unless one of the tombstones at `keys` forbids it.
    pub(crate) async fn commit_unless(
        &self,
        keys: Vec<Key>,
        writes: Vec<Write>,
        now: Now,
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
        // An epoch alone does not affect new records. The commit checks that it is unchanged.
        let found = try_join_all(keys.iter().map(|key| self.backend().get(key, now))).await?;
        let mut still = Vec::with_capacity(keys.len());
        for (key, tombstone) in keys.into_iter().zip(found) {
            still.push(match tombstone {
                None => Write::Absent { key },
                Some(tombstone) if Epoch::read(&tombstone)?.deleting => return Ok(Outcome::OwnerDeleted),
                Some(tombstone) => Write::Check { key, expected: tombstone.version },
            });
        }
        self.commit_all(&writes, still, now).await
    }

    async fn commit_all(&self, writes: &[Write], conditions: Vec<Write>, now: Now) -> Result<Outcome> {
        let own = writes.len();
        let batch = Batch::new(writes.iter().cloned().chain(conditions).collect())?;
        Ok(match self.backend().commit(batch, now).await? {
            Commit::Applied => Outcome::Applied,
            Commit::Refused { index } if index < own => Outcome::Refused { index },
            Commit::Refused { .. } => Outcome::OwnerDeleted,
        })
    }

    /// Returns whether one of `whom` is being deleted. The reads are concurrent.
    pub async fn is_deleted(&self, scope: &Scope, whom: &[Principal<'_>], now: Now) -> Result<bool> {
        let keys = tombstones(scope, whom)?;
        let found = try_join_all(keys.iter().map(|key| self.backend().get(key, now))).await?;
        for tombstone in found.iter().flatten() {
            if Epoch::read(tombstone)?.deleting {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Keys of their tombstones, without duplicates.
pub(crate) fn tombstones(scope: &Scope, whom: &[Principal<'_>]) -> Result<Vec<Key>> {
    let mut keys = whom.iter().map(|principal| principal.tombstone(scope)).collect::<Result<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
