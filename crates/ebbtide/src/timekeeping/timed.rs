//! The handle: a backend that takes one instant, behind requests that have two.

mod alter;

use std::sync::Arc;

use super::marks::Marks;
use super::now::Now;
use super::source::TimeSource;
use crate::admin::Admin;
use crate::backend::{ALL_PAGE, Budget, Cursor, Info, Page, Swept, all_pages};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Condition, Effect, Write};

/// A backend and the time of its requests.
///
/// The engine is handed one instant, [`Now::earliest`]. While the two ends are one instant its answers are passed on.
/// Otherwise the handle judges what the engine found by both ends, so that no answer permits wrongly for any true time
/// between them.
#[derive(Clone)]
pub struct Timed {
    backend: Arc<dyn Admin>,
    time: Arc<TimeSource>,
    pub(super) marks: Arc<Marks>,
}

/// The answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only an applied batch has written anything"]
pub enum TimedCommit {
    /// Every condition held, and every write is durable.
    Applied,
    /// A condition did not hold, and nothing was written.
    Refused {
        /// The first write whose condition did not hold.
        index: usize,
    },
    /// A record would have ended before it was written, and nothing was written.
    Expired {
        /// The first such write.
        index: usize,
    },
}

impl TimedCommit {
    /// True if the batch was written.
    #[must_use]
    pub fn is_applied(self) -> bool {
        self == Self::Applied
    }

    /// The engine's answer. A batch with a record that would have ended before it was written is an error.
    pub fn into_commit(self) -> Result<Commit> {
        match self {
            Self::Applied => Ok(Commit::Applied),
            Self::Refused { index } => Ok(Commit::Refused { index }),
            Self::Expired { .. } => Err(Error::expired("the record would have ended before it was written")),
        }
    }
}

impl From<Commit> for TimedCommit {
    fn from(commit: Commit) -> Self {
        match commit {
            Commit::Applied => Self::Applied,
            Commit::Refused { index } => Self::Refused { index },
        }
    }
}

/// Attempts against writers that interfere, before the answer is `Unavailable`.
const ATTEMPTS: usize = 4;

impl Timed {
    /// A handle on `backend`.
    pub fn new(backend: Arc<dyn Admin>, time: Arc<TimeSource>) -> Self {
        Self { backend, time, marks: Arc::default() }
    }

    /// The time of a request. Take it once, and hand it to every call of the request.
    pub fn now(&self) -> Result<Now> {
        self.time.now()
    }

    /// The time source.
    #[must_use]
    pub fn time(&self) -> &TimeSource {
        &self.time
    }

    /// The engine, for what operators do. It takes one instant: [`Now::earliest`], so that nothing is missed.
    #[must_use]
    pub fn admin(&self) -> &Arc<dyn Admin> {
        &self.backend
    }

    /// The same time over another backend, which stands in front of this one.
    pub(crate) fn over(&self, backend: Arc<dyn Admin>) -> Self {
        Self { backend, ..self.clone() }
    }

    /// Properties of the engine.
    #[must_use]
    pub fn info(&self) -> Info {
        self.backend.info()
    }

    /// The live record at `key`.
    pub async fn get(&self, key: &Key, now: Now) -> Result<Option<Record>> {
        let found = self.backend.get(key, now.earliest()).await?;
        match found {
            Some(record) if now.before(record.expires_at)? => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// The live records at `keys`, in their order. Each is read by itself: together they are no snapshot.
    pub async fn get_many(&self, keys: &[Key], now: Now) -> Result<Vec<Option<Record>>> {
        let mut found = self.backend.get_many(keys, now.earliest()).await?;
        if !now.is_exact() {
            for place in &mut found {
                if let Some(record) = place
                    && !now.before(record.expires_at)?
                {
                    *place = None;
                }
            }
        }
        Ok(found)
    }

    /// Removes the live record and returns it. Of any number of concurrent takes, at most one gets it.
    pub async fn take(&self, key: &Key, now: Now) -> Result<Option<Record>> {
        if now.is_exact() {
            return self.backend.take(key, now.earliest()).await;
        }
        for _ in 0..ATTEMPTS {
            let Some(record) = self.get(key, now).await? else { return Ok(None) };
            // The version pins the expiry that was judged: what is removed is what was read.
            let remove = Write::Remove { key: key.clone(), expected: record.version };
            if self.backend.commit(Batch::try_from(remove)?, now.earliest()).await?.is_applied() {
                return Ok(Some(record));
            }
        }
        Err(contended())
    }

    /// Up to `limit` live records under `prefix`, behind `after`. `Unavailable` if one on the page is live or not
    /// depending on the time in doubt.
    pub async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Now,
    ) -> Result<Page> {
        let mut page = self.backend.scan(prefix, after, limit, now.earliest()).await?;
        if !now.is_exact() {
            judge_page(&mut page, now)?;
        }
        Ok(page)
    }

    /// Writes the whole batch if every condition holds, and nothing otherwise. A record that would have ended before
    /// it was written is an error of the kind `Expired`.
    pub async fn commit(&self, batch: Batch, now: Now) -> Result<Commit> {
        self.commit_judged(batch, now).await?.into_commit()
    }

    /// Commits one write.
    pub async fn write(&self, write: Write, now: Now) -> Result<Commit> {
        self.commit(Batch::try_from(write)?, now).await
    }

    /// Writes, whatever is there.
    pub async fn put(&self, key: Key, record: Record, now: Now) -> Result<Commit> {
        self.write(Write::Put { key, record }, now).await
    }

    /// Writes if nothing is live there.
    pub async fn insert(&self, key: Key, record: Record, now: Now) -> Result<Commit> {
        self.write(Write::Insert { key, record }, now).await
    }

    /// Writes if that version is live there.
    pub async fn replace(&self, key: Key, expected: Version, record: Record, now: Now) -> Result<Commit> {
        self.write(Write::Replace { key, expected, record }, now).await
    }

    /// Deletes, whatever is there.
    pub async fn delete(&self, key: Key, now: Now) -> Result<Commit> {
        self.write(Write::Delete { key }, now).await
    }

    /// Deletes if that version is live there.
    pub async fn remove(&self, key: Key, expected: Version, now: Now) -> Result<Commit> {
        self.write(Write::Remove { key, expected }, now).await
    }

    /// Every live record under `prefix`. For partitions of a known size.
    pub async fn scan_all(&self, prefix: &Prefix, now: Now) -> Result<Vec<(Key, Record)>> {
        all_pages(|after| async move { self.scan(prefix, after.as_ref(), ALL_PAGE, now).await }).await
    }

    /// Writes the whole batch if every condition holds, and nothing otherwise. `Unavailable` also if a record that it
    /// wrote had ended when the commit returned.
    pub async fn commit_judged(&self, batch: Batch, now: Now) -> Result<TimedCommit> {
        if let Some(index) = past_end(&batch, now)? {
            return Ok(TimedCommit::Expired { index });
        }
        let end = soonest_end(&batch);
        let outcome = if now.is_exact() {
            self.backend.commit(batch, now.earliest()).await?.into()
        } else {
            self.commit_between(batch, now).await?
        };
        if outcome.is_applied() {
            self.note_commit().await;
        }
        self.check_written(outcome, end)?;
        Ok(outcome)
    }

    /// Commits each of the batches by itself, and answers in their order.
    pub async fn commit_each(&self, batches: Vec<Batch>, now: Now) -> Result<Vec<TimedCommit>> {
        if !now.is_exact() {
            let mut outcomes = Vec::with_capacity(batches.len());
            for batch in batches {
                outcomes.push(self.commit_judged(batch, now).await?);
            }
            return Ok(outcomes);
        }
        let expired = batches.iter().map(|batch| past_end(batch, now)).collect::<Result<Vec<_>>>()?;
        let sent: Vec<_> = batches
            .into_iter()
            .zip(&expired)
            .filter(|(_, past)| past.is_none())
            .map(|(batch, _)| batch)
            .collect();
        let end = sent.iter().filter_map(soonest_end).min();
        let mut answers = Vec::new().into_iter();
        if !sent.is_empty() {
            answers = self.backend.commit_each(sent, now.earliest()).await?.into_iter();
            self.note_commit().await;
        }
        if let Some(end) = end {
            self.time.check_written(end)?;
        }
        let missing = || Error::unavailable("the engine answered fewer batches than it was given");
        let outcome = |past: Option<usize>| match past {
            Some(index) => Ok(TimedCommit::Expired { index }),
            None => answers.next().map(TimedCommit::from).ok_or_else(missing),
        };
        expired.into_iter().map(outcome).collect()
    }

    /// Asks the engine's clock if it is time to, and takes what it says. False if the engine has no clock.
    pub async fn compare_engine(&self) -> Result<bool> {
        if self.time.wants_engine() { self.ask_engine().await } else { Ok(self.time.has_engine()) }
    }

    /// Asks the engine's clock now.
    pub async fn ask_engine(&self) -> Result<bool> {
        if !self.time.has_engine() {
            return Ok(false);
        }
        for _ in 0..ATTEMPTS {
            let question = self.time.ask_engine();
            let Some(engine) = self.backend.engine_clock().await? else { return Ok(false) };
            if self.time.hear_engine(question, engine, self.backend.info().clock_resolution) {
                return Ok(true);
            }
        }
        Err(Error::unavailable("the engine's clock answered too slowly to compare it"))
    }

    /// The instant of a sweep that begins now, to be captured once for all of its steps. The engine's clock is asked
    /// first. `Unavailable` while nothing may be swept.
    pub async fn sweep_until(&self) -> Result<Timestamp> {
        self.ask_engine().await?;
        self.time.sweep_until()
    }

    /// One step of a sweep up to `until`. The clocks are looked at first, that of the engine too, so that a leap
    /// between two steps ends the sweep.
    pub async fn sweep_step(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let allowed = self.sweep_until().await?;
        self.backend.sweep(until.min(allowed), budget).await
    }

    /// Removes what has expired, in steps of `budget`, up to one instant.
    pub async fn sweep(&self, budget: &Budget) -> Result<Swept> {
        let mut all = Swept::default();
        let until = self.sweep_until().await?;
        loop {
            let step = self.sweep_step(until, budget).await?;
            for (kind, removed) in step.removed {
                all.add(kind, removed);
            }
            all.rested += step.rested;
            if !step.more {
                return Ok(all);
            }
        }
    }

    /// Commits while the two ends differ: nothing may be decided by a record that is live at one of them only.
    async fn commit_between(&self, batch: Batch, now: Now) -> Result<TimedCommit> {
        for _ in 0..ATTEMPTS {
            let Some((failing, answer)) = self.failing_version(&batch, now).await? else {
                match self.backend.commit(batch.clone(), now.earliest()).await? {
                    Commit::Applied => return Ok(TimedCommit::Applied),
                    Commit::Refused { index } if self.refusal_stands(&batch, index, now).await? => {
                        return Ok(TimedCommit::Refused { index });
                    }
                    Commit::Refused { .. } => continue,
                }
            };
            // The conditions before it are asked in one step, so that the refusal names the first that fails.
            let (indexes, checks): (Vec<_>, Vec<_>) = conditions(&batch.writes()[..failing]).unzip();
            if checks.is_empty() {
                return answer;
            }
            match self.backend.commit(Batch::new(checks)?, now.earliest()).await? {
                Commit::Applied => return answer,
                Commit::Refused { index } => {
                    let index = indexes.get(index).copied().unwrap_or(failing);
                    if self.refusal_stands(&batch, index, now).await? {
                        return Ok(TimedCommit::Refused { index });
                    }
                }
            }
        }
        Err(contended())
    }

    /// Reads the records that the batch expects in a version, and gives the first write whose version is not live, with
    /// the answer if nothing before it fails. A version pins its expiry, so that what is judged here still holds in the
    /// commit; one that is not there now must not be sent, since it may arrive with any expiry.
    async fn failing_version(&self, batch: &Batch, now: Now) -> Result<Option<(usize, Result<TimedCommit>)>> {
        let mut failing = None;
        for (index, write) in batch.writes().iter().enumerate() {
            let mut kept = None;
            if let Condition::Version(expected) = write.condition() {
                let standing = self.backend.get(write.key(), now.earliest()).await?;
                kept = standing.filter(|record| record.version == expected).map(|record| record.expires_at);
                let live = kept.map_or(Ok(false), |end| now.before(end));
                if !matches!(live, Ok(true)) {
                    let refused = live.map(|_| TimedCommit::Refused { index });
                    failing = failing.or(Some((index, refused)));
                    continue;
                }
            }
            if let Effect::Store(record) = write.effect()
                && !record.expires_at.is_never()
                && kept != Some(record.expires_at)
            {
                now.check_confirmed()?;
            }
        }
        Ok(failing)
    }

    /// True if a write that the engine refused at `earliest` is refused at both ends. False if what refused it has
    /// gone since: then it is not known, and the commit is repeated.
    async fn refusal_stands(&self, batch: &Batch, index: usize, now: Now) -> Result<bool> {
        let write = &batch.writes()[index];
        if write.condition() != Condition::Absent {
            return Ok(true);
        }
        match self.backend.get(write.key(), now.earliest()).await? {
            Some(record) if now.differs_at(record.expires_at) => Err(Error::unavailable(
                "a record that may have expired is in the way, and the clock does not tell yet",
            )),
            standing => Ok(standing.is_some()),
        }
    }

    fn check_written(&self, outcome: TimedCommit, end: Option<Timestamp>) -> Result<()> {
        match end {
            Some(end) if outcome.is_applied() => self.time.check_written(end),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timed({})", self.backend.info().engine)
    }
}

/// The first write that would store a record whose end has passed.
fn past_end(batch: &Batch, now: Now) -> Result<Option<usize>> {
    for (index, write) in batch.writes().iter().enumerate() {
        if let Effect::Store(record) = write.effect()
            && !now.before(record.expires_at)?
        {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// The end that is reached first, of the records that the batch stores.
fn soonest_end(batch: &Batch) -> Option<Timestamp> {
    let ends = batch.writes().iter().filter_map(|write| match write.effect() {
        Effect::Store(record) => Some(record.expires_at),
        _ => None,
    });
    ends.min().filter(|end| !end.is_never())
}

/// The conditions of the writes that have one, with their indexes.
fn conditions(writes: &[Write]) -> impl Iterator<Item = (usize, Write)> {
    writes.iter().enumerate().filter_map(|(index, write)| {
        let key = write.key().clone();
        match write.condition() {
            Condition::Always => None,
            Condition::Absent => Some((index, Write::Absent { key })),
            Condition::Version(expected) => Some((index, Write::Check { key, expected })),
        }
    })
}

/// Keeps the records that are live.
fn judge_page(page: &mut Page, now: Now) -> Result<()> {
    let mut items = Vec::with_capacity(page.items.len());
    for (key, record) in page.items.drain(..) {
        if now.before(record.expires_at)? {
            items.push((key, record));
        }
    }
    page.items = items;
    Ok(())
}

fn contended() -> Error {
    Error::unavailable("other writers changed the record at every attempt while the clock was in doubt")
}

#[cfg(test)]
mod calls;
#[cfg(test)]
mod exhaustive;
