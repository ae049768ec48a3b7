//! Opening a store: recovery of the log, and the index from its frames.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Core, Embedded, Maintainer, Mark, Options};
use crate::engines::log::cold::{ColdStore, Window};
use crate::engines::log::disk::Disk;
use crate::engines::log::frame::Frame;
use crate::engines::log::index::{Entry, Index, Presence};
use crate::engines::log::manifest::Manifest;
use crate::engines::log::ordered::Ordered;
use crate::engines::log::pool::Pool;
use crate::engines::log::position::Position;
use crate::engines::log::recovery;
use crate::engines::log::segment::{Segment, failed};
use crate::engines::log::writer::{Log, Threads, read_frame};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Time between two looks at the age and the size of the log.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// State that replay builds.
struct Replay {
    index: Index,
    ordered: Ordered,
    mark: Option<Timestamp>,
    segments: BTreeMap<u32, Arc<Segment>>,
}

impl Replay {
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
        let entry = Entry::new(hash, kind, at, presence, may_be_cold);
        shard.set(old, entry);
        self.ordered.lock(std::iter::once(kind)).set(kind, key, entry);
        Ok(())
    }
}

/// Fails if the cold store has lost a window that the manifest names.
fn check_windows(manifest: &Manifest, cold: &impl ColdStore) -> Result<()> {
    for (code, end) in &manifest.windows {
        let kind = Kind::from_code(*code).filter(|kind| cold.windows(*kind).contains(&Window(*end)));
        if kind.is_none() {
            let name = Kind::from_code(*code).map_or("unknown", Kind::name);
            return Err(Error::corrupt(format!(
                "window {end} of kind {name} is missing from the cold store"
            )));
        }
    }
    Ok(())
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
        let (seed, mark) =
            found.map(|manifest| (manifest.hash_seed, manifest.clock_mark)).unwrap_or_default();
        let mut replay = Replay {
            index: new_index(&seed, options),
            ordered: Ordered::new(options.is_listed),
            mark: mark.map(Timestamp::from_stored).transpose()?,
            segments: BTreeMap::new(),
        };
        let settings = options.settings.clone();
        let recovered =
            recovery::open(&disk, &settings, &mut |segment, at, frame| replay.apply(segment, at, frame))?;
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
            mark: Mutex::new(Mark { time: mark, at: None }),
            latest: AtomicU64::new(0),
            births: Mutex::default(),
            is_short: AtomicBool::new(false),
            maintenance: tokio::sync::Mutex::new(()),
            disk,
            options: options.clone(),
        });
        core.measure_space();
        let has_threads = options.read_threads > 0;
        Ok(Self {
            control: None,
            folder: None,
            maintainer: has_threads.then(|| Maintainer::start(&core)).transpose()?,
            reads: Pool::new("ebbtide-reads", options.read_threads)?,
            walks: Pool::new("ebbtide-walks", options.walk_threads)?,
            threads: has_threads.then(|| Threads::start(&log)).transpose()?,
            core,
        })
    }

    /// Runs one waiting job of the pools, for stores without threads.
    pub(crate) fn step_pools(&self) -> bool {
        self.reads.step() || self.walks.step()
    }
}

impl Maintainer {
    fn start<C: ColdStore>(core: &Arc<Core<C>>) -> Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let work = move || {
            let mut is_stopped = stopped.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_stopped && !core.log.is_poisoned() {
                drop(is_stopped);
                if let Err(error) = pollster::block_on(core.maintain()) {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(%error, cause, "a segment of the log could not be retired");
                }
                is_stopped = stopped.0.lock().unwrap_or_else(PoisonError::into_inner);
                if !*is_stopped {
                    let waited = stopped.1.wait_timeout(is_stopped, MAINTAIN_EVERY);
                    is_stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ebbtide-retire".to_owned()).spawn(work);
        Ok(Self { stop, thread: Some(thread.map_err(|error| failed("cannot start a thread", error))?) })
    }
}
