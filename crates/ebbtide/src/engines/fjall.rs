//! The embedded default: fjall, in pure Rust.

mod journals;
mod memtables;
mod reclaim;
mod views;

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use fjall::compaction::filter::Factory;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use self::journals::Journals;
use self::memtables::Memtables;
use self::reclaim::{Expiry, Replaced};
use self::views::Views;
use super::embedded::{Embedded, Engine, Op, Options, Pace, Visitor, Walk, lower_priority};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Opens the store behind `fjall:`.
pub(super) fn open(rest: &str) -> Result<Embedded<Fjall>> {
    Embedded::open(&Options::parse(rest)?)
}

const META: &str = "meta";

/// The size from which a memtable is flushed. In a larger one the searches take longer, of which a commit makes two.
const MEMTABLE_BYTES: u64 = 16 << 20;

/// The most journal that is kept, and so the most that opening reads again. What is seldom written is flushed for it.
const JOURNAL_BYTES: u64 = 128 << 20;

pub(super) struct Fjall {
    database: Database,
    meta: Keyspace,
    /// By the code of the kind. Made when the first record of a kind is written: an empty store opens in no time.
    spaces: Vec<OnceLock<Keyspace>>,
    journals: Journals,
    memtables: Memtables,
    views: Views,
    /// Tables that sweeps have replaced, and that the engine may still have.
    replaced: Mutex<Vec<Replaced>>,
}

impl Fjall {
    fn space(&self, kind: Kind) -> Option<&Keyspace> {
        self.spaces[usize::from(kind.code())].get()
    }

    fn all_spaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.spaces.iter().filter_map(OnceLock::get).chain([&self.meta])
    }

    /// Only whoever writes for the committer calls this, so no two threads make one keyspace.
    fn space_or_new(&self, kind: Kind) -> Result<&Keyspace> {
        let slot = &self.spaces[usize::from(kind.code())];
        if let Some(space) = slot.get() {
            return Ok(space);
        }
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let space = self.database.keyspace(kind.name(), options).map_err(failed)?;
        Ok(slot.get_or_init(|| space))
    }
}

impl Engine for Fjall {
    type Snapshot<'a> = Snapshot;

    const NAME: &'static str = "fjall";

    fn open(dir: &Path, cache_bytes: u64) -> Result<Self> {
        let factory = Arc::new(Expiry);
        let builder = Database::builder(dir)
            .cache_size(cache_bytes)
            .worker_threads(reclaim::WORKERS)
            .max_journaling_size(JOURNAL_BYTES)
            // The committer asks for durability by itself, once for a group.
            .manual_journal_persist(true)
            .with_compaction_filter_factories(Arc::new(move |name| {
                (name != META).then(|| Arc::clone(&factory) as Arc<dyn Factory>)
            }));
        // The engine's own threads are as nice as the one that starts them.
        let opening = || {
            lower_priority();
            builder.open().map_err(failed)
        };
        let opened = std::thread::scope(|scope| scope.spawn(opening).join());
        let database =
            opened.map_err(|_| Error::unavailable("the engine panicked while it was opened"))??;
        let meta = database.keyspace(META, KeyspaceCreateOptions::default).map_err(failed)?;
        let spaces: Vec<OnceLock<Keyspace>> = (0..=u8::MAX).map(|_| OnceLock::new()).collect();
        for &kind in Kind::ALL {
            if database.keyspace_exists(kind.name()) {
                let space = database.keyspace(kind.name(), KeyspaceCreateOptions::default).map_err(failed)?;
                spaces[usize::from(kind.code())].get_or_init(|| space);
            }
        }
        Ok(Self {
            database,
            meta,
            spaces,
            journals: Journals::new(dir.to_owned()),
            memtables: Memtables::default(),
            views: Views::default(),
            replaced: Mutex::default(),
        })
    }

    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(space) = self.space(kind) else { return Ok(None) };
        Ok(space.get(key).map_err(failed)?.map(Bytes::from))
    }

    fn walk(&self, kind: Kind, walk: Walk<'_>, visit: Visitor<'_>) -> Result<()> {
        let Some(space) = self.space(kind) else { return Ok(()) };
        let items = self.snapshot().range::<&[u8], _>(space, (walk.start, Bound::Unbounded));
        visit_all(items, walk.prefix, visit)
    }

    fn write(&self, ops: Vec<Op<'_>>) -> Result<()> {
        let _room = self.journals.room(ops.iter().map(Op::changes).sum(), ops.iter().map(Op::bytes).sum());
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for op in ops {
            match op {
                Op::Put(kind, key, value) => batch.insert(self.space_or_new(kind)?, key, value),
                Op::Delete(kind, key) => batch.remove(self.space_or_new(kind)?, key),
                Op::DeleteRun(kind, keys) => {
                    let space = self.space_or_new(kind)?;
                    for key in keys {
                        batch.remove(space, key.as_slice());
                    }
                }
                Op::PutMeta(key, value) => batch.insert(&self.meta, key, value),
                Op::DeleteMeta(key) => batch.remove(&self.meta, key),
            }
        }
        self.memtables.hold(self.all_spaces());
        self.views.write(&self.database, || batch.commit()).map_err(failed)
    }

    fn snapshot(&self) -> Snapshot {
        self.views.open(&self.database)
    }

    fn walk_snapshot(&self, snapshot: &Snapshot, kind: Kind, visit: Visitor<'_>) -> Result<()> {
        let Some(space) = self.space(kind) else { return Ok(()) };
        visit_all(snapshot.iter(space), &[], visit)
    }

    fn walk_meta(&self, snapshot: &Snapshot, visit: Visitor<'_>) -> Result<()> {
        visit_all(snapshot.iter(&self.meta), &[], visit)
    }

    fn compact(&self, kind: Kind, cutoff: Timestamp, pace: &Arc<Pace>) -> Result<()> {
        let Some(space) = self.space(kind) else { return Ok(()) };
        let replaced = reclaim::compact(&self.database, space, cutoff, pace).map_err(failed)?;
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).push(replaced);
        Ok(())
    }

    fn give_back(&self) -> Result<()> {
        // With a rotation the engine lets go of what has been replaced in all keyspaces, unless someone still reads it.
        self.meta.rotate_memtable().map_err(failed)?;
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        let copy = Self::open(dir, 16 << 20)?;
        let snapshot = self.snapshot();
        for &kind in Kind::ALL.iter().filter(|kind| self.space(**kind).is_some()) {
            let mut chunk = Copying::new(&copy);
            self.walk_snapshot(&snapshot, kind, &mut |key, value| chunk.add(Some(kind), key, value))?;
            chunk.finish()?;
        }
        let mut chunk = Copying::new(&copy);
        self.walk_meta(&snapshot, &mut |key, value| chunk.add(None, key, value))?;
        chunk.finish()
    }
}

/// Copies records into another database, some thousands at a time.
struct Copying<'a> {
    to: &'a Fjall,
    rows: Vec<(Option<Kind>, Vec<u8>, Vec<u8>)>,
    outcome: Result<()>,
}

impl<'a> Copying<'a> {
    fn new(to: &'a Fjall) -> Self {
        Self { to, rows: Vec::new(), outcome: Ok(()) }
    }

    fn add(&mut self, kind: Option<Kind>, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.rows.push((kind, key.to_vec(), value.to_vec()));
        if self.rows.len() == 4_096 {
            self.outcome = self.flush();
        }
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let op = |(kind, key, value): &'_ (Option<Kind>, Vec<u8>, Vec<u8>)| match kind {
            Some(_) => None,
            None => Some(Op::PutMeta(key.clone(), value.clone())),
        };
        let mut ops: Vec<Op<'_>> = rows.iter().filter_map(op).collect();
        for (kind, key, value) in &rows {
            if let Some(kind) = kind {
                ops.push(Op::Put(*kind, key, Bytes::copy_from_slice(value)));
            }
        }
        self.to.write(ops)
    }

    fn finish(mut self) -> Result<()> {
        std::mem::replace(&mut self.outcome, Ok(()))?;
        self.flush()
    }
}

fn visit_all(items: impl Iterator<Item = Guard>, prefix: &[u8], visit: Visitor<'_>) -> Result<()> {
    for item in items {
        let (key, value) = item.into_inner().map_err(failed)?;
        if !key.starts_with(prefix) || visit(&key, &value).is_break() {
            break;
        }
    }
    Ok(())
}

fn failed(error: fjall::Error) -> Error {
    let kind = match &error {
        fjall::Error::InvalidVersion(_) | fjall::Error::JournalRecovery(_) => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "the embedded engine failed").caused_by(error)
}
