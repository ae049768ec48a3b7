//! Whose turn it is: two threads that share the committer's work.
//!
//! One judges each commit against the engine, what the other is writing, and what its own group has changed so far.
//! When the other has written, it writes its group with one fsync, and lets the other judge meanwhile. So the disk
//! waits for nobody, a lone caller is served by one thread, and groups are written in the order in which they were
//! judged. What a commit was refused for may not be durable yet, so no one is answered before the group is.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use bytes::Bytes;
use metrics::histogram;
use rapidhash::fast::RandomState;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::committer::{Answer, Job, MARK, QUEUE, Shared, poisoned};
use super::engine::{Engine, Op, Walk};
use super::ledger::{Changes, change};
use super::stored;
use crate::admin::Erased;
use crate::model::alteration::{Alteration, Altered, Outcome};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Effect};

/// The most records that one erasing job removes, so that commits do not wait long behind it.
const ERASE_RUN: usize = 2_000;

/// Who gets which answer once the group is durable.
enum Reply {
    Commit(Answer<Commit>, Commit),
    Each(Answer<Vec<Commit>>, Vec<Commit>),
    Take(Answer<Option<Record>>, Option<Record>),
    Alter(Answer<Altered>, Altered),
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
            Self::Each(answer, commits) => to(answer, commits, written),
            Self::Take(answer, record) => to(answer, record, written),
            Self::Alter(answer, altered) => to(answer, altered, written),
            Self::Erase(answer, erased) => to(answer, erased, written),
            Self::Done(answer) => to(answer, (), written),
        }
    }
}

/// What was written of each key, or that it was removed.
type Writes = HashMap<Key, Option<Bytes>, RandomState>;

/// What one batch of the engine will hold.
#[derive(Default)]
struct Group {
    writes: Arc<Writes>,
    run: Option<(crate::model::kind::Kind, Vec<Vec<u8>>)>,
    changes: Changes,
    now: Option<Timestamp>,
    mark: Option<Timestamp>,
    replies: Vec<Reply>,
    rooms: Vec<OwnedSemaphorePermit>,
}

impl Group {
    /// While it is judged, the group has its writes to itself.
    fn write(&mut self, key: Key, written: Option<Bytes>) {
        Arc::get_mut(&mut self.writes).expect("nobody else has them yet").insert(key, written);
    }

    /// Answers everybody, once it is known whether the group is durable.
    fn answer(self, written: bool) {
        for reply in self.replies {
            reply.send(written);
        }
    }

    fn len(&self) -> usize {
        self.replies.len()
    }

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

/// What the thread has that judges.
struct Judge {
    jobs: mpsc::Receiver<Job>,
    /// The group before, which may not be in the engine yet.
    before: Arc<Writes>,
}

fn receive(jobs: &mut mpsc::Receiver<Job>, into: &mut Vec<Job>, most: usize) {
    into.extend(std::iter::from_fn(|| jobs.try_recv().ok()).take(most));
}

pub(super) struct Turns<E> {
    shared: Arc<Shared<E>>,
    leap_bound: Duration,
    judge: Mutex<Judge>,
    /// Whoever writes has this; it is taken before the judge's place is left.
    writing: Mutex<()>,
}

impl<E: Engine> Turns<E> {
    pub(super) fn new(shared: Arc<Shared<E>>, leap_bound: Duration, jobs: mpsc::Receiver<Job>) -> Self {
        let judge = Mutex::new(Judge { jobs, before: Arc::default() });
        Self { shared, leap_bound, judge, writing: Mutex::new(()) }
    }

    /// Takes turns until nobody can ask any more, or the other thread has panicked: what it was about to do is then
    /// not known.
    pub(super) fn run(&self) {
        while let Some(more) = self.turn() {
            if !more {
                return;
            }
        }
        self.shared.poison();
    }

    fn turn(&self) -> Option<bool> {
        let mut judge = self.judge.lock().ok()?;
        let mut waiting = Vec::new();
        if judge.jobs.blocking_recv_many(&mut waiting, QUEUE) == 0 {
            return Some(false);
        }
        let mut group = Group::default();
        let mut alone = Vec::new();
        let writing = loop {
            self.join_all(&mut group, &judge.before, &mut waiting, &mut alone);
            match self.writing.try_lock() {
                Ok(writing) => break writing,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Poisoned(_)) => return None,
            }
            // While the other writes, what comes is judged.
            receive(&mut judge.jobs, &mut waiting, QUEUE.saturating_sub(group.len()));
            if waiting.is_empty() {
                break self.writing.lock().ok()?;
            }
        };
        // What has come since goes along.
        receive(&mut judge.jobs, &mut waiting, QUEUE.saturating_sub(group.len()));
        self.join_all(&mut group, &judge.before, &mut waiting, &mut alone);
        histogram!("ebbtide_committer_group_size").record(u32::try_from(group.len()).unwrap_or(u32::MAX));
        if alone.is_empty() {
            judge.before = Arc::clone(&group.writes);
            drop(judge);
            let written = self.write(&group);
            drop(writing);
            group.answer(written);
        } else {
            // What looks at many records looks at what is written, and nobody judges meanwhile.
            judge.before = Arc::default();
            let written = self.write(&group);
            group.answer(written);
            for job in alone {
                let group = self.alone(job);
                let written = self.write(&group);
                group.answer(written);
            }
        }
        Some(true)
    }

    /// Judges each job, and lays aside what is done alone.
    fn join_all(&self, group: &mut Group, before: &Writes, jobs: &mut Vec<Job>, alone: &mut Vec<Job>) {
        // What waits together may be judged in any order. In the order of the keys, one look into the engine finds in
        // the processor's caches what the last one left there.
        jobs.sort_by(|one, other| one.key().cmp(&other.key()));
        for job in jobs.drain(..) {
            if matches!(job, Job::Commit { .. } | Job::Each { .. } | Job::Take { .. } | Job::Alter { .. }) {
                self.join(group, before, job);
            } else {
                alone.push(job);
            }
        }
    }

    fn join(&self, group: &mut Group, before: &Writes, job: Job) {
        match job {
            Job::Commit { batch, now, answer, room } => {
                group.rooms.push(room);
                match self.judge(group, before, batch, now) {
                    Ok(commit) => group.replies.push(Reply::Commit(answer, commit)),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
            Job::Each { batches, now, answer, room } => {
                group.rooms.push(room);
                let judged = batches.into_iter().map(|batch| self.judge(group, before, batch, now));
                match judged.collect() {
                    Ok(commits) => group.replies.push(Reply::Each(answer, commits)),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
            Job::Take { key, now, answer } => match self.take(group, before, key, now) {
                Ok(record) => group.replies.push(Reply::Take(answer, record)),
                Err(error) => drop(answer.send(Err(error))),
            },
            Job::Alter { key, alteration, now, answer, room } => {
                group.rooms.push(room);
                match self.alter(group, before, key, &alteration, now) {
                    Ok(altered) => group.replies.push(Reply::Alter(answer, altered)),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
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
            Job::Commit { .. } | Job::Each { .. } | Job::Take { .. } | Job::Alter { .. } => {}
        }
        group
    }

    fn standing(&self, group: &Group, before: &Writes, key: &Key) -> Result<Option<Bytes>> {
        match group.writes.get(key).or_else(|| before.get(key)) {
            Some(written) => Ok(written.clone()),
            None => self.shared.engine.get(key.kind(), key.as_bytes()),
        }
    }

    fn judge(&self, group: &mut Group, before: &Writes, batch: Batch, now: Timestamp) -> Result<Commit> {
        let mut heads: Vec<Option<(Version, Timestamp)>> = Vec::with_capacity(batch.writes().len());
        for (index, write) in batch.writes().iter().enumerate() {
            let standing = self.standing(group, before, write.key())?;
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
            group.write(key, bytes);
        }
        Ok(Commit::Applied)
    }

    fn take(&self, group: &mut Group, before: &Writes, key: Key, now: Timestamp) -> Result<Option<Record>> {
        let Some(standing) = self.standing(group, before, &key)? else { return Ok(None) };
        let record = stored::decode(&standing)?;
        if !record.is_live(now) {
            return Ok(None);
        }
        change(&mut group.changes, key.kind(), record.expires_at, -1);
        group.saw(&key, now);
        group.write(key, None);
        Ok(Some(record))
    }

    fn alter(
        &self,
        group: &mut Group,
        before: &Writes,
        key: Key,
        alteration: &Alteration,
        now: Timestamp,
    ) -> Result<Altered> {
        let standing = self.standing(group, before, &key)?.map(|bytes| stored::decode(&bytes)).transpose()?;
        let ends_at = standing.as_ref().map(|record| record.expires_at);
        let (outcome, altered) = alteration.judge(standing.filter(|record| record.is_live(now)))?;
        let written = match outcome {
            Outcome::Nothing => return Ok(altered),
            Outcome::Erase => None,
            Outcome::Store(record) => Some(record),
        };
        if let Some(ends_at) = ends_at {
            change(&mut group.changes, key.kind(), ends_at, -1);
        }
        if let Some(record) = &written {
            change(&mut group.changes, key.kind(), record.expires_at, 1);
        }
        group.saw(&key, now);
        group.write(key, written.as_ref().map(stored::encode));
        Ok(altered)
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

    /// Makes the group durable, and says whether it is. A group that changed nothing needs no write.
    fn write(&self, group: &Group) -> bool {
        let mark = group.mark.or_else(|| self.next_mark(group.now));
        let written = self.shared.check().is_ok() && (group.is_empty() || self.store(group, mark).is_ok());
        if !written {
            self.shared.poison();
        }
        written
    }

    fn store(&self, group: &Group, mark: Option<Timestamp>) -> Result<()> {
        let mut ops = Vec::with_capacity(group.writes.len() + 4);
        let mut writes: Vec<_> = group.writes.iter().collect();
        writes.sort_unstable_by_key(|(key, _)| *key);
        for (key, written) in writes {
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
