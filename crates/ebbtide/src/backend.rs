//! The contract that every engine keeps.

mod share;

pub use share::Share;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};

/// A store of records that expire. Five methods are required; all are handed the time.
///
/// * A record is live while `now < expires_at`. To every method an expired record is absent, whether or not it is
///   still stored: no answer depends on whether a sweep has run.
/// * A commit's conditions and its writes are one atomic step. Of any number of contenders, in threads, processes or
///   nodes, exactly one wins.
/// * What was answered is durable. An error of kind [`Unavailable`](crate::ErrorKind::Unavailable) says that no
///   answer could be had: the write may have happened.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The live record at `key`.
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>>;

    /// Removes the live record and returns it. Of any number of concurrent takes, at most one gets it.
    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>>;

    /// Writes the whole batch if every condition holds, and nothing if one does not. The refusal names the first
    /// write, in the batch's order, whose condition did not hold.
    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit>;

    /// Commits each of the batches by itself, as so many calls of [`commit`](Self::commit) at once would, and answers in
    /// their order. Of batches that contend, any one may win. An error means that some may have been written.
    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        join_all(batches.into_iter().map(|batch| self.commit(batch, now))).await.into_iter().collect()
    }

    /// Up to `limit` live records under `prefix`, behind `after`. Within a partition they come in the order of their
    /// keys; across partitions in the engine's own. A record that is live from the first page to the last comes
    /// exactly once. A page may hold fewer than `limit`, even none, and still have a next.
    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page>;

    /// Removes records with `expires_at < until`, strictly, by each record's own expiry, judged in the step that
    /// deletes. Stops when the budget is spent.
    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept>;

    /// The engine's name, for metrics and messages.
    fn engine(&self) -> &'static str {
        "custom"
    }

    /// How many records are live, expired but present, and for how long, at `now`. Costs no scan where the engine
    /// can help it.
    async fn stats(&self, _now: Timestamp) -> Result<Stats> {
        Err(Error::invalid(format!("the engine {} keeps no statistics", self.engine())))
    }

    /// What [`stats`](Self::stats) says, where that costs no walk through the store: a sweeper asks for it after every
    /// sweep. An engine that cannot say answers what it found last, or none.
    async fn stats_at_hand(&self, now: Timestamp) -> Result<Option<Stats>> {
        match self.stats(now).await {
            Ok(stats) => Ok(Some(stats)),
            Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// For how long an expired record may still be stored while all is well. What is overdue by more, and grows older
    /// while sweeps remove nothing, is an alarm.
    fn reclaims_within(&self) -> Duration {
        Duration::from_secs(2 * 3_600)
    }

    /// Up to `limit` live records under `prefixes`, behind `after`, in the engine's own order; otherwise as
    /// [`scan`](Self::scan). Each prefix is of another kind and holds whole scopes. An administrator's operation: on an
    /// engine without order it reads the whole table, once for all the prefixes.
    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        crate::admin::by_kind::list(self, prefixes, after, limit, now).await
    }

    /// Counts some of the live records under such prefixes, behind `after`, by kind. Call it with `next` until there is
    /// none; the sum is the count. It reads what it counts, and where [`list`](Self::list) reads the whole table, that.
    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        crate::admin::by_kind::count(self, prefixes, after, now).await
    }

    /// Removes some of the live records under such prefixes, whatever their versions. Call it with `next` and the same
    /// time until there is none, from whichever process: from then on nothing is left that was there at the first call.
    /// A place that the engine has forgotten costs reading anew, and changes no answer. Tombstones go last, since what
    /// they bury would be honoured without them; an engine without order has no other.
    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        crate::admin::by_kind::clear(self, prefixes, after, now).await
    }

    /// Removes some of the live records under `prefix`, whatever their versions, and says whether there may be more:
    /// call it again until there are none. What has expired is left to the sweep, or goes too.
    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let page = self.scan(prefix, None, Batch::MAX_WRITES, now).await?;
        let removed = page.items.len() as u64;
        if removed > 0 {
            let deletes = page.items.into_iter().map(|(key, _)| Write::Delete { key }).collect();
            // A delete has no condition that could be refused.
            let _ = self.commit(Batch::new(deletes)?, now).await?;
        }
        Ok(Erased { removed, more: page.next.is_some() })
    }

    /// The latest time that the store remembers having been used at, where it keeps one (see the clock guard).
    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// Sets the clock mark, also by more than a commit may move it: an operator has confirmed the clock.
    async fn set_clock_mark(&self, _mark: Timestamp) -> Result<()> {
        Ok(())
    }

    /// The engine's own clock, where several nodes share the engine. It is compared, and never used for an answer.
    async fn engine_clock(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// What an operator should know of the store, a sentence each: it works, and something about it is not as it
    /// should be.
    async fn warnings(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Writes a consistent copy of the store into the empty folder `dir`, while serving.
    async fn backup(&self, _dir: &Path) -> Result<()> {
        Err(Error::invalid(format!("the engine {} is backed up with its own tools", self.engine())))
    }
}

/// How many records one call of [`Backend::count`] reads, where it reads them.
pub(crate) const COUNTED_AT_ONCE: usize = 1_000;

/// Where a scan goes on. Only the engine that gave it understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// The cursor with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for handing to a caller and back.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A page of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The live records.
    pub items: Vec<(Key, Record)>,
    /// Where the next page begins; none at the end.
    pub next: Option<Cursor>,
}

/// How much of a sweep is done in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// About how many records may be removed. An engine that reclaims in larger steps does one.
    pub records: u64,
    /// Which kinds.
    pub kinds: Vec<Kind>,
    /// Whether to remove everything that can be, or only what an engine finds worth the work.
    pub force: bool,
    /// How much of the time it may take: an engine that reclaims in larger steps rests within them.
    pub share: Share,
}

impl Default for Budget {
    /// Ten thousand records, of any kind, where it is worth the work.
    fn default() -> Self {
        Self { records: 10_000, kinds: Kind::ALL.to_vec(), force: false, share: Share::WHOLE }
    }
}

impl Budget {
    /// Everything of these kinds, in one call.
    #[must_use]
    pub fn everything(kinds: &[Kind]) -> Self {
        Self { records: u64::MAX, kinds: kinds.to_vec(), force: true, share: Share::WHOLE }
    }
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// How many records were removed, by kind; kinds of which none was are left out.
    pub removed: BTreeMap<Kind, u64>,
    /// Whether the budget ended before the work did.
    pub more: bool,
    /// How long it rested meanwhile.
    pub rested: Duration,
}

impl Swept {
    /// How many records were removed in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.removed.values().sum()
    }

    /// Counts `removed` records of `kind`.
    pub fn add(&mut self, kind: Kind, removed: u64) {
        if removed > 0 {
            *self.removed.entry(kind).or_default() += removed;
        }
    }
}

/// What one call of [`Backend::erase`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// How many live records it removed.
    pub removed: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// What one call of [`Backend::count`] counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// How many live records, by kind; kinds of which there are none may be left out.
    pub live: BTreeMap<Kind, u64>,
    /// How far the count is: so many parts of so many are done.
    pub done: (u32, u32),
    /// Where it goes on; none at the end.
    pub next: Option<Cursor>,
}

/// What one call of [`Backend::clear`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cleared {
    /// How many live records it removed, by kind; kinds of which none was are left out.
    pub removed: BTreeMap<Kind, u64>,
    /// How far it is: so many parts of so many are done.
    pub done: (u32, u32),
    /// Where it goes on; none at the end.
    pub next: Option<Cursor>,
}

/// Says which record an index record points to; none, if it points to none that could be gone.
pub type Target = fn(&Key, &Record) -> Option<Key>;

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

/// What follows from the contract, for every backend.
#[async_trait]
pub trait BackendExt: Backend {
    /// Commits one write.
    async fn write(&self, write: Write, now: Timestamp) -> Result<Commit> {
        self.commit(Batch::try_from(write)?, now).await
    }

    /// Writes, whatever is there.
    async fn put(&self, key: Key, record: Record, now: Timestamp) -> Result<Commit> {
        self.write(Write::Put { key, record }, now).await
    }

    /// Writes if nothing is live there.
    async fn insert(&self, key: Key, record: Record, now: Timestamp) -> Result<Commit> {
        self.commit(Batch::try_from(Write::Insert { key, record })?, now).await
    }

    /// Writes if that version is live there.
    async fn replace(&self, key: Key, expected: Version, record: Record, now: Timestamp) -> Result<Commit> {
        self.write(Write::Replace { key, expected, record }, now).await
    }

    /// Deletes, whatever is there.
    async fn delete(&self, key: Key, now: Timestamp) -> Result<Commit> {
        self.write(Write::Delete { key }, now).await
    }

    /// Deletes if that version is live there.
    async fn remove(&self, key: Key, expected: Version, now: Timestamp) -> Result<Commit> {
        self.write(Write::Remove { key, expected }, now).await
    }

    /// Every live record under `prefix`. For partitions of a known size, and for tests.
    async fn scan_all(&self, prefix: &Prefix, now: Timestamp) -> Result<Vec<(Key, Record)>> {
        let mut items = Vec::new();
        let mut after = None;
        loop {
            let page = self.scan(prefix, after.as_ref(), 1_000, now).await?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    /// Sweeps until there is no more. One `until` holds for all of it.
    async fn sweep_all(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let mut all = Swept::default();
        loop {
            let step = self.sweep(until, budget).await?;
            for (kind, removed) in step.removed {
                all.add(kind, removed);
            }
            if !step.more {
                return Ok(all);
            }
        }
    }

    /// Erases until there is no more, and says how many live records there were.
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

impl<B: Backend + ?Sized> BackendExt for B {}
