//! Memtables that the engine is done with.
//!
//! The engine keeps a memtable for some time after it was flushed, and lets go of it while it has the lock that every
//! read and write of the keyspace needs. Freeing half a million records takes hundreds of milliseconds, and everybody
//! would wait for them. So each memtable is held here as well, and freed by a thread once nobody else has it.

use std::any::Any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fjall::{AbstractTree as _, Keyspace};

use crate::engines::embedded::lower_priority;

/// A memtable takes dozens of the largest batches, so that it is enough to look at every sixteenth.
const EVERY: u32 = 16;

/// Those that are held: the one that is written to of each keyspace, and a few that were.
#[derive(Default)]
pub(super) struct Memtables {
    held: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    batches: AtomicU32,
}

impl Memtables {
    /// Is called with each batch. Holds the memtables that these keyspaces write to, and frees those that nobody else has.
    pub(super) fn hold<'a>(&self, spaces: impl IntoIterator<Item = &'a Keyspace>) {
        if !self.batches.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for space in spaces {
            let active: Arc<dyn Any + Send + Sync> = space.tree.active_memtable();
            if !held.iter().any(|other| Arc::ptr_eq(other, &active)) {
                held.push(active);
            }
        }
        let done: Vec<_> = held.extract_if(.., |memtable| Arc::strong_count(memtable) == 1).collect();
        if !done.is_empty() {
            let free = move || {
                lower_priority();
                drop(done);
            };
            // Where no thread can be had, they are freed here and now.
            let _ = std::thread::Builder::new().name("ebbtide-memtables".to_owned()).spawn(free);
        }
    }
}
