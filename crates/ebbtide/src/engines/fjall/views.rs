//! Views that show no half of a batch.
//!
//! A view shows what has a lower number than it. The engine gives a batch its number, then has it written to the disk, and
//! then applies it, change by change; only then does it count on for new views. But a flush or a compaction that ends
//! meanwhile counts on as well, and a view that is opened then shows so much of the batch as has been applied. So
//! whoever opens a view waits for the batch that is being written, if the count has moved since it began.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fjall::{Database, Snapshot};

#[derive(Default)]
pub(super) struct Views {
    state: Mutex<State>,
    written: Condvar,
}

#[derive(Default)]
struct State {
    /// How many batches have been written.
    batches: u64,
    /// Where the count stood when the one began that is being written.
    began: Option<u64>,
}

impl Views {
    /// A view that shows all or nothing of each batch.
    pub(super) fn open(&self, database: &Database) -> Snapshot {
        let view = database.snapshot();
        let state = self.state();
        let batches = state.batches;
        // When that batch is written the view shows all of it, or nothing; those that follow have higher numbers.
        let is_torn = |state: &mut State| {
            state.batches == batches && state.began.is_some_and(|began| view.seqno() > began)
        };
        drop(self.written.wait_while(state, is_torn).unwrap_or_else(PoisonError::into_inner));
        view
    }

    /// Writes a batch. Nobody else writes meanwhile.
    pub(super) fn write<T>(&self, database: &Database, batch: impl FnOnce() -> T) -> T {
        self.state().began = Some(database.visible_seqno());
        let _ended = Ended(self);
        batch()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a batch, also where it panics.
struct Ended<'a>(&'a Views);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.batches += 1;
        state.began = None;
        self.0.written.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use fjall::KeyspaceCreateOptions;

    use super::*;

    #[test]
    fn a_view_waits_for_a_batch_that_it_would_show_half_of_and_for_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::builder(folder.path()).open().unwrap();
        let space = database.keyspace("some", KeyspaceCreateOptions::default).unwrap();
        let views = Views::default();
        space.insert("before", "").unwrap();
        views.write(&database, || drop(views.open(&database)));
        let (opened, told) = channel();
        std::thread::scope(|scope| {
            let opening = views.write(&database, || {
                let count = database.visible_seqno();
                space.rotate_memtable_and_wait().unwrap();
                assert!(database.visible_seqno() > count, "a flush counts on");
                let opening = scope.spawn(|| {
                    drop(views.open(&database));
                    opened.send(()).unwrap();
                });
                told.recv_timeout(Duration::from_millis(200)).expect_err("it waits");
                opening
            });
            opening.join().unwrap();
            told.recv().unwrap();
        });
    }
}
