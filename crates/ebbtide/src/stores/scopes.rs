//! Scopes: listing, counting and deleting all records of one.
//!
//! These operations are for administrators: they read or remove every record of a scope, and may scan a table. They
//! are exact; [`Reach::Below`] includes the scopes that one covers. A caller reaches only scopes that it covers.
//!
//! ```
//! use ebbtide::stores::approvals::Approval;
//! use ebbtide::stores::audit::AuditContext;
//! use ebbtide::{Ebbtide, Kind, Reach};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! acme.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await?;
//!
//! let (scopes, reach) = (acme.scopes(), Reach::Below(acme.scope().clone()));
//! assert_eq!(scopes.count(&reach).await?[&Kind::Approval], 1);
//! let context = AuditContext::new("admin", "the tenant left")?;
//! let removed = scopes.delete(&reach, &context).await?.finish().await?;
//! assert_eq!(removed.total(), 1);
//! # Ok(())
//! # }
//! ```

mod deletion;
mod migration;
mod moving;

use std::collections::BTreeMap;

use super::Stores;
use super::shared::paging::{Listing, check_limit};
use crate::backend::Cursor;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::stores::audit::AuditContext;
use crate::timekeeping::Now;

pub use deletion::ScopeDeletion;
pub use migration::{Migrated, MigrationPlace};

/// Scopes that a caller covers.
#[derive(Debug, Clone)]
pub struct Scopes {
    stores: Stores,
    caller: Scope,
}

/// Statistics of one kind of record in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Number of live records.
    pub live: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Number of them that do not expire.
    pub without_end: u64,
    /// First expiry of the others.
    pub first_ends_at: Option<Timestamp>,
    /// Last expiry of the others.
    pub last_ends_at: Option<Timestamp>,
}

impl Scopes {
    /// Kinds that are deleted with a scope: all but the audit log, epochs and the store's own records. They are in the
    /// order of deletion: what gives access comes before what only leads to it. Policies of a deleted scope go at the end.
    ///
    /// Epochs end by themselves: without them, copies of what was revoked would be honoured again, and the set of the
    /// clients of every scope is among those of the global one. A deletion of an owner or a client that has begun stays
    /// begun until it is called again.
    pub fn deletable() -> impl Iterator<Item = Kind> {
        let kept = |kind: &Kind| {
            matches!(kind, Kind::Audit | Kind::Owner | Kind::Policy | Kind::System) || kind.is_probe()
        };
        Kind::ALL.iter().copied().filter(move |kind| !kept(kind))
    }

    pub(super) fn new(stores: Stores, caller: Scope) -> Self {
        Self { stores, caller }
    }

    /// Lists the live records of one kind.
    pub async fn list(
        &self,
        kind: Kind,
        reach: &Reach,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<(Key, Record)>> {
        check_limit(limit)?;
        let page =
            self.stores.backend().scan(&self.prefix(kind, reach)?, after, limit, self.stores.now()?).await?;
        Listing::read(page, |key, record| Ok((key, record)))
    }

    /// Counts the live records by kind, without kinds of which there are none.
    pub async fn count(&self, reach: &Reach) -> Result<BTreeMap<Kind, u64>> {
        let mut count = self.begin_count(reach)?;
        while count.step().await? {}
        Ok(count.counted)
    }

    /// Begins to count every live record of a scope, in steps. Nothing is read before the first step.
    pub fn begin_count(&self, reach: &Reach) -> Result<Count> {
        self.begin_count_of(Kind::ALL.iter().copied(), reach)
    }

    fn begin_count_of(&self, kinds: impl Iterator<Item = Kind>, reach: &Reach) -> Result<Count> {
        Ok(Count {
            stores: self.stores.clone(),
            now: self.stores.now()?,
            prefixes: self.prefixes(kinds, reach)?,
            after: None,
            counted: BTreeMap::new(),
            done: (0, 1),
        })
    }

    /// Counts the live records of the kinds that are deleted with a scope, up to `most`. It reads little more than
    /// that many.
    pub async fn count_up_to(&self, reach: &Reach, most: u64) -> Result<u64> {
        let mut count = self.begin_count_of(Self::deletable(), reach)?;
        let counted = |count: &Count| count.counted.values().sum::<u64>();
        while counted(&count) < most && count.step().await? {}
        Ok(counted(&count).min(most))
    }

    /// Returns statistics by scope and kind.
    pub async fn statistics(&self, reach: &Reach) -> Result<BTreeMap<Scope, BTreeMap<Kind, Statistics>>> {
        let (now, prefixes) = (self.stores.now()?, self.prefixes(Kind::ALL.iter().copied(), reach)?);
        let mut all: BTreeMap<Scope, BTreeMap<Kind, Statistics>> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.stores.admin().list(&prefixes, after.as_ref(), 500, now.earliest()).await?;
            for (key, record) in &page.items {
                all.entry(key.scope()).or_default().entry(key.kind()).or_default().add(key, record);
            }
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Begins to delete every record of a scope. Its audit log is kept, and gets an entry first. No record is deleted
    /// before the first step.
    pub async fn delete(&self, reach: &Reach, context: &AuditContext) -> Result<ScopeDeletion> {
        self.delete_kinds(Self::deletable().collect(), reach, context).await
    }

    /// Begins to delete every record of those kinds in a scope.
    pub async fn delete_kinds(
        &self,
        kinds: Vec<Kind>,
        reach: &Reach,
        context: &AuditContext,
    ) -> Result<ScopeDeletion> {
        if let Some(kept) = kinds.iter().find(|kind| !Self::deletable().any(|deletable| deletable == **kind))
        {
            return Err(Error::invalid(format!("records of the kind {kept} are not deleted with a scope"))
                .about("kinds"));
        }
        let prefixes = self.prefixes(kinds.into_iter(), reach)?;
        ScopeDeletion::begin(&self.stores, reach, prefixes, context).await
    }

    /// Resumes a [`delete`](Self::delete) of a scope that stopped within the last day, in any process; none if there
    /// is none. A record that was written after it began may be left: only a new deletion removes it.
    pub async fn resume_delete(
        &self,
        reach: &Reach,
        context: &AuditContext,
    ) -> Result<Option<ScopeDeletion>> {
        let prefixes = self.prefixes(Self::deletable(), reach)?;
        ScopeDeletion::resume(&self.stores, reach, prefixes, context).await
    }

    fn prefixes(&self, kinds: impl Iterator<Item = Kind>, reach: &Reach) -> Result<Vec<Prefix>> {
        kinds.map(|kind| self.prefix(kind, reach)).collect()
    }

    fn prefix(&self, kind: Kind, reach: &Reach) -> Result<Prefix> {
        self.caller.require(reach.scope())?;
        Prefix::reach(kind, reach)
    }
}

impl Statistics {
    fn add(&mut self, key: &Key, record: &Record) {
        self.live += 1;
        self.bytes += (key.as_bytes().len() + record.value.len()) as u64;
        if record.expires_at.is_never() {
            self.without_end += 1;
            return;
        }
        let end = Some(record.expires_at);
        self.first_ends_at = if self.first_ends_at.is_none() { end } else { self.first_ends_at.min(end) };
        self.last_ends_at = self.last_ends_at.max(end);
    }
}

/// Count of a scope, in steps of a bounded size.
#[derive(Debug)]
#[must_use = "nothing is counted before the first step"]
pub struct Count {
    stores: Stores,
    now: Now,
    prefixes: Vec<Prefix>,
    after: Option<Cursor>,
    counted: BTreeMap<Kind, u64>,
    done: (u32, u32),
}

impl Count {
    /// Resumes another count of the same scope at its [`place`](Self::place), within a day.
    pub fn resume(mut self, place: Cursor, counted: BTreeMap<Kind, u64>) -> Self {
        (self.after, self.counted) = (Some(place), counted);
        self
    }

    /// Counts some more records, and returns whether there may be more.
    pub async fn step(&mut self) -> Result<bool> {
        let backend = self.stores.admin();
        let step = backend.count(&self.prefixes, self.after.as_ref(), self.now.earliest()).await?;
        for (kind, live) in step.live.into_iter().filter(|(_, live)| *live > 0) {
            *self.counted.entry(kind).or_default() += live;
        }
        (self.after, self.done) = (step.next, step.done);
        Ok(self.after.is_some())
    }

    /// Records that were counted so far, by kind.
    #[must_use]
    pub fn counted(&self) -> &BTreeMap<Kind, u64> {
        &self.counted
    }

    /// Parts that are done, and all parts.
    #[must_use]
    pub fn done(&self) -> (u32, u32) {
        self.done
    }

    /// Position at which it continues; none before the first step and after the last.
    #[must_use]
    pub fn place(&self) -> Option<&Cursor> {
        self.after.as_ref()
    }
}
