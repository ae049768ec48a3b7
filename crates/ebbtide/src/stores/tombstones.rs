//! Tombstones: owners and clients that are being deleted, or were a moment ago.
//!
//! While a tombstone stands, nothing new is written for its owner or client, and nothing that is left is honoured:
//! what makes a record checks in the same commit that there is none, and what honours one looks for it. It has no end
//! until the deletion has come to its own; then it rests for [`REST`], so that what is listed nowhere and ends soon,
//! such as a code, brings nobody back.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::Stores;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::kind::Kind;
use crate::record::Record;
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::write::{Batch, Commit, Write};

/// For how long a tombstone stands after its deletion has ended: at least as long as any code can be redeemed.
pub const REST: Duration = Duration::from_secs(3600);

/// Who can be deleted with all that is theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mortal<'a> {
    /// An owner: a subject, an identity, whoever has attributes.
    Owner(&'a str),
    /// A client.
    Client(&'a str),
}

impl Mortal<'_> {
    /// Names may be longer than a key takes, so that their digest is the partition.
    pub(crate) fn tombstone(self, scope: &Scope) -> Result<Key> {
        let (purpose, name) = match self {
            Self::Owner(owner) => ("owner", owner),
            Self::Client(client_id) => ("client", client_id),
        };
        Key::new(Kind::Owner, scope, &[Digest::of(purpose, &[name.as_bytes()]).part()], &[])
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
    /// It is for someone who is being deleted, or was a moment ago.
    Buried,
}

impl Outcome {
    /// As a commit; that it was for the dead is invalid.
    pub(crate) fn for_the_living(self) -> Result<Commit> {
        match self {
            Self::Applied => Ok(Commit::Applied),
            Self::Refused { index } => Ok(Commit::Refused { index }),
            Self::Buried => Err(Error::invalid(
                "whose this would be was deleted, or is being deleted: nothing new is written for them",
            )),
        }
    }
}

impl Stores {
    /// Commits `writes` if none of `whom` is being deleted, in one step.
    pub(crate) async fn commit_for(
        &self,
        scope: &Scope,
        whom: &[Mortal<'_>],
        mut writes: Vec<Write>,
        now: Timestamp,
    ) -> Result<Outcome> {
        let own = writes.len();
        for key in tombstones(scope, whom)? {
            writes.push(Write::Absent { key });
        }
        Ok(match self.backend().commit(Batch::new(writes)?, now).await? {
            Commit::Applied => Outcome::Applied,
            Commit::Refused { index } if index < own => Outcome::Refused { index },
            Commit::Refused { .. } => Outcome::Buried,
        })
    }

    /// Whether one of `whom` is being deleted, or was a moment ago. The reads are made at once.
    pub(crate) async fn is_buried(&self, scope: &Scope, whom: &[Mortal<'_>], now: Timestamp) -> Result<bool> {
        let keys = tombstones(scope, whom)?;
        let found = try_join_all(keys.iter().map(|key| self.backend().get(key, now))).await?;
        Ok(found.iter().any(Option::is_some))
    }

    /// The tombstone of a deletion that goes on.
    pub(crate) fn standing_tombstone(&self) -> Record {
        self.record("", Timestamp::NEVER)
    }

    /// The tombstone of a deletion that ends now.
    pub(crate) fn resting_tombstone(&self, now: Timestamp) -> Result<Record> {
        Ok(self.record("", now.checked_add(REST)?))
    }
}

/// Where their tombstones are, each once.
fn tombstones(scope: &Scope, whom: &[Mortal<'_>]) -> Result<Vec<Key>> {
    let mut keys = whom.iter().map(|mortal| mortal.tombstone(scope)).collect::<Result<Vec<_>>>()?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
