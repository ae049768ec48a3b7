//! Commits and takes: judged by the caller, appended under the locks of the shards.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use super::lookup::{Known, Need, RecordLocation};
use super::{Core, Embedded, Mark};
use crate::engines::log::cold::ColdStore;
use crate::engines::log::faults::PlantedFault;
use crate::engines::log::frame;
use crate::engines::log::index::{IndexEntry, Locked, Presence};
use crate::engines::log::position::Position;
use crate::engines::log::writer::{NotAppended, poisoned};
use crate::model::alteration::{Alteration, Altered, Outcome};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Condition, Effect};

/// Outcome of one try under the locks.
pub(super) enum Attempt<T> {
    /// The answer, and the last frame that it rests on.
    Done(T, Option<Position>),
    /// Reads from the disk that must come first.
    Needs(Vec<Need>),
    /// The log has no room until a segment is prepared.
    NoRoom,
}

/// One change that a batch makes: a record, or a delete.
struct Change<'a> {
    key: &'a Key,
    hash: u64,
    record: Option<&'a Record>,
    old: Option<IndexEntry>,
    may_be_cold: bool,
}

/// Changes of one batch. Most have one, which needs no list.
#[derive(Default)]
struct Changes<'a> {
    one: Option<Change<'a>>,
    many: Vec<Change<'a>>,
}

impl<'a> Changes<'a> {
    fn push(&mut self, change: Change<'a>) {
        if self.one.is_none() && self.many.is_empty() {
            self.one = Some(change);
        } else {
            self.many.extend(self.one.take());
            self.many.push(change);
        }
    }

    fn as_slice(&self) -> &[Change<'a>] {
        if self.many.is_empty() { self.one.as_slice() } else { &self.many }
    }
}

/// Length from which the buffer of a thread is not kept.
const KEPT_BUFFER: usize = 64 << 10;

thread_local! {
    /// Frames of a batch, until they are appended.
    static FRAMES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<C: ColdStore> Core<C> {
    fn attempt_commit(
        &self,
        batch: &Batch,
        hashes: &[u64],
        known: &[Known],
        now: Timestamp,
    ) -> Result<Attempt<Commit>> {
        let is_short = self.log.is_short();
        let mut locked = self.index.lock(hashes);
        let (mut needs, mut rests_on) = (Vec::new(), None);
        let mut changes = Changes::default();
        let mut adds = false;
        for (slot, (write, &hash)) in batch.writes().iter().zip(hashes).enumerate() {
            let key = write.key();
            // Nothing can be judged as new without a look at the cold store.
            let needs_record = write.condition() != Condition::Always || is_short;
            let standing =
                match self.examine(locked.shard(hash), hash, key, &known[slot], slot, needs_record)? {
                    Ok(standing) => standing,
                    Err(need) => {
                        needs.push(need);
                        continue;
                    }
                };
            rests_on = rests_on.max(standing.position());
            if needs.is_empty() && !write.condition().holds(standing.head()?, now) {
                if self.faults().has(PlantedFault::RefusalDoesNotWait) {
                    rests_on = None;
                }
                return Ok(Attempt::Done(Commit::Refused { index: slot }, rests_on));
            }
            let record = match write.effect() {
                Effect::Store(record) => Some(record),
                Effect::Erase if is_present(&standing) => None,
                Effect::Erase | Effect::Nothing => continue,
            };
            adds |= is_short && record.is_some() && !key.kind().ends_authority() && !standing.is_live(now)?;
            let may_be_cold = self.may_be_cold(&standing);
            changes.push(Change { key, hash, record, old: standing.entry(), may_be_cold });
        }
        if !needs.is_empty() {
            return Ok(Attempt::Needs(needs));
        }
        if adds {
            return Err(almost_full());
        }
        self.append(&mut locked, changes.as_slice(), Commit::Applied, rests_on, now)
    }

    /// Tries a batch without anything read from the disk.
    fn attempt_unread(&self, batch: &Batch, now: Timestamp) -> Result<Attempt<Commit>> {
        if let [write] = batch.writes() {
            return self.attempt_commit(batch, &[self.hash(write.key())], &[Known::default()], now);
        }
        let hashes: Vec<u64> = batch.writes().iter().map(|write| self.hash(write.key())).collect();
        let known: Vec<Known> = hashes.iter().map(|_| Known::default()).collect();
        self.attempt_commit(batch, &hashes, &known, now)
    }

    fn attempt_take(
        &self,
        key: &Key,
        hash: u64,
        known: &Known,
        now: Timestamp,
    ) -> Result<Attempt<Option<Record>>> {
        let mut locked = self.index.lock(&[hash]);
        let standing = match self.examine(locked.shard(hash), hash, key, known, 0, true)? {
            Ok(standing) => standing,
            Err(need) => return Ok(Attempt::Needs(vec![need])),
        };
        let Some(record) = standing.record()?.filter(|record| record.is_live(now)) else {
            return Ok(Attempt::Done(None, standing.position()));
        };
        let may_be_cold = self.may_be_cold(&standing);
        let change = Change { key, hash, record: None, old: standing.entry(), may_be_cold };
        self.append(&mut locked, &[change], Some(record), standing.position(), now)
    }

    fn attempt_alter(
        &self,
        key: &Key,
        hash: u64,
        known: &Known,
        alteration: &Alteration,
        now: Timestamp,
    ) -> Result<Attempt<Altered>> {
        let mut locked = self.index.lock(&[hash]);
        let standing = match self.examine(locked.shard(hash), hash, key, known, 0, true)? {
            Ok(standing) => standing,
            Err(need) => return Ok(Attempt::Needs(vec![need])),
        };
        let live = standing.record()?.filter(|record| record.is_live(now));
        let (outcome, altered) = alteration.judge(live)?;
        let record = match &outcome {
            Outcome::Nothing => return Ok(Attempt::Done(altered, standing.position())),
            Outcome::Erase => None,
            Outcome::Store(record) => Some(record),
        };
        let adds = record.is_some() && !key.kind().ends_authority() && !standing.is_live(now)?;
        if adds && self.log.is_short() {
            return Err(almost_full());
        }
        let may_be_cold = self.may_be_cold(&standing);
        let change = Change { key, hash, record, old: standing.entry(), may_be_cold };
        self.append(&mut locked, &[change], altered, standing.position(), now)
    }

    /// Appends the frames of a batch and points the index to them. All are in one group, so that all or none survive.
    fn append<T>(
        &self,
        locked: &mut Locked<'_>,
        changes: &[Change<'_>],
        answer: T,
        rests_on: Option<Position>,
        now: Timestamp,
    ) -> Result<Attempt<T>> {
        if changes.is_empty() {
            return Ok(Attempt::Done(answer, rests_on));
        }
        let mut frames = FRAMES.take();
        frames.clear();
        for change in changes {
            match change.record {
                Some(record) => frame::store(&mut frames, change.key, record, change.may_be_cold),
                None => frame::delete(&mut frames, change.key, change.may_be_cold),
            }
        }
        let appended = self.append_frames(&mut frames, changes, now);
        if frames.capacity() <= KEPT_BUFFER {
            FRAMES.set(frames);
        }
        let at = match appended {
            Ok(at) => at,
            Err(NotAppended::NoRoom) => return Ok(Attempt::NoRoom),
            Err(NotAppended::TooLarge) => {
                return Err(Error::invalid("the batch is larger than a segment of the log"));
            }
            Err(NotAppended::Poisoned) => return Err(poisoned()),
        };
        let mut maps = self.ordered.lock(changes.iter().map(|change| change.key.kind()));
        let mut offset = at.offset();
        for change in changes {
            let presence =
                change.record.map_or(Presence::Deleted, |record| Presence::Stored(record.expires_at));
            let (kind, place) = (change.key.kind(), Position::new(at.segment(), offset));
            let entry = IndexEntry::new(change.hash, kind, place, presence, change.may_be_cold);
            locked.shard(change.hash).set(change.old, entry);
            maps.set(kind, change.key.as_bytes(), entry);
            offset += frame::length(change.key, change.record);
        }
        Ok(Attempt::Done(answer, Some(at)))
    }

    /// Appends frames, and behind them a clock mark if the time has moved on.
    fn append_frames(
        &self,
        frames: &mut Vec<u8>,
        changes: &[Change<'_>],
        now: Timestamp,
    ) -> Result<Position, NotAppended> {
        // The mark that stands there is of a frame that was appended before.
        let is_marked = self.marked.load(Ordering::Acquire) >= now.as_millis();
        if is_marked || changes.iter().all(|change| change.key.kind().is_probe()) {
            return self.log.append(frames);
        }
        // Held until the frame is appended, so that marks stand in the log in the order of their times.
        let mut mark = self.mark();
        let Some(next) = next_mark(mark.time, now, self.options.clock_leap) else {
            return self.log.append(frames);
        };
        frame::mark(frames, next);
        let at = self.log.append(frames)?;
        self.set_mark(&mut mark, next, at);
        Ok(at)
    }

    /// Notes the clock mark whose frame is at `at`.
    fn set_mark(&self, mark: &mut Mark, to: Timestamp, at: Position) {
        *mark = Mark { time: Some(to), at: Some(at) };
        self.marked.store(to.as_millis(), Ordering::Release);
    }

    /// Moves the clock mark by any amount.
    fn attempt_mark(&self, to: Timestamp) -> Result<Attempt<()>> {
        let mut mark = self.mark();
        let mut frames = Vec::new();
        frame::mark(&mut frames, to);
        match self.log.append(&frames) {
            Ok(at) => {
                self.set_mark(&mut mark, to, at);
                Ok(Attempt::Done((), Some(at)))
            }
            Err(NotAppended::NoRoom | NotAppended::TooLarge) => Ok(Attempt::NoRoom),
            Err(NotAppended::Poisoned) => Err(poisoned()),
        }
    }
}

fn almost_full() -> Error {
    Error::unavailable(Error::ALMOST_FULL)
}

/// Returns true if there is or may be something to delete, live or not.
fn is_present(standing: &RecordLocation) -> bool {
    match standing {
        RecordLocation::Log { entry, .. } => !entry.is_deleted(),
        RecordLocation::Cold(_) | RecordLocation::Unread => true,
        RecordLocation::Absent { .. } => false,
    }
}

/// Commits move the mark forwards, but not by a leap: that an operator must confirm.
fn next_mark(mark: Option<Timestamp>, now: Timestamp, leap: Duration) -> Option<Timestamp> {
    match mark {
        None => Some(now),
        Some(mark) => (now > mark && now.since(mark) <= leap).then_some(now),
    }
}

impl<C: ColdStore> Embedded<C> {
    pub(super) async fn commit_batch(&self, batch: &Batch, now: Timestamp) -> Result<Commit> {
        self.core.saw(now);
        if let [write] = batch.writes() {
            let hash = self.core.hash(write.key());
            return self.commit_hashed(batch, &[hash], &mut [Known::default()], now).await;
        }
        let hashes: Vec<u64> = batch.writes().iter().map(|write| self.core.hash(write.key())).collect();
        let mut known: Vec<Known> = hashes.iter().map(|_| Known::default()).collect();
        self.commit_hashed(batch, &hashes, &mut known, now).await
    }

    /// Commits each of the batches by itself. Those that need no read are appended in turn, and wait once for all of them.
    pub(super) async fn commit_batches(&self, batches: &[Batch], now: Timestamp) -> Result<Vec<Commit>> {
        self.core.saw(now);
        self.core.log.check()?;
        let mut commits = Vec::with_capacity(batches.len());
        let mut rests_on = None;
        for batch in batches {
            commits.push(match self.core.attempt_unread(batch, now)? {
                Attempt::Done(commit, at) => {
                    rests_on = rests_on.max(at);
                    Some(commit)
                }
                Attempt::Needs(_) | Attempt::NoRoom => None,
            });
        }
        let left = batches.iter().zip(&commits).filter(|(_, commit)| commit.is_none());
        let mut read = join_all(left.map(|(batch, _)| self.commit_batch(batch, now))).await.into_iter();
        let missing = || Err(Error::unavailable("a batch has no answer"));
        let commits = commits.into_iter().map(|commit| match commit {
            Some(commit) => Ok(commit),
            None => read.next().unwrap_or_else(missing),
        });
        let commits = commits.collect::<Result<_>>()?;
        self.settled(commits, rests_on).await
    }

    async fn commit_hashed(
        &self,
        batch: &Batch,
        hashes: &[u64],
        known: &mut [Known],
        now: Timestamp,
    ) -> Result<Commit> {
        loop {
            self.core.log.check()?;
            match self.core.attempt_commit(batch, hashes, known, now)? {
                Attempt::Done(commit, rests_on) => return self.settled(commit, rests_on).await,
                Attempt::Needs(needs) => {
                    let keys = needs.iter().map(|need| batch.writes()[need.slot].key().clone()).collect();
                    self.fetch(needs, keys, known).await?;
                }
                Attempt::NoRoom => self.core.log.room().await?,
            }
        }
    }

    pub(super) async fn take_record(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.core.saw(now);
        let hash = self.core.hash(key);
        let mut known = [Known::default()];
        loop {
            self.core.log.check()?;
            match self.core.attempt_take(key, hash, &known[0], now)? {
                Attempt::Done(record, rests_on) => return self.settled(record, rests_on).await,
                Attempt::Needs(needs) => self.fetch(needs, vec![key.clone()], &mut known).await?,
                Attempt::NoRoom => self.core.log.room().await?,
            }
        }
    }

    pub(super) async fn alter_record(
        &self,
        key: &Key,
        alteration: &Alteration,
        now: Timestamp,
    ) -> Result<Altered> {
        alteration.check()?;
        self.core.saw(now);
        let hash = self.core.hash(key);
        let mut known = [Known::default()];
        loop {
            self.core.log.check()?;
            match self.core.attempt_alter(key, hash, &known[0], alteration, now)? {
                Attempt::Done(altered, rests_on) => return self.settled(altered, rests_on).await,
                Attempt::Needs(needs) => self.fetch(needs, vec![key.clone()], &mut known).await?,
                Attempt::NoRoom => self.core.log.room().await?,
            }
        }
    }

    pub(super) async fn move_mark(&self, to: Timestamp) -> Result<()> {
        loop {
            match self.core.attempt_mark(to)? {
                Attempt::Done((), rests_on) => return self.settled((), rests_on).await,
                Attempt::Needs(_) | Attempt::NoRoom => self.core.log.room().await?,
            }
        }
    }

    /// Gives the answer once what it rests on is durable.
    async fn settled<T>(&self, answer: T, rests_on: Option<Position>) -> Result<T> {
        if let Some(at) = rests_on {
            self.core.log.durable(at).await?;
        }
        Ok(answer)
    }
}
