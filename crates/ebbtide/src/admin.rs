//! Operations that only operators call.

pub(crate) mod by_kind;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Backend, Cursor, Page};
use crate::model::error::Result;
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Administration of a backend. As with [`Backend`], no method has a default body.
#[async_trait]
pub trait Admin: Backend {
    /// Counts of the records that are live and that have expired but are present, at `now`. Costs no scan where the
    /// engine can help it.
    async fn stats(&self, now: Timestamp) -> Result<Stats>;

    /// The answer of [`stats`](Self::stats) where it costs no walk through the store: a sweeper asks for it after
    /// every sweep. An engine without counts answers its last ones, or none.
    async fn stats_at_hand(&self, now: Timestamp) -> Result<Option<Stats>>;

    /// Up to `limit` live records under `prefixes`, behind `after`, in the engine's own order; otherwise as
    /// [`scan`](Backend::scan). Each prefix is of another kind and holds whole scopes. On an engine without order it
    /// reads the whole table, once for all the prefixes.
    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page>;

    /// Counts some of the live records under such prefixes, behind `after`, by kind. Call it with `next` until there is
    /// none; the sum is the count. It reads what it counts; where [`list`](Self::list) reads the whole table, so does
    /// this.
    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted>;

    /// Removes some of the live records under such prefixes, whatever their versions. Call it with `next` and the same
    /// time until there is none, from any process: from then on nothing is left that was there at the first call.
    /// A cursor that the engine has forgotten costs reading anew, and changes no answer. Tombstones go last, since
    /// the records that they end would be honoured without them; an engine without order has no such choice.
    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared>;

    /// Removes some of the live records under `prefix`, whatever their versions, and says if there may be more:
    /// call it again until there are none. Expired records are left to the sweep, or go too.
    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased>;

    /// The latest time that the store remembers having been used at, where it keeps one (see the clock guard).
    async fn clock_mark(&self) -> Result<Option<Timestamp>>;

    /// Sets the clock mark, also by more than a commit may move it: an operator has confirmed the clock.
    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()>;

    /// The engine's own clock, where several nodes share the engine. It is compared, and never used for an answer.
    async fn engine_clock(&self) -> Result<Option<Timestamp>>;

    /// Warnings for an operator, a sentence each: the store works, and something about it needs attention.
    async fn warnings(&self) -> Result<Vec<String>>;

    /// Writes a consistent copy of the store into the empty folder `dir`, while serving.
    async fn backup(&self, dir: &Path) -> Result<()>;
}

/// Derived operations of every [`Admin`].
#[async_trait]
pub trait AdminExt: Admin {
    /// Erases until there is no more, and returns the number of live records removed.
    async fn erase_all(&self, prefix: &Prefix, now: Timestamp) -> Result<u64> {
        let mut removed = 0;
        loop {
            let step = self.erase(prefix, now).await?;
            removed += step.removed;
            if !step.more {
                return Ok(removed);
            }
        }
    }
}

impl<A: Admin + ?Sized> AdminExt for A {}

/// Number of records that one call of [`Admin::count`] reads, where it reads them.
pub(crate) const COUNTED_AT_ONCE: usize = 1_000;

/// Bodies for methods that an engine has no better way for; see [`provide!`](crate::provide).
#[expect(clippy::unused_async, reason = "the methods are async")]
pub mod defaults {
    use std::path::Path;

    use super::{Admin, Cleared, Counted, Erased, Stats, by_kind};
    use crate::backend::{Cursor, Page};
    use crate::model::error::{Error, ErrorKind, Result};
    use crate::model::key::Prefix;
    use crate::model::time::Timestamp;
    use crate::model::write::{Batch, Write};

    /// An engine without statistics.
    pub async fn stats<A: Admin + ?Sized>(admin: &A, _now: Timestamp) -> Result<Stats> {
        Err(Error::invalid(format!("the engine {} keeps no statistics", admin.info().engine)))
    }

    /// The statistics themselves, where they cost no walk.
    pub async fn stats_at_hand<A: Admin + ?Sized>(admin: &A, now: Timestamp) -> Result<Option<Stats>> {
        match admin.stats(now).await {
            Ok(stats) => Ok(Some(stats)),
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A listing of one kind after the other.
    pub async fn list<A: Admin + ?Sized>(
        admin: &A,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        by_kind::list(admin, prefixes, after, limit, now).await
    }

    /// A count of one kind after the other.
    pub async fn count<A: Admin + ?Sized>(
        admin: &A,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        now: Timestamp,
    ) -> Result<Counted> {
        by_kind::count(admin, prefixes, after, now).await
    }

    /// A removal of one kind after the other.
    pub async fn clear<A: Admin + ?Sized>(
        admin: &A,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        now: Timestamp,
    ) -> Result<Cleared> {
        by_kind::clear(admin, prefixes, after, now).await
    }

    /// A page of a scan, deleted in one commit.
    pub async fn erase<A: Admin + ?Sized>(admin: &A, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let page = admin.scan(prefix, None, Batch::MAX_WRITES, now).await?;
        let removed = page.items.len() as u64;
        if removed > 0 {
            let deletes = page.items.into_iter().map(|(key, _)| Write::Delete { key }).collect();
            // A delete has no condition that could be refused.
            let _ = admin.commit(Batch::new(deletes)?, now).await?;
        }
        Ok(Erased { removed, more: page.next.is_some() })
    }

    /// An engine that keeps no mark.
    pub async fn clock_mark<A: Admin + ?Sized>(_admin: &A) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// An engine that keeps no mark.
    pub async fn set_clock_mark<A: Admin + ?Sized>(_admin: &A, _mark: Timestamp) -> Result<()> {
        Ok(())
    }

    /// An engine without a clock of its own.
    pub async fn engine_clock<A: Admin + ?Sized>(_admin: &A) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// No warnings.
    pub async fn warnings<A: Admin + ?Sized>(_admin: &A) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// An engine that has tools of its own.
    pub async fn backup<A: Admin + ?Sized>(admin: &A, _dir: &Path) -> Result<()> {
        Err(Error::invalid(format!("the engine {} is backed up with its own tools", admin.info().engine)))
    }
}

/// Result of one call of [`Admin::erase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// Number of live records removed.
    pub removed: u64,
    /// True if there may be more.
    pub more: bool,
}

/// Result of one call of [`Admin::count`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Number of live records by kind; empty kinds may be left out.
    pub live: BTreeMap<Kind, u64>,
    /// Progress: parts done, and parts in all.
    pub done: (u32, u32),
    /// Cursor of the next call; none at the end.
    pub next: Option<Cursor>,
}

/// Result of one call of [`Admin::clear`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleared {
    /// Number of live records removed, by kind; kinds without any are left out.
    pub removed: BTreeMap<Kind, u64>,
    /// Progress: parts done, and parts in all.
    pub done: (u32, u32),
    /// Cursor of the next call; none at the end.
    pub next: Option<Cursor>,
}

/// The state of a store, by kind; kinds that hold nothing are left out.
pub type Stats = BTreeMap<Kind, KindStats>;

/// The state of one kind of record. Engines may count by the minute of expiry, and be a minute off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindStats {
    /// Records that have not expired.
    pub live: u64,
    /// Records that have expired and are still stored.
    pub expired: u64,
    /// For how long the oldest of them has been expired.
    pub oldest_overdue: Option<Duration>,
}
