//! Tombstones of owners and clients that are being deleted, or were recently.
//!
//! During a deletion, its tombstone does not expire: no new record is accepted for the owner or client, and existing
//! ones are not honoured. A write of a record checks in the same commit that there is no tombstone, and a read looks
//! for one. After the deletion the name is free again. The tombstone then has the time of the end for [`KEPT`], so
//! that a record that is in no index, such as a code, and was written before, is still refused.

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
use crate::timekeeping::Now;

/// Time for which a tombstone is kept after its deletion: at least as long as any code can be redeemed.
pub const KEPT: Duration = Duration::from_secs(3600);

/// Principal that can be deleted with all their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal<'a> {
    /// Owner: a subject, an identity, or anyone who has attributes.
    Owner(&'a str),
    /// Client.
    Client(&'a str),
}

impl Principal<'_> {
    /// Key of the tombstone. A name may be longer than a key allows, so the partition is its digest.
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
    pub(crate) fn end_tombstone(self, stores: &Stores, scope: &Scope, now: Now) -> Result<Write> {
        let record = stores.record(now.latest().as_millis().to_be_bytes().to_vec(), now.end_after(KEPT)?);
        Ok(Write::Put { key: self.tombstone(scope)?, record })
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
        self.commit_since(scope, whom, None, writes, now).await
    }

    /// Commits `writes` if none of `whom` is being deleted, or was deleted since `made_at`: the time of the record
    /// that the writes follow from.
    pub(crate) async fn commit_since(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        made_at: Option<Timestamp>,
        writes: Vec<Write>,
        now: Now,
    ) -> Result<Outcome> {
        self.commit_unless(tombstones(scope, whom)?, made_at, writes, now).await
    }

    /// Commits `writes` unless one of the tombstones at `keys` forbids it.
    pub(crate) async fn commit_unless(
        &self,
        keys: Vec<Key>,
        made_at: Option<Timestamp>,
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
        // A tombstone of an ended deletion does not affect later records. The commit checks that it is unchanged.
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
        self.is_deleted_since(scope, whom, None, now).await
    }

    /// Returns whether one of `whom` is being deleted, or was deleted since `made_at`. The reads are concurrent.
    pub async fn is_deleted_since(
        &self,
        scope: &Scope,
        whom: &[Principal<'_>],
        made_at: Option<Timestamp>,
        now: Now,
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

/// Returns whether a tombstone forbids a record of `made_at`: any record during the deletion, afterwards those
/// written no later than its end.
fn ends_for(tombstone: &Record, made_at: Option<Timestamp>) -> Result<bool> {
    if tombstone.expires_at.is_never() {
        return Ok(true);
    }
    let ended_at = tombstone.value.as_ref().try_into().map(u64::from_be_bytes);
    let ended_at =
        ended_at.map_err(|_| Error::corrupt("a tombstone does not say when its deletion ended"))?;
    Ok(made_at.is_some_and(|made_at| made_at.as_millis() <= ended_at))
}

/// Keys of their tombstones, without duplicates.
pub(crate) fn tombstones(scope: &Scope, whom: &[Principal<'_>]) -> Result<Vec<Key>> {
    let mut keys = whom.iter().map(|principal| principal.tombstone(scope)).collect::<Result<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
