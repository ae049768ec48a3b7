//! The contract that every engine keeps.

mod share;

pub use share::Share;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::model::alteration::{Alteration, Altered};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};

/// A store of records that expire. Every method is handed the time.
///
/// * A record is live while `now < expires_at`. To every method an expired record is absent, whether or not it is
///   still stored: no answer depends on whether a sweep has run.
/// * A commit's conditions and its writes are one atomic step. Of any number of contenders, in threads, processes or
///   nodes, exactly one wins.
/// * An answered write is durable. An error of kind [`Unavailable`](crate::ErrorKind::Unavailable) is no answer: the
///   write may have happened.
///
/// No method has a default body, so that a layer cannot forget one: a layer names what it passes on with
/// [`delegate!`](crate::delegate), and an engine names what it takes from [`defaults`] with
/// [`provide!`](crate::provide).
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The live record at `key`.
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>>;

    /// The live records at `keys`, in their order. Each is read by itself: together they are no snapshot.
    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Record>>>;

    /// Removes the live record and returns it. Of any number of concurrent takes, at most one gets it.
    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>>;

    /// Writes the whole batch if every condition holds, and nothing if one does not. The refusal names the first
    /// write, in the batch's order, whose condition did not hold.
    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit>;

    /// Commits each of the batches by itself, as so many calls of [`commit`](Self::commit) at once would, and answers in
    /// their order. Of batches that contend, any one may win. An error means that some may have been written.
    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>>;

    /// Changes the record at `key`, and answers with it, in one atomic step.
    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered>;

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

    /// Properties of the engine.
    fn info(&self) -> Info;
}

/// Properties of an engine, asked instead of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is one property of the engine")]
pub struct Info {
    /// Name of the engine, for metrics and messages.
    pub engine: &'static str,
    /// Several nodes share the store.
    pub shared: bool,
    /// Partitions are kept in the order of their keys, so that a walk over a scope reads that scope alone.
    pub has_order: bool,
    /// The engine deletes expired records by itself; a sweep deletes them too only where it is forced.
    pub reclaims_itself: bool,
    /// Longest time that an expired record may still be stored while all is well. A record that is overdue by more,
    /// and grows older while sweeps remove nothing, raises an alarm.
    pub reclaims_within: Duration,
    /// Resolution of the engine's clock: it may be later by this than it shows.
    pub clock_resolution: Duration,
    /// A write or a sync has failed for good: every call is refused until the process ends and opens the store again.
    pub has_failed: bool,
}

impl Info {
    /// An engine of one node, with order, that is swept.
    #[must_use]
    pub const fn new(engine: &'static str) -> Self {
        Self {
            engine,
            shared: false,
            has_order: true,
            reclaims_itself: false,
            reclaims_within: Duration::from_secs(2 * 3_600),
            clock_resolution: Duration::from_millis(1),
            has_failed: false,
        }
    }

    /// The same, shared by several nodes.
    #[must_use]
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// The same, without order over partitions.
    #[must_use]
    pub const fn without_order(mut self) -> Self {
        self.has_order = false;
        self
    }

    /// The same, with a clock of this resolution.
    #[must_use]
    pub const fn with_clock_of(mut self, resolution: Duration) -> Self {
        self.clock_resolution = resolution;
        self
    }

    /// The same, with expired records deleted by the engine within this time.
    #[must_use]
    pub const fn reclaiming_itself(mut self, within: Duration) -> Self {
        self.reclaims_itself = true;
        self.reclaims_within = within;
        self
    }
}

/// Bodies for methods that an engine has no better way for; see [`provide!`](crate::provide).
pub mod defaults {
    use super::{
        Alteration, Altered, Backend, BackendExt as _, Batch, Commit, Key, Record, Result, Timestamp, Write,
        join_all,
    };
    use crate::model::alteration::Outcome;
    use crate::model::error::Error;

    /// Attempts at an alteration. Each loss is another writer's gain.
    const ALTER_ATTEMPTS: usize = 256;

    /// [`Backend::alter`] as a get and a commit on the version that was read.
    pub async fn alter<B: Backend + ?Sized>(
        backend: &B,
        key: &Key,
        alteration: &Alteration,
        now: Timestamp,
    ) -> Result<Altered> {
        alteration.check()?;
        for _ in 0..ALTER_ATTEMPTS {
            let live = backend.get(key, now).await?;
            let expected = live.as_ref().map(|record| record.version);
            let (outcome, altered) = alteration.judge(live)?;
            let key = key.clone();
            let write = match (outcome, expected) {
                (Outcome::Store(record), Some(expected)) => Write::Replace { key, expected, record },
                (Outcome::Store(record), None) => Write::Insert { key, record },
                (Outcome::Erase, Some(expected)) => Write::Remove { key, expected },
                (Outcome::Erase, None) | (Outcome::Nothing, _) => return Ok(altered),
            };
            if backend.write(write, now).await?.is_applied() {
                return Ok(altered);
            }
        }
        Err(Error::unavailable("the record was changed by others at every attempt; try again"))
    }

    /// [`Backend::get_many`] as so many gets at once.
    pub async fn get_many<B: Backend + ?Sized>(
        backend: &B,
        keys: &[Key],
        now: Timestamp,
    ) -> Result<Vec<Option<Record>>> {
        join_all(keys.iter().map(|key| backend.get(key, now))).await.into_iter().collect()
    }

    /// [`Backend::commit_each`] as so many commits at once.
    pub async fn commit_each<B: Backend + ?Sized>(
        backend: &B,
        batches: Vec<Batch>,
        now: Timestamp,
    ) -> Result<Vec<Commit>> {
        join_all(batches.into_iter().map(|batch| backend.commit(batch, now))).await.into_iter().collect()
    }
}

/// Position of a scan. Only the engine that returned it can read it.
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
    /// Start of the next page; none at the end.
    pub next: Option<Cursor>,
}

/// Limits of one call of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// About how many records may be removed. An engine that reclaims in larger steps does one.
    pub records: u64,
    /// Kinds to sweep.
    pub kinds: Vec<Kind>,
    /// Remove everything that has expired, also where the engine would leave it for later.
    pub force: bool,
    /// Share of the time that the sweep may take: an engine that reclaims in larger steps rests within them.
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

/// Result of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Number of removed records by kind; kinds without any are left out.
    pub removed: BTreeMap<Kind, u64>,
    /// The budget ended before the work did.
    pub more: bool,
    /// Time spent resting.
    pub rested: Duration,
    /// Percentage of the table that was walked through, on an engine that walks through all of it.
    pub progress: Option<u8>,
}

impl Swept {
    /// Number of removed records of all kinds.
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

/// Function from an index record to the record it leads to; none, if it leads to none that could be gone.
pub type IndexTarget = fn(&Key, &Record) -> Option<Key>;

/// Records of one page of a whole scan.
pub(crate) const ALL_PAGE: usize = 1_000;

/// Records of all pages, each scanned behind the one before.
pub(crate) async fn all_pages<F>(scan: impl Fn(Option<Cursor>) -> F) -> Result<Vec<(Key, Record)>>
where
    F: Future<Output = Result<Page>>,
{
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let page = scan(after).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

/// Operations that follow from the contract, for every backend.
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
        all_pages(|after| async move { self.scan(prefix, after.as_ref(), ALL_PAGE, now).await }).await
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
}

impl<B: Backend + ?Sized> BackendExt for B {}
