//! Opening a store: recovery of the log, and the index from its frames.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::hints::Hints;
use super::{Core, Embedded, Maintainer, Mark, Options};
use crate::engines::log::cold::{ColdStore, Window};
use crate::engines::log::disk::Disk;
use crate::engines::log::frame::Frame;
use crate::engines::log::hint::{self, Hint};
use crate::engines::log::index::{Index, IndexEntry, Presence};
use crate::engines::log::manifest::Manifest;
use crate::engines::log::ordered::Ordered;
use crate::engines::log::pool::Pool;
use crate::engines::log::position::Position;
use crate::engines::log::recovery;
use crate::engines::log::segment::{Segment, failed};
use crate::engines::log::writer::{ClosesOnPanic, Log, Threads, read_frame};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Time between two looks at the age and the size of the log.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// Looks after which the next segment is taken, needed or not: a disk that is full all at once can still revoke. Short
/// commands take none.
const SPARE_AFTER: u32 = 5;

/// State that replay builds.
struct Replay {
    index: Index,
    ordered: Ordered,
    mark: Option<Timestamp>,
    segments: BTreeMap<u32, Arc<Segment>>,
}

impl Replay {
    /// Loads what hints have. Without any, and if one is damaged, nothing.
    fn begin(disk: &dyn Disk, manifest: Option<&Manifest>, options: &Options) -> Result<(Self, Vec<Hint>)> {
        let seed = manifest.map(|manifest| manifest.hash_seed).unwrap_or_default();
        let new = || Self {
            index: new_index(&seed, options),
            ordered: Ordered::new(options.is_listed),
            mark: None,
            segments: BTreeMap::new(),
        };
        let mut replay = new();
        let Some(manifest) = manifest else { return Ok((replay, Vec::new())) };
        let mut hints = hint::find(disk, &manifest.segments, options.is_listed, manifest.first_sequence);
        let is_loaded = hint::load(&replay.index, &hints, &mut |entry, key| {
            if let Some(kind) = Kind::from_code(entry.kind_code()) {
                replay.ordered.lock(std::iter::once(kind)).set(kind, key, entry);
            }
        });
        if !is_loaded {
            tracing::warn!("a hint of the log is damaged; the log is read instead");
            hints.clear();
            replay = new();
        }
        for entry in &manifest.segments[..hints.len()] {
            replay.segments.insert(entry.id, Arc::new(Segment::open(disk, entry)?));
        }
        replay.mark = match hints.iter().rev().find_map(|hint| hint.mark) {
            Some(mark) => Some(mark),
            None => manifest.clock_mark.map(Timestamp::from_stored).transpose()?,
        };
        Ok((replay, hints))
    }

    fn apply(&mut self, segment: &Arc<Segment>, at: Position, frame: Frame<'_>) -> Result<()> {
        self.segments.entry(segment.id).or_insert_with(|| Arc::clone(segment));
        let (kind, key, presence, may_be_cold) = match frame {
            Frame::Store(stored) => {
                (stored.kind, stored.key, Presence::Stored(stored.expires_at), stored.may_be_cold)
            }
            Frame::Delete { kind, key, may_be_cold } => (kind, key, Presence::Deleted, may_be_cold),
            Frame::Mark(mark) => {
                self.mark = Some(mark);
                return Ok(());
            }
        };
        let hash = self.index.hash(kind, key);
        let mut shard = self.index.shard_of(hash);
        let mut old = None;
        for entry in shard.with_hash(hash) {
            if let Some(segment) = self.segments.get(&entry.position().segment()) {
                let bytes = read_frame(segment, entry.position().offset())?;
                if Frame::read(&bytes)?.0.key() == Some((kind, key)) {
                    old = Some(entry);
                }
            }
        }
        let entry = IndexEntry::new(hash, kind, at, presence, may_be_cold);
        shard.set(old, entry);
        self.ordered.lock(std::iter::once(kind)).set(kind, key, entry);
        Ok(())
    }
}

/// Fails if the cold store has lost a window that the manifest names.
fn check_windows(manifest: &Manifest, cold: &impl ColdStore) -> Result<()> {
    for (code, end, generation) in &manifest.windows {
        let kind = Kind::from_code(*code);
        let found = kind.map(|kind| cold.generation(kind, Window(*end))).transpose()?.flatten();
        if found.is_none_or(|found| found < *generation) {
            let name = kind.map_or("unknown", Kind::name);
            let problem = found.map_or_else(
                || "is missing".to_owned(),
                |found| format!("has lost bulks: the last one is {found} instead of {generation}"),
            );
            return Err(Error::corrupt(format!("window {end} of kind {name} of the cold store {problem}")));
        }
    }
    Ok(())
}

fn hinted(manifest: &Manifest, hints: &[Hint]) -> Hints {
    let ids = manifest.segments.iter().map(|entry| entry.id);
    let unread: Vec<_> = ids.zip(hints.iter().map(|hint| (hint.first, hint.last, hint.end))).collect();
    Hints { tried: unread.iter().map(|(id, _)| *id).collect(), unread }
}

fn new_index(seed: &[u8; 16], options: &Options) -> Index {
    let index = Index::new(seed);
    #[cfg(test)]
    let index = index.masked(options.hash_mask);
    let _ = options;
    index
}

impl<C: ColdStore> Embedded<C> {
    /// Opens the store on `disk`, with the cold store that `cold` opens. The caller has locked the folder.
    pub fn open(disk: Arc<dyn Disk>, options: &Options, cold: impl FnOnce() -> Result<C>) -> Result<Self> {
        let found = Manifest::read(disk.as_ref())?;
        let cold = cold()?;
        if found.is_none() && Kind::ALL.iter().any(|kind| !cold.windows(*kind).is_empty()) {
            return Err(Error::corrupt("the log is missing beside its cold store"));
        }
        let seed = found.as_ref().map(|manifest| manifest.hash_seed).unwrap_or_default();
        let (mut replay, hints) = Replay::begin(disk.as_ref(), found.as_ref(), options)?;
        let settings = options.settings.clone();
        let recovered = recovery::open(&disk, &settings, &hints, &mut |segment, at, frame| {
            replay.apply(segment, at, frame)
        })?;
        let manifest = recovered.manifest.current().clone();
        let Replay { mut index, ordered, mark, .. } = replay;
        if manifest.hash_seed != seed {
            // The store is new.
            index = new_index(&manifest.hash_seed, options);
        }
        check_windows(&manifest, &cold)?;
        let log = Arc::new(Log::new(Arc::clone(&disk), settings, recovered, options.keep_bytes));
        let has_cold: Box<[AtomicBool]> = (0..=u8::MAX)
            .map(|code| {
                let kind = Kind::from_code(code);
                AtomicBool::new(kind.is_some_and(|kind| !cold.windows(kind).is_empty()))
            })
            .collect();
        // A crash may have ended the retirement of the oldest segment after its records were in the cold store.
        let retiring = manifest.segments.first().map_or(0, |segment| segment.id);
        let core = Arc::new(Core {
            log: Arc::clone(&log),
            cold,
            index,
            ordered,
            has_cold,
            swept_until: (0..=u8::MAX).map(|_| AtomicU64::new(0)).collect(),
            retiring: AtomicU32::new(retiring),
            moves: AtomicU64::new(0),
            removals: AtomicU64::new(0),
            passes: Mutex::default(),
            mark: Mutex::new(Mark { time: mark, at: None }),
            marked: AtomicU64::new(mark.map_or(0, Timestamp::as_millis)),
            latest: AtomicU64::new(0),
            ages: Mutex::default(),
            hints: Mutex::new(hinted(&manifest, &hints)),
            is_closing: AtomicBool::new(false),
            counted: Mutex::default(),
            maintenance: tokio::sync::Mutex::new(()),
            disk,
            options: options.clone(),
        });
        core.log.keep_reserve(options.reserve_bytes);
        core.measure_space();
        let has_threads = options.read_threads > 0;
        Ok(Self {
            control: None,
            folder: None,
            maintainer: has_threads.then(|| Maintainer::start(&core)).transpose()?,
            reads: Pool::new("ebbtide-reads", options.read_threads)?,
            walks: Pool::new("ebbtide-walks", options.walk_threads)?,
            passes: Pool::new("ebbtide-passes", options.walk_threads.min(1))?,
            chores: Pool::new("ebbtide-chores", options.walk_threads)?,
            counts: Pool::new("ebbtide-counts", options.walk_threads.min(1))?,
            threads: has_threads.then(|| Threads::start(&log)).transpose()?,
            core,
        })
    }

    /// Runs one waiting job of the pools, for stores without threads.
    #[cfg(test)]
    pub(crate) fn step_pools(&self) -> bool {
        let pools = [&self.reads, &self.walks, &self.passes, &self.chores, &self.counts];
        pools.into_iter().any(Pool::step)
    }
}

impl Maintainer {
    fn start<C: ColdStore>(core: &Arc<Core<C>>) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (hinted, core, stopped) = (Arc::clone(core), Arc::clone(core), Arc::clone(&stop));
        let work = move || {
            let _guard = ClosesOnPanic(&core.log);
            let mut is_stopped = stopped.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut rounds, mut told) = (0, None);
            while !*is_stopped && !core.log.is_poisoned() {
                drop(is_stopped);
                rounds += 1;
                if rounds == SPARE_AFTER {
                    core.log.want_segment();
                }
                // A disk that stays full fails each time: it is said once.
                let failed = pollster::block_on(core.maintain()).err().map(|error| {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    (error.to_string(), cause)
                });
                if let Some((error, cause)) = failed.as_ref().filter(|_| failed != told) {
                    tracing::error!(%error, cause, "a segment of the log could not be retired; trying again each second");
                }
                told = failed;
                is_stopped = stopped.0.lock().unwrap_or_else(PoisonError::into_inner);
                if !*is_stopped {
                    let waited = stopped.1.wait_timeout(is_stopped, MAINTAIN_EVERY);
                    is_stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            thread.map_err(|error| failed("cannot start a thread", error))
        };
        let mut threads = vec![start("ebbtide-retire", Box::new(work))?];
        if !hinted.hints().unread.is_empty() {
            let verify = move || {
                let _guard = ClosesOnPanic(&hinted.log);
                hinted.read_hinted();
            };
            threads.push(start("ebbtide-verify", Box::new(verify))?);
        }
        Ok(Self { stop, threads })
    }
}
