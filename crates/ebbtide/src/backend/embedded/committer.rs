//! The committer: one thread that makes every change.
//!
//! It drains a bounded queue, judges each commit against the engine and what the group has written so far, writes
//! one batch with one fsync, and answers all. What a later commit of the group was refused for may not be durable
//! yet, so no one is answered before the batch is.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use metrics::histogram;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::engine::{Engine, Op, Walk};
use super::ledger::{Changes, Ledger, change};
use super::stored;
use crate::backend::Erased;
use crate::error::{Error, Result};
use crate::key::{Key, Prefix};
use crate::record::{Record, Version};
use crate::time::Timestamp;
use crate::write::{Batch, Commit, Effect};

/// The most jobs that wait, and the most that are written together.
const QUEUE: usize = 2_048;

/// The most KiB that wait: a queue full of the largest batches would take gigabytes.
const QUEUE_KIB: usize = 64 * 1_024;

/// The most records that one erasing job removes, so that commits do not wait long behind it.
const ERASE_RUN: usize = 2_000;

/// Where the clock mark is among what the store keeps of itself.
const MARK: &[u8] = b"mark";

type Answer<T> = oneshot::Sender<Result<T>>;

pub(super) enum Job {
    Commit { batch: Batch, now: Timestamp, answer: Answer<Commit>, room: OwnedSemaphorePermit },
    Take { key: Key, now: Timestamp, answer: Answer<Option<Record>> },
    Erase { prefix: Prefix, now: Timestamp, answer: Answer<Erased> },
    Settle { changes: Changes, answer: Answer<()> },
    SetMark { mark: Timestamp, answer: Answer<()> },
}

/// What the committer shares with the readers.
pub(super) struct Shared<E> {
    pub(super) engine: E,
    ledger: Mutex<Ledger>,
    mark: Mutex<Option<Timestamp>>,
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
}

fn read_mark(value: &[u8]) -> Result<Timestamp> {
    let bytes = value.try_into().map_err(|_| Error::corrupt("the clock mark cannot be read"))?;
    Timestamp::from_stored(u64::from_be_bytes(bytes))
}

fn poisoned() -> Error {
    Error::unavailable("a write to the disk has failed; the store takes up work again when it is reopened")
}

/// The way to the committer's thread. Dropping it ends the thread, after what is in the queue.
pub(super) struct Committer {
    queue: Option<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn start<E: Engine>(shared: Arc<Shared<E>>, leap_bound: Duration) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("ebbtide-committer".to_owned())
            .spawn(move || Worker { shared, leap_bound }.run(jobs))
            .map_err(|error| Error::unavailable("cannot start the committer's thread").caused_by(error))?;
        Ok(Self { queue: Some(queue), room: Arc::new(Semaphore::new(QUEUE_KIB)), thread: Some(thread) })
    }

    pub(super) async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let kib = u32::try_from(batch.byte_size() / 1_024 + 1).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await.map_err(|_| poisoned())?;
        self.ask(|answer| Job::Commit { batch, now, answer, room }).await
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
        if let Some(thread) = self.thread.take() {
            // A committer that panicked has answered nobody; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

/// Who gets which answer once the group is durable.
enum Reply {
    Commit(Answer<Commit>, Commit),
    Take(Answer<Option<Record>>, Option<Record>),
    Erase(Answer<Erased>, Erased),
    Done(Answer<()>),
}

impl Reply {
    /// A caller that has gone away needs no answer.
    fn send(self, written: bool) {
        fn to<T>(answer: Answer<T>, value: T, written: bool) {
            let _ = answer.send(if written { Ok(value) } else { Err(poisoned()) });
        }
        match self {
            Self::Commit(answer, commit) => to(answer, commit, written),
            Self::Take(answer, record) => to(answer, record, written),
            Self::Erase(answer, erased) => to(answer, erased, written),
            Self::Done(answer) => to(answer, (), written),
        }
    }
}

/// What one batch of the engine will hold.
#[derive(Default)]
struct Group {
    writes: HashMap<Key, Option<Bytes>>,
    run: Option<(crate::kind::Kind, Vec<Vec<u8>>)>,
    changes: Changes,
    now: Option<Timestamp>,
    mark: Option<Timestamp>,
    replies: Vec<Reply>,
    rooms: Vec<OwnedSemaphorePermit>,
}

impl Group {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.run.is_none() && self.changes.is_empty() && self.mark.is_none()
    }

    /// The kit's time is not the world's, and moves no mark.
    fn saw(&mut self, key: &Key, now: Timestamp) {
        if !key.kind().is_probe() {
            self.now = self.now.max(Some(now));
        }
    }
}

struct Worker<E> {
    shared: Arc<Shared<E>>,
    leap_bound: Duration,
}

impl<E: Engine> Worker<E> {
    fn run(self, mut jobs: mpsc::Receiver<Job>) {
        let mut waiting = Vec::with_capacity(QUEUE);
        while jobs.blocking_recv_many(&mut waiting, QUEUE) > 0 {
            histogram!("ebbtide_committer_group_size")
                .record(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
            let mut group = Group::default();
            for job in waiting.drain(..) {
                if matches!(job, Job::Commit { .. } | Job::Take { .. }) {
                    self.join(&mut group, job);
                } else {
                    // What looks at many records looks at what is written.
                    self.write(std::mem::take(&mut group));
                    self.write(self.alone(job));
                }
            }
            self.write(group);
        }
    }

    fn join(&self, group: &mut Group, job: Job) {
        match job {
            Job::Commit { batch, now, answer, room } => {
                group.rooms.push(room);
                match self.judge(group, batch, now) {
                    Ok(commit) => group.replies.push(Reply::Commit(answer, commit)),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
            Job::Take { key, now, answer } => match self.take(group, key, now) {
                Ok(record) => group.replies.push(Reply::Take(answer, record)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Job::Erase { .. } | Job::Settle { .. } | Job::SetMark { .. } => {}
        }
    }

    fn alone(&self, job: Job) -> Group {
        let mut group = Group::default();
        match job {
            Job::Erase { prefix, now, answer } => match self.erase(&mut group, &prefix, now) {
                Ok(erased) => group.replies.push(Reply::Erase(answer, erased)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Job::Settle { changes, answer } => {
                group.changes = changes;
                group.replies.push(Reply::Done(answer));
            }
            Job::SetMark { mark, answer } => {
                group.mark = Some(mark);
                group.replies.push(Reply::Done(answer));
            }
            Job::Commit { .. } | Job::Take { .. } => {}
        }
        group
    }

    fn standing(&self, group: &Group, key: &Key) -> Result<Option<Bytes>> {
        match group.writes.get(key) {
            Some(written) => Ok(written.clone()),
            None => self.shared.engine.get(key.kind(), key.as_bytes()),
        }
    }

    fn judge(&self, group: &mut Group, batch: Batch, now: Timestamp) -> Result<Commit> {
        let mut heads: Vec<Option<(Version, Timestamp)>> = Vec::with_capacity(batch.writes().len());
        for (index, write) in batch.writes().iter().enumerate() {
            let standing = self.standing(group, write.key())?;
            let head = standing.as_deref().map(stored::head).transpose()?;
            if !write.condition().holds(head, now) {
                return Ok(Commit::Refused { index });
            }
            heads.push(head);
        }
        for (write, head) in batch.into_writes().into_iter().zip(heads) {
            let written = match write.effect() {
                Effect::Nothing => continue,
                Effect::Erase if head.is_none() => continue,
                Effect::Erase => None,
                Effect::Store(record) => Some(record),
            };
            let kind = write.key().kind();
            if let Some((_, expires_at)) = head {
                change(&mut group.changes, kind, expires_at, -1);
            }
            if let Some(record) = written {
                change(&mut group.changes, kind, record.expires_at, 1);
            }
            let bytes = written.map(stored::encode);
            let key = write.into_key();
            group.saw(&key, now);
            group.writes.insert(key, bytes);
        }
        Ok(Commit::Applied)
    }

    fn take(&self, group: &mut Group, key: Key, now: Timestamp) -> Result<Option<Record>> {
        let Some(standing) = self.standing(group, &key)? else { return Ok(None) };
        let record = stored::decode(&standing)?;
        if !record.is_live(now) {
            return Ok(None);
        }
        change(&mut group.changes, key.kind(), record.expires_at, -1);
        group.saw(&key, now);
        group.writes.insert(key, None);
        Ok(Some(record))
    }

    fn erase(&self, group: &mut Group, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let kind = prefix.kind();
        let mut keys = Vec::new();
        let mut erased = Erased { removed: 0, more: false };
        let mut outcome = Ok(());
        self.shared.engine.walk(kind, Walk::all(prefix.as_bytes()), &mut |key, value| {
            if keys.len() == ERASE_RUN {
                erased.more = true;
                return ControlFlow::Break(());
            }
            match stored::head(value) {
                Ok((_, expires_at)) => {
                    change(&mut group.changes, kind, expires_at, -1);
                    erased.removed += u64::from(now < expires_at);
                    keys.push(key.to_vec());
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        outcome?;
        if !keys.is_empty() {
            group.run = Some((kind, keys));
        }
        Ok(erased)
    }

    /// Makes the group durable, then answers. A group that changed nothing needs no write.
    fn write(&self, mut group: Group) {
        let mark = group.mark.or_else(|| self.next_mark(group.now));
        let written = self.shared.check().is_ok() && (group.is_empty() || self.store(&group, mark).is_ok());
        if !written {
            self.shared.poisoned.store(true, Ordering::Release);
        }
        for reply in group.replies.drain(..) {
            reply.send(written);
        }
    }

    fn store(&self, group: &Group, mark: Option<Timestamp>) -> Result<()> {
        let mut ops = Vec::with_capacity(group.writes.len() + 4);
        for (key, written) in &group.writes {
            ops.push(match written {
                Some(bytes) => Op::Put(key.kind(), key.as_bytes(), bytes.clone()),
                None => Op::Delete(key.kind(), key.as_bytes()),
            });
        }
        if let Some((kind, keys)) = &group.run {
            ops.push(Op::DeleteRun(*kind, keys));
        }
        ops.extend(self.shared.ledger().rows(&group.changes));
        if let Some(mark) = mark {
            ops.push(Op::PutMeta(MARK.to_vec(), mark.as_millis().to_be_bytes().to_vec()));
        }
        self.shared.engine.write(ops).inspect_err(|error| {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(%error, cause, "a write failed; the store is closed until reopened");
        })?;
        self.shared.ledger().apply(&group.changes);
        if mark.is_some() {
            *self.shared.mark.lock().unwrap_or_else(PoisonError::into_inner) = mark;
        }
        Ok(())
    }

    /// Commits move the mark forwards, but not by a leap: that an operator must confirm.
    fn next_mark(&self, now: Option<Timestamp>) -> Option<Timestamp> {
        let now = now?;
        match self.shared.mark() {
            None => Some(now),
            Some(mark) if now > mark && now.since(mark) <= self.leap_bound => Some(now),
            Some(_) => None,
        }
    }
}
