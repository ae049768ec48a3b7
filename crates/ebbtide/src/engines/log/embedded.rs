//! The embedded engine: the log in front, a cold store behind it.
//!
//! The caller judges under short locks of index shards, taken in order. Reads from the disk happen on a bounded
//! pool, outside of all locks, and what they found is compared with the index afterwards. Each answer that rests on
//! a write or a delete waits until the group of that is durable.

mod backend;
mod backup;
mod commit;
mod hints;
mod lookup;
mod open;
mod passes;
pub(crate) mod retire;
mod scan;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::cold::ColdStore;
use super::faults::Faults;
use super::index::Index;
use super::ordered::Ordered;
use super::pool::Pool;
use super::position::Position;
use super::recovery::Settings;
use super::writer::{Log, Threads};
use crate::admin::Stats;
use crate::engines::embedded::{Control, Folder};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::{Stopwatch, Timestamp};

/// Options of an embedded store.
#[derive(Clone)]
pub struct Options {
    pub settings: Settings,
    /// Bytes of written groups that stay in memory, for reads of what was written lately.
    pub keep_bytes: usize,
    /// Bytes of the log beyond which segments retire early.
    pub cap_bytes: u64,
    /// Time after which a segment retires.
    pub horizon: Duration,
    /// Length of a segment from which it and those before it get hints.
    pub hint_from: u32,
    /// Free bytes of the disk below which nothing is added.
    pub reserve_bytes: u64,
    /// Furthest that one commit moves the clock mark.
    pub clock_leap: Duration,
    /// Kinds that keep their keys in order.
    pub is_listed: fn(Kind) -> bool,
    /// Threads for single reads, and for walks; with none, the caller steps the store by hand.
    pub read_threads: usize,
    pub walk_threads: usize,
    /// Bits of the hash of a key that count.
    #[cfg(test)]
    pub(crate) hash_mask: u64,
}

impl Options {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            keep_bytes: 64 << 20,
            cap_bytes: 4 << 30,
            horizon: super::cold::HORIZON,
            hint_from: 8 << 20,
            reserve_bytes: 256 << 20,
            clock_leap: Duration::from_secs(24 * 3_600),
            is_listed: |kind| {
                let walked = [Kind::RecordKey, Kind::RecordGroup, Kind::Counter, Kind::Lease];
                !matches!(kind, Kind::Replay | Kind::Nonce) && !walked.contains(&kind)
            },
            read_threads: 4,
            walk_threads: 2,
            #[cfg(test)]
            hash_mask: u64::MAX,
        }
    }
}

/// Latest time that the store remembers having been used at.
#[derive(Clone, Copy)]
struct Mark {
    time: Option<Timestamp>,
    /// Frame that moved it there, if this process did.
    at: Option<Position>,
}

/// State that callers, walks and maintenance share.
pub(crate) struct Core<C> {
    pub(crate) log: Arc<Log>,
    pub(crate) cold: C,
    index: Index,
    ordered: Ordered,
    /// By the code of a kind: true if the cold store may hold records of it. Set before the first is written there.
    has_cold: Box<[AtomicBool]>,
    /// By the code of a kind: while a sweep removes cold records, those that expired before this count as removed.
    swept_until: Box<[AtomicU64]>,
    /// Frames in segments up to this one may have a copy in the cold store, whatever they say.
    retiring: AtomicU32,
    /// Counts removals of entries by retirement, for walks.
    moves: AtomicU64,
    /// Counts sweeps that removed cold records.
    removals: AtomicU64,
    /// The last pass over the log for each kind without a map.
    passes: Mutex<BTreeMap<Kind, Arc<passes::Pass>>>,
    mark: Mutex<Mark>,
    /// Milliseconds of the mark, for a look without the lock.
    marked: AtomicU64,
    /// Latest time that was handed in.
    latest: AtomicU64,
    /// Time since maintenance first saw frames in a segment; a restart begins anew.
    ages: Mutex<BTreeMap<u32, Stopwatch>>,
    hints: Mutex<hints::Hints>,
    /// True once the store is being closed: sweeps and counts end early, and rest no more.
    is_closing: AtomicBool,
    /// Last counts, the time since they were made, and the time that they took.
    counted: Mutex<Option<(Stopwatch, Duration, Stats)>>,
    /// One retirement or sweep at a time: one thread writes to the cold store.
    maintenance: tokio::sync::Mutex<()>,
    disk: Arc<dyn super::disk::Disk>,
    options: Options,
}

impl<C: ColdStore> Core<C> {
    fn faults(&self) -> Faults {
        self.options.settings.faults
    }

    /// Returns true if the cold store may hold records of this kind. Read it under the lock of a shard, after the index.
    fn has_cold(&self, kind: Kind) -> bool {
        self.has_cold[usize::from(kind.code())].load(Ordering::SeqCst)
    }

    /// Returns true if a cold record with this expiry is being swept.
    fn is_swept(&self, kind: Kind, expires_at: Timestamp) -> bool {
        expires_at.as_millis() < self.swept_until[usize::from(kind.code())].load(Ordering::SeqCst)
    }

    /// Makes the cold store durable. A failed sync is final: a second one proves nothing.
    fn sync_cold(&self) -> Result<()> {
        self.cold.sync().inspect_err(|_| self.log.poison("the cold store could not be synced"))
    }

    fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, now: Timestamp) {
        if self.latest.load(Ordering::Relaxed) < now.as_millis() {
            self.latest.fetch_max(now.as_millis(), Ordering::Relaxed);
        }
    }
}

/// A store in a folder of this machine.
pub struct Embedded<C: ColdStore> {
    // Dropped in this order: first the socket for backups, then whoever writes to the cold store, then the readers, then the log, which seals itself.
    control: Option<Control>,
    #[expect(dead_code, reason = "held until the store is dropped")]
    maintainer: Option<Maintainer>,
    reads: Pool,
    /// Listings of users.
    walks: Pool,
    /// Listings of kinds without a map, on one thread.
    passes: Pool,
    /// Sweeps and backups: they rest and wait for each other, and nobody else waits for them.
    chores: Pool,
    /// Counts, one at a time.
    counts: Pool,
    #[expect(dead_code, reason = "held until the store is dropped")]
    threads: Option<Threads>,
    pub(crate) core: Arc<Core<C>>,
    /// The folder that it is in, locked; none on a disk of tests.
    folder: Option<Arc<Folder>>,
}

impl<C: ColdStore> Drop for Embedded<C> {
    fn drop(&mut self) {
        // The pools end when their work does.
        self.core.is_closing.store(true, Ordering::Relaxed);
    }
}

/// The thread that retires segments which are too old or too many.
struct Maintainer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Maintainer {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
