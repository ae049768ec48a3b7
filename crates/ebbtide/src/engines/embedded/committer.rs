//! The committer: the one place where changes are made.
//!
//! Jobs wait in a bounded queue. Two threads take turns: one judges what has come against the engine and what is being
//! written, while the other writes a group with one fsync and answers it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::engine::Engine;
use super::ledger::{Changes, Ledger};
use super::turns::Turns;
use crate::admin::Erased;
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};

/// The most jobs that wait, and the most that are written together.
pub(super) const QUEUE: usize = 2_048;

/// The most KiB that wait: a queue full of the largest batches would take gigabytes.
const QUEUE_KIB: usize = 64 * 1_024;

/// The most bytes of batches that one job commits each by itself.
const TOGETHER_BYTES: usize = 4 << 20;

/// Where the clock mark is among what the store keeps of itself.
pub(super) const MARK: &[u8] = b"mark";

pub(super) type Answer<T> = oneshot::Sender<Result<T>>;

pub(super) enum Job {
    Commit {
        batch: Batch,
        now: Timestamp,
        answer: Answer<Commit>,
        room: OwnedSemaphorePermit,
    },
    Each {
        batches: Vec<Batch>,
        now: Timestamp,
        answer: Answer<Vec<Commit>>,
        room: OwnedSemaphorePermit,
    },
    Take {
        key: Key,
        now: Timestamp,
        answer: Answer<Option<Record>>,
    },
    Alter {
        key: Key,
        alteration: Alteration,
        now: Timestamp,
        answer: Answer<Altered>,
        room: OwnedSemaphorePermit,
    },
    Erase {
        prefix: Prefix,
        now: Timestamp,
        answer: Answer<Erased>,
    },
    Settle {
        changes: Changes,
        answer: Answer<()>,
    },
    SetMark {
        mark: Timestamp,
        answer: Answer<()>,
    },
}

impl Job {
    /// The first key that it is about.
    pub(super) fn key(&self) -> Option<&Key> {
        match self {
            Self::Commit { batch, .. } => batch.writes().first().map(Write::key),
            Self::Take { key, .. } | Self::Alter { key, .. } => Some(key),
            Self::Each { .. } | Self::Erase { .. } | Self::Settle { .. } | Self::SetMark { .. } => None,
        }
    }
}

/// What the committer shares with the readers.
pub(super) struct Shared<E> {
    pub(super) engine: E,
    ledger: Mutex<Ledger>,
    pub(super) mark: Mutex<Option<Timestamp>>,
    poisoned: AtomicBool,
}

impl<E: Engine> Shared<E> {
    /// Reads the ledger and the clock mark, which are small.
    pub(super) fn load(engine: E) -> Result<Self> {
        let mut ledger = Ledger::default();
        let mut mark = None;
        let mut outcome = Ok(());
        engine.walk_meta(&engine.snapshot(), &mut |key, value| {
            let read = if key == MARK {
                read_mark(value).map(|read| mark = Some(read))
            } else {
                ledger.read_row(key, value)
            };
            outcome = read;
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        Ok(Self {
            engine,
            ledger: Mutex::new(ledger),
            mark: Mutex::new(mark),
            poisoned: AtomicBool::new(false),
        })
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mark(&self) -> Option<Timestamp> {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses every call once a write has failed: what is on the disk is known only after opening it again.
    pub(super) fn check(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) { Err(poisoned()) } else { Ok(()) }
    }

    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }
}

fn read_mark(value: &[u8]) -> Result<Timestamp> {
    let bytes = value.try_into().map_err(|_| Error::corrupt("the clock mark is malformed"))?;
    Timestamp::from_stored(u64::from_be_bytes(bytes))
}

pub(super) fn poisoned() -> Error {
    Error::unavailable("a write to the disk failed; reopen the store to resume")
}

/// The way to the committer's threads. Dropping it ends them, after what is in the queue.
pub(super) struct Committer {
    queue: Option<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn start<E: Engine>(shared: Arc<Shared<E>>, leap_bound: Duration) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let turns = Arc::new(Turns::new(shared, leap_bound, jobs));
        let start = |_| {
            let turns = Arc::clone(&turns);
            std::thread::Builder::new().name("ebbtide-committer".to_owned()).spawn(move || turns.run())
        };
        let threads = (0..2).map(start).collect::<std::io::Result<_>>();
        let threads = threads
            .map_err(|error| Error::unavailable("cannot start the committer thread").caused_by(error))?;
        Ok(Self { queue: Some(queue), room: Arc::new(Semaphore::new(QUEUE_KIB)), threads })
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let room = self.room(batch.byte_size()).await?;
        self.ask(|answer| Job::Commit { batch, now, answer, room }).await
    }

    pub(super) async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        alteration.check()?;
        let bytes = if let Alteration::Swap { record } = alteration { record.value.len() } else { 0 };
        let room = self.room(bytes).await?;
        let (key, alteration) = (key.clone(), alteration.clone());
        self.ask(|answer| Job::Alter { key, alteration, now, answer, room }).await
    }

    pub(super) async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        let mut commits = Vec::with_capacity(batches.len());
        let mut left = batches.into_iter().peekable();
        // So many together that they find room.
        while left.peek().is_some() {
            let mut bytes = 0;
            let some: Vec<Batch> = std::iter::from_fn(|| {
                let batch =
                    left.next_if(|batch| bytes == 0 || bytes + batch.byte_size() <= TOGETHER_BYTES)?;
                bytes += batch.byte_size();
                Some(batch)
            })
            .collect();
            let room = self.room(bytes).await?;
            commits.extend(self.ask(|answer| Job::Each { batches: some, now, answer, room }).await?);
        }
        Ok(commits)
    }

    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let kib = u32::try_from(bytes / 1_024 + 1).unwrap_or(u32::MAX);
        Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(|_| poisoned())
    }

    /// The same as [`Committer::ask`], for a thread that is not one of an async runtime's.
    pub(super) fn ask_blocking<T>(&self, job: impl FnOnce(Answer<T>) -> Job) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.queue().blocking_send(job(answer)).map_err(|_| poisoned())?;
        answered.blocking_recv().map_err(|_| poisoned())?
    }

    fn queue(&self) -> &mpsc::Sender<Job> {
        self.queue.as_ref().expect("the queue is there until this is dropped")
    }

    /// Hands in a job, waiting while the queue is full, and waits for its answer.
    pub(super) async fn ask<T>(&self, job: impl FnOnce(Answer<T>) -> Job) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.queue().send(job(answer)).await.map_err(|_| poisoned())?;
        answered.await.map_err(|_| poisoned())?
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A committer that panicked has answered nobody; there is nothing to add here.
            let _ = thread.join();
        }
    }
}
