//! Deletion in steps of a bounded size: of an owner, a client or a scope.
//!
//! A deletion writes its tombstone, where it has one, and an audit entry before it removes anything. It then removes
//! records stage by stage, and ends with another audit entry. One that stopped or failed can be resumed by another
//! process: there is only less to delete, and the tombstone is in force until a deletion has ended.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;

use crate::backend::Cursor;
use crate::model::error::{ErrorKind, Result};
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::stores::Stores;
use crate::stores::audit::AuditContext;
use crate::stores::clients::ClientDeletion;

/// Records that a deletion removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Removed {
    /// Number of grants, tokens and sessions that were valid until then.
    pub revoked: u64,
    /// Number of records by kind, without kinds of which there were none. Index records of owners and clients are not
    /// counted.
    pub records: BTreeMap<Kind, u64>,
}

impl Removed {
    /// Counts removed records.
    pub(crate) fn add(&mut self, kind: Kind, removed: u64) {
        if removed > 0 {
            *self.records.entry(kind).or_default() += removed;
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.revoked += other.revoked;
        for (&kind, &removed) in &other.records {
            self.add(kind, removed);
        }
    }

    /// Number of records of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.records.values().sum()
    }
}

/// Position of a deletion within its stage, and its counts.
#[derive(Debug, Default)]
pub struct Progress {
    /// Place where the stage continues.
    pub(crate) after: Option<Cursor>,
    /// Client of the owner that is being deleted.
    pub(crate) client: Option<Box<ClientDeletion>>,
    /// Parts that are done, and all parts, where an engine counts them.
    pub(crate) parts: Option<(u32, u32)>,
    pub(crate) removed: Removed,
}

impl Progress {
    /// Counts the records of a page, which were valid until then, and returns whether there is another page.
    pub(crate) fn add_page(&mut self, kind: Kind, (revoked, next): (u64, Option<Cursor>)) -> bool {
        self.removed.revoked += revoked;
        self.removed.add(kind, revoked);
        self.after = next;
        self.after.is_some()
    }
}

/// Owner that is being deleted.
pub(crate) struct Owned<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) scope: &'a Scope,
    pub(crate) owner: &'a str,
    pub(crate) context: &'a AuditContext,
}

impl Owned<'_> {
    /// Records whose partition is the owner's name. `None` where the name is too long for a key: there are none then.
    pub(crate) fn prefix(&self, kind: Kind) -> Result<Option<Prefix>> {
        match Prefix::partition(kind, self.scope, &[self.owner.into()], &[]) {
            Ok(prefix) => Ok(Some(prefix)),
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a bounded number of the records whose partition is the owner's name.
    pub(crate) async fn erase(&self, kind: Kind, progress: &mut Progress) -> Result<bool> {
        let Some(prefix) = self.prefix(kind)? else { return Ok(false) };
        let erased = self.stores.admin().erase(&prefix, self.stores.now()?.earliest()).await?;
        progress.removed.add(kind, erased.removed);
        Ok(erased.more)
    }
}

/// Records that are deleted together.
pub trait DeletionTarget: Debug + Send {
    /// Number of stages. The last one ends the deletion: it writes the audit entry, and gives the tombstone an end.
    fn stages(&self) -> usize;

    /// Removes a bounded number of the records of a stage, and returns whether it may have more.
    fn step(&mut self, stage: usize, progress: &mut Progress) -> impl Future<Output = Result<bool>> + Send;
}

/// Deletion that has begun.
#[derive(Debug)]
#[must_use = "no record is removed before the first step"]
pub struct Deletion<T> {
    pub(crate) target: T,
    pub(crate) progress: Progress,
    stage: usize,
}

impl<T: DeletionTarget> Deletion<T> {
    pub(crate) fn new(target: T) -> Self {
        Self { target, progress: Progress::default(), stage: 0 }
    }

    /// Removes some more records, and returns whether there may be more. The last step also writes the audit entry with
    /// the number of records.
    pub async fn step(&mut self) -> Result<bool> {
        let stages = self.target.stages();
        if self.stage < stages && !self.target.step(self.stage, &mut self.progress).await? {
            self.progress.after = None;
            self.stage += 1;
        }
        Ok(self.stage < stages)
    }

    /// Removes all that is left, and returns the counts.
    pub async fn finish(mut self) -> Result<Removed> {
        while self.step().await? {}
        Ok(self.progress.removed)
    }

    /// Records that were removed so far.
    #[must_use]
    pub fn removed(&self) -> &Removed {
        &self.progress.removed
    }

    /// Parts that are done, and all parts.
    #[must_use]
    pub fn done(&self) -> (u32, u32) {
        let part = |stage: usize| u32::try_from(stage).unwrap_or(u32::MAX);
        self.progress.parts.unwrap_or_else(|| (part(self.stage), part(self.target.stages())))
    }
}
