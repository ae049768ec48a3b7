//! Compacting a keyspace without what has expired.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::sleep;
use std::time::Duration;

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};
use fjall::{AbstractTree as _, Database, Keyspace};

use crate::engines::embedded::{Pace, stored_millis};
use crate::model::time::{Stopwatch, Timestamp};

/// Of what is written, about this much waits for the disk at the most. The engine asks for all of a table to be on the
/// disk when it is whole, for the last one while nobody else can read or write: 64 MB take long, and every commit waits
/// behind them.
const UNSYNCED: usize = 1 << 20;

/// How many threads flush and compact. With two of them, one turns in circles while the other compacts.
pub(super) const WORKERS: usize = 4;

/// How long the engine's own compactions are waited for, which a flush brings about.
const PATIENCE: Duration = Duration::from_secs(2);

/// The tables before a compaction. Their files are removed when the last who has them lets go of them; the engine would do
/// so while nobody else can read or write, so that they are kept until it has.
pub(super) type Replaced = Box<dyn Any + Send>;

/// Rewrites the keyspace without what has expired before `cutoff`, and answers with what it has replaced.
pub(super) fn compact(
    database: &Database,
    space: &Keyspace,
    cutoff: Timestamp,
    pace: &Arc<Pace>,
) -> fjall::Result<Replaced> {
    let tables = Tables::of(space);
    let (waiting, compactions) = (Stopwatch::start(), database.compactions_completed());
    // The engine's own workers flush, and tell nobody when they have. Then each of them looks for something to compact;
    // one that cannot, because all of the keyspace is being compacted, turns in circles until it can.
    let is_flushing = space.rotate_memtable()?;
    while space.sealed_memtable_count() > 0
        || (is_flushing
            && database.compactions_completed() < compactions + WORKERS
            && waiting.elapsed() < PATIENCE)
    {
        sleep(Duration::from_millis(1));
        tables.sync();
    }
    let flushed = space.l0_table_count();
    let reclaim = Reclaim {
        cutoff: cutoff.as_millis(),
        tables,
        pace: Arc::clone(pace),
        space: space.clone(),
        flushed,
        seen: 0,
    };
    let replaced = space.tree.current_version();
    RECLAIM.set(Some(reclaim));
    let outcome = space.major_compact();
    RECLAIM.take();
    outcome?;
    Ok(Box::new(replaced))
}

thread_local! {
    /// What the next compaction of this thread is for. The engine's own compactions, in threads of its own, drop
    /// nothing by its expiry.
    static RECLAIM: RefCell<Option<Reclaim>> = const { RefCell::new(None) };
}

/// Makes the filter of each compaction.
pub(super) struct Expiry;

impl Factory for Expiry {
    fn name(&self) -> &'static str {
        "expiry"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        match RECLAIM.take() {
            Some(reclaim) => Box::new(reclaim),
            None => Box::new(KeepAll),
        }
    }
}

struct KeepAll;

impl CompactionFilter for KeepAll {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        Ok(Verdict::Keep)
    }
}

struct Reclaim {
    cutoff: u64,
    tables: Tables,
    pace: Arc<Pace>,
    space: Keyspace,
    /// How many tables the engine had flushed, and not compacted yet, when it began.
    flushed: usize,
    seen: u64,
}

impl CompactionFilter for Reclaim {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        self.seen += 1;
        // What is flushed meanwhile waits to be compacted, so that there is no time for rests.
        if self.seen.is_multiple_of(10_000) && self.space.l0_table_count() > self.flushed {
            self.pace.hurry();
        }
        self.pace.record();
        let value = item.value()?;
        if stored_millis(&value).is_some_and(|millis| millis < self.cutoff) {
            // A tombstone, not nothing: what was there before must not come back.
            return Ok(Verdict::Remove);
        }
        self.tables.wrote(item.key().len() + value.len());
        Ok(Verdict::Keep)
    }
}

/// The tables that are being written. A thread has them on the disk as they grow, while the next records are looked at.
struct Tables {
    grown: Option<SyncSender<()>>,
    unsynced: usize,
}

impl Tables {
    fn of(space: &Keyspace) -> Self {
        let mut lengths = Lengths { folder: space.path().join("tables"), known: HashMap::new() };
        lengths.grown();
        // When one is waiting, whoever writes waits for the disk as well.
        let (grown, asked) = sync_channel(1);
        let thread = std::thread::Builder::new().name("ebbtide-tables".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                lengths.sync();
            }
        });
        // Without a thread the engine does all at the end, as it would by itself.
        Self { grown: thread.is_ok().then_some(grown), unsynced: 0 }
    }

    fn wrote(&mut self, bytes: usize) {
        self.unsynced += bytes;
        if self.unsynced >= UNSYNCED {
            self.unsynced = 0;
            self.sync();
        }
    }

    fn sync(&self) {
        if let Some(grown) = &self.grown {
            // The thread ends when this is gone, and not before.
            let _ = grown.send(());
        }
    }
}

/// The length of each table when it was last looked at.
struct Lengths {
    folder: PathBuf,
    known: HashMap<PathBuf, u64>,
}

impl Lengths {
    fn sync(&mut self) {
        for path in self.grown() {
            // Only to have it over with: the engine asks again, and sees what goes wrong.
            let _ = File::open(path).and_then(|file| file.sync_data());
        }
    }

    /// Those that are new or longer than they were.
    fn grown(&mut self) -> Vec<PathBuf> {
        let entries = self.folder.read_dir().into_iter().flatten().filter_map(Result::ok);
        let lengths = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len())));
        lengths
            .filter(|(path, len)| self.known.insert(path.clone(), *len) != Some(*len))
            .map(|(path, _)| path)
            .collect()
    }
}
