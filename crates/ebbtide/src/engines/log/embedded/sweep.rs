//! Sweeps and counts.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Core;
use crate::admin::{KindStats, Stats};
use crate::backend::{Budget, Swept};
use crate::engines::log::cold::{ColdRow, ColdStore, Window};
use crate::engines::log::frame::Frame;
use crate::engines::log::index::{IndexEntry, SHARDS, Shard};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::{Stopwatch, Timestamp};

/// Cold records that are removed by one bulk.
const BULK: usize = 10_000;

/// Counts that took at least this long are made again only after a hundred times as long.
const LONG_COUNT: Duration = Duration::from_millis(50);

/// Counts that are made before one counts that was disturbed.
const COUNT_TRIES: u32 = 3;

/// A shorter rest would cost more than it gives.
const SHORTEST_REST: Duration = Duration::from_millis(4);

/// Time between two looks, while resting, at whether the store is being closed.
const LONGEST_NAP: Duration = Duration::from_millis(50);

/// Entries that are removed under one lock.
const AT_ONCE: usize = 256;

/// Outcome for an expired entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    /// A commit has replaced it, or a sweep has removed it.
    Before,
    /// This entry masks a copy in the cold store now.
    Masked(IndexEntry),
    Removed,
}

/// Work and rest of one sweep.
struct Pace<'a> {
    budget: &'a Budget,
    is_closing: &'a AtomicBool,
    stopwatch: Stopwatch,
}

impl Pace<'_> {
    /// Rests if enough was worked since the last rest.
    fn rest(&self, swept: &mut Swept) {
        let worked = self.stopwatch.elapsed().saturating_sub(swept.rested);
        let due = self.budget.share.rest_after(worked).saturating_sub(swept.rested);
        if due < SHORTEST_REST {
            return;
        }
        let resting = Stopwatch::start();
        while resting.elapsed() < due && !self.is_closing() {
            std::thread::sleep(due.saturating_sub(resting.elapsed()).min(LONGEST_NAP));
        }
        swept.rested += resting.elapsed();
    }

    /// Returns true if the store is being closed, so that the sweep ends here.
    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Records that may still be removed.
    fn left(&self, swept: &Swept) -> usize {
        usize::try_from(self.budget.records.saturating_sub(swept.total())).unwrap_or(usize::MAX)
    }
}

impl<C: ColdStore> Core<C> {
    /// Removes records that expired before `until`. Reads from the disk, and waits for a retirement.
    pub(super) fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let _alone = self.maintenance.blocking_lock();
        self.log.check()?;
        let pace = Pace { budget, is_closing: &self.is_closing, stopwatch: Stopwatch::start() };
        let mut swept = Swept::default();
        self.sweep_log(until, &pace, &mut swept)?;
        for &kind in &budget.kinds {
            if pace.is_closing() {
                swept.more = true;
                break;
            }
            self.sweep_cold(kind, until, &pace, &mut swept)?;
        }
        Ok(swept)
    }

    /// Removes expired entries from the index. It passes over the entries of shards in which a record has ended, 24 bytes
    /// each, and reads the keys of those that have expired.
    fn sweep_log(&self, until: Timestamp, pace: &Pace<'_>, swept: &mut Swept) -> Result<()> {
        let mut is_swept = [false; 256];
        for kind in &pace.budget.kinds {
            is_swept[usize::from(kind.code())] = true;
        }
        for number in 0..SHARDS {
            if pace.is_closing() {
                swept.more = true;
                return Ok(());
            }
            let due = self.index.shard(number).take_due(until, &is_swept);
            let Some(first) = due.iter().map(IndexEntry::expiry).min() else { continue };
            let is_done = self.sweep_shard(number, due, pace, swept);
            if !matches!(is_done, Ok(true)) {
                self.index.shard(number).expect_end(first);
                swept.more = true;
                return is_done.map(drop);
            }
            pace.rest(swept);
        }
        Ok(())
    }

    /// Removes expired entries of a shard, and answers whether the budget allowed all.
    fn sweep_shard(
        &self,
        number: usize,
        due: Vec<IndexEntry>,
        pace: &Pace<'_>,
        swept: &mut Swept,
    ) -> Result<bool> {
        let is_listed =
            |entry: &IndexEntry| Kind::from_code(entry.kind_code()).is_some_and(self.options.is_listed);
        let (mut listed, others): (Vec<_>, Vec<_>) = due.into_iter().partition(is_listed);
        for entries in others.chunks(AT_ONCE) {
            let most = pace.left(swept);
            self.remove_unlisted(number, &entries[..entries.len().min(most)], swept);
            if entries.len() > most {
                return Ok(false);
            }
        }
        listed.sort_unstable_by_key(IndexEntry::position);
        for entry in listed {
            let Some(kind) = Kind::from_code(entry.kind_code()) else { continue };
            if pace.left(swept) == 0 {
                return Ok(false);
            }
            if self.remove_expired(kind, entry)? {
                swept.add(kind, 1);
            }
        }
        Ok(true)
    }

    /// Removes entries of kinds without a map, those that are still there, under one lock of their shard.
    fn remove_unlisted(&self, number: usize, entries: &[IndexEntry], swept: &mut Swept) {
        let mut shard = self.index.shard(number);
        let mut removed = [0_u64; 256];
        for entry in entries {
            if self.sweep_entry(&mut shard, *entry) != Gone::Before {
                removed[usize::from(entry.kind_code())] += 1;
            }
        }
        drop(shard);
        for &kind in Kind::ALL {
            swept.add(kind, removed[usize::from(kind.code())]);
        }
    }

    /// Removes an entry of a kind with a map, if it is still there: a commit may have extended the record since.
    fn remove_expired(&self, kind: Kind, entry: IndexEntry) -> Result<bool> {
        // Retirement waits, so that the segment is there.
        let Some(frame) = self.frame(entry.position())? else { return Ok(false) };
        let Some((_, key)) = Frame::read(&frame)?.0.key() else { return Ok(false) };
        let mut shard = self.index.shard_of(entry.hash());
        let map = self.ordered.write(kind);
        let gone = self.sweep_entry(&mut shard, entry);
        if let Some(mut map) = map {
            match gone {
                Gone::Before => return Ok(false),
                Gone::Masked(mask) => map.insert(key, mask),
                Gone::Removed => map.remove(key),
            }
        }
        Ok(gone != Gone::Before)
    }

    /// Removes an entry, or leaves a mask where the cold store may have a copy.
    fn sweep_entry(&self, shard: &mut Shard, entry: IndexEntry) -> Gone {
        if entry.may_be_cold() || entry.position().segment() <= self.retiring.load(Ordering::SeqCst) {
            if !shard.contains(entry) {
                return Gone::Before;
            }
            let mask = entry.masked();
            shard.set(Some(entry), mask);
            return Gone::Masked(mask);
        }
        if shard.remove(entry) { Gone::Removed } else { Gone::Before }
    }

    fn sweep_cold(&self, kind: Kind, until: Timestamp, pace: &Pace<'_>, swept: &mut Swept) -> Result<()> {
        if !self.has_cold(kind) || !self.has_expired(kind, until)? {
            return Ok(());
        }
        // From here on nobody reads what is about to be removed: neither a new look, nor one that began before.
        self.removals.fetch_add(1, Ordering::SeqCst);
        let limit = &self.swept_until[usize::from(kind.code())];
        limit.store(until.as_millis(), Ordering::SeqCst);
        self.raise_epochs();
        let outcome = self.sweep_windows(kind, until, pace, swept);
        // A read from before the removal must not count once the limit is gone.
        self.raise_epochs();
        limit.store(0, Ordering::SeqCst);
        outcome
    }

    /// Returns true if a window has passed, or holds something that has expired.
    fn has_expired(&self, kind: Kind, until: Timestamp) -> Result<bool> {
        for window in self.cold.windows(kind) {
            if window.0 <= until.as_millis() || !self.cold.expired(kind, window, until, 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn raise_epochs(&self) {
        for number in 0..SHARDS {
            self.index.shard(number).epoch += 1;
        }
    }

    fn sweep_windows(&self, kind: Kind, until: Timestamp, pace: &Pace<'_>, swept: &mut Swept) -> Result<()> {
        let (passed, rest): (Vec<_>, Vec<_>) =
            self.cold.windows(kind).into_iter().partition(|window| window.0 <= until.as_millis());
        if !passed.is_empty() {
            // The manifest lets go of a window before it is dropped: one that it names must be there.
            self.log.change_manifest(|manifest| {
                manifest
                    .windows
                    .retain(|(code, end, _)| *code != kind.code() || !passed.contains(&Window(*end)));
            })?;
            for window in passed {
                let mut removed = 0;
                self.cold.each(kind, window, &mut |key, _| {
                    removed += self.unmasked(kind, key);
                    // The window stays, and the next sweep counts and drops it.
                    if pace.is_closing() { Err(closing()) } else { Ok(()) }
                })?;
                swept.add(kind, removed);
                self.cold.drop_window(kind, window)?;
            }
        }
        for window in rest {
            if !self.sweep_window(kind, window, until, pace, swept)? {
                break;
            }
        }
        self.sync_cold()
    }

    /// Removes the expired records of a window that has not passed, and answers whether the budget allowed all.
    fn sweep_window(
        &self,
        kind: Kind,
        window: Window,
        until: Timestamp,
        pace: &Pace<'_>,
        swept: &mut Swept,
    ) -> Result<bool> {
        loop {
            let left = pace.left(swept).min(BULK);
            let keys = self.cold.expired(kind, window, until, left.max(1))?;
            if keys.is_empty() {
                return Ok(true);
            }
            if left == 0 || pace.is_closing() {
                swept.more = true;
                return Ok(false);
            }
            swept.add(kind, keys.iter().map(|key| self.unmasked(kind, key)).sum());
            let rows = keys.into_iter().map(|key| ColdRow { key, record: None });
            self.cold.ingest(kind, window, rows.collect())?;
            pace.rest(swept);
        }
    }

    /// 1 if the log has no newer frame of the key, and 0 if it has one.
    fn unmasked(&self, kind: Kind, key: &[u8]) -> u64 {
        let hash = self.index.hash(kind, key);
        u64::from(self.index.shard_of(hash).with_hash(hash).next().is_none())
    }

    /// The last counts, if making them anew would take more than a hundredth of the time.
    pub(super) fn recent_stats(&self) -> Option<Stats> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, took, stats) = counted.as_ref()?;
        (*took >= LONG_COUNT && since.elapsed() < *took * 100).then(|| stats.clone())
    }

    /// Counts all records, and keeps the counts for [`recent_stats`](Self::recent_stats).
    pub(super) fn count_stats(&self, now: Timestamp) -> Result<Stats> {
        let counting = Stopwatch::start();
        let stats = self.count_all(now)?;
        let counted = Some((Stopwatch::start(), counting.elapsed(), stats.clone()));
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = counted;
        Ok(stats)
    }

    /// Counts again if retirement moved records from the index to the cold store meanwhile: they would count twice.
    fn count_all(&self, now: Timestamp) -> Result<Stats> {
        let mut tries = COUNT_TRIES;
        loop {
            tries -= 1;
            let moves = self.moves.load(Ordering::SeqCst);
            let stats = self.count_once(now)?;
            if tries == 0 || self.moves.load(Ordering::SeqCst) == moves {
                return Ok(stats);
            }
        }
    }

    /// Walks the index and the cold store. Waits for nobody: sweeps and backups may take long.
    fn count_once(&self, now: Timestamp) -> Result<Stats> {
        let mut stats = Stats::new();
        for number in 0..SHARDS {
            for entry in self.index.shard(number).iter().filter(|entry| !entry.is_deleted()) {
                if let Some(kind) = Kind::from_code(entry.kind_code()) {
                    note(stats.entry(kind).or_default(), entry.expiry(), now);
                }
            }
        }
        for &kind in Kind::ALL.iter().filter(|kind| self.has_cold(**kind)) {
            let mut after: Option<Box<[u8]>> = None;
            loop {
                let start = after.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
                if self.is_closing.load(Ordering::Relaxed) {
                    return Err(closing());
                }
                let page = self.cold.scan(kind, start, &[], BULK)?;
                for (key, record) in &page.rows {
                    let is_there = !self.is_swept(kind, record.expires_at);
                    if is_there && self.unmasked(kind, key) == 1 {
                        note(stats.entry(kind).or_default(), record.expires_at.as_millis(), now);
                    }
                }
                after = page.rows.into_iter().next_back().map(|(key, _)| key);
                if !page.more {
                    break;
                }
            }
        }
        Ok(stats)
    }
}

fn closing() -> Error {
    Error::unavailable("the store is being closed")
}

fn note(stats: &mut KindStats, expiry: u64, now: Timestamp) {
    if now.as_millis() < expiry {
        stats.live += 1;
    } else {
        stats.expired += 1;
        let overdue = Duration::from_millis(now.as_millis() - expiry);
        stats.oldest_overdue = stats.oldest_overdue.max(Some(overdue));
    }
}
