//! Sweeps and counts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Core;
use crate::admin::{KindStats, Stats};
use crate::backend::{Budget, Swept};
use crate::engines::log::cold::{ColdStore, Row, Window};
use crate::engines::log::index::{Entry, SHARDS, Shard};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Cold records that are removed by one bulk.
const BULK: usize = 1_000;

impl<C: ColdStore> Core<C> {
    /// Removes records that expired before `until`. Reads from the disk, and waits for a retirement.
    pub(super) fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let _alone = self.maintenance.blocking_lock();
        self.log.check()?;
        let mut swept = Swept::default();
        for &kind in &budget.kinds {
            self.sweep_log(kind, until, budget.records, &mut swept);
            self.sweep_cold(kind, until, budget.records, &mut swept)?;
        }
        Ok(swept)
    }

    fn sweep_log(&self, kind: Kind, until: Timestamp, most: u64, swept: &mut Swept) {
        let listed = self.ordered.read(kind).map(|map| {
            let expired = map.iter().filter(|(_, entry)| entry.is_swept(until));
            expired.map(|(key, entry)| (key.clone(), *entry)).collect::<Vec<_>>()
        });
        if let Some(expired) = listed {
            for (key, entry) in expired {
                if swept.total() >= most {
                    swept.more = true;
                    return;
                }
                let mut shard = self.index.shard_of(entry.hash());
                let Some(mut map) = self.ordered.write(kind) else { return };
                // Judged in the step that removes: a commit may have extended it since.
                if !shard.contains(entry) {
                    continue;
                }
                match self.sweep_entry(&mut shard, entry) {
                    Some(mask) => drop(map.insert(key, mask)),
                    None => drop(map.remove(&key)),
                }
                swept.add(kind, 1);
            }
            return;
        }
        for number in 0..SHARDS {
            let mut shard = self.index.shard(number);
            let is_expired = |entry: &Entry| entry.kind_code() == kind.code() && entry.is_swept(until);
            let expired: Vec<Entry> = shard.iter().filter(is_expired).collect();
            for entry in expired {
                if swept.total() >= most {
                    swept.more = true;
                    return;
                }
                self.sweep_entry(&mut shard, entry);
                swept.add(kind, 1);
            }
        }
    }

    /// Removes an entry, or leaves a mask where the cold store may have a copy, and returns that.
    fn sweep_entry(&self, shard: &mut Shard, entry: Entry) -> Option<Entry> {
        if entry.may_be_cold() || entry.position().segment() <= self.retiring.load(Ordering::SeqCst) {
            let mask = entry.masked();
            shard.set(Some(entry), mask);
            return Some(mask);
        }
        shard.remove(entry);
        None
    }

    fn sweep_cold(&self, kind: Kind, until: Timestamp, most: u64, swept: &mut Swept) -> Result<()> {
        if !self.has_cold(kind) {
            return Ok(());
        }
        // From here on nobody reads what is about to be removed: neither a new look, nor one that began before.
        let limit = &self.swept_until[usize::from(kind.code())];
        limit.store(until.as_millis(), Ordering::SeqCst);
        self.raise_epochs();
        let outcome = self.sweep_windows(kind, until, most, swept);
        // A read from before the removal must not count once the limit is gone.
        self.raise_epochs();
        limit.store(0, Ordering::SeqCst);
        outcome
    }

    fn raise_epochs(&self) {
        for number in 0..SHARDS {
            self.index.shard(number).epoch += 1;
        }
    }

    fn sweep_windows(&self, kind: Kind, until: Timestamp, most: u64, swept: &mut Swept) -> Result<()> {
        let (passed, rest): (Vec<_>, Vec<_>) =
            self.cold.windows(kind).into_iter().partition(|window| window.0 <= until.as_millis());
        if !passed.is_empty() {
            // The manifest lets go of a window before it is dropped: one that it names must be there.
            self.log.change_manifest(|manifest| {
                manifest
                    .windows
                    .retain(|(code, end)| *code != kind.code() || !passed.contains(&Window(*end)));
            })?;
            for window in passed {
                let keys = self.cold.expired(kind, window, until, usize::MAX)?;
                swept.add(kind, self.unmasked(kind, &keys));
                self.cold.drop_window(kind, window)?;
            }
        }
        for window in rest {
            if !self.sweep_window(kind, window, until, most, swept)? {
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
        most: u64,
        swept: &mut Swept,
    ) -> Result<bool> {
        loop {
            let left = usize::try_from(most.saturating_sub(swept.total())).unwrap_or(usize::MAX).min(BULK);
            let keys = self.cold.expired(kind, window, until, left.max(1))?;
            if keys.is_empty() {
                return Ok(true);
            }
            if left == 0 {
                swept.more = true;
                return Ok(false);
            }
            swept.add(kind, self.unmasked(kind, &keys));
            let rows = keys.into_iter().map(|key| Row { key, record: None });
            self.cold.ingest(kind, window, rows.collect())?;
        }
    }

    /// Number of keys that the log has no newer frame of.
    fn unmasked(&self, kind: Kind, keys: &[Box<[u8]>]) -> u64 {
        let mut unmasked = 0;
        for key in keys {
            let hash = self.index.hash(kind, key);
            unmasked += u64::from(self.index.shard_of(hash).with_hash(hash).next().is_none());
        }
        unmasked
    }

    /// Counts all records. Walks the index and the cold store.
    pub(super) fn count_stats(&self, now: Timestamp) -> Result<Stats> {
        let _alone = self.maintenance.blocking_lock();
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
                let page = self.cold.scan(kind, start, &[], BULK)?;
                for (key, record) in &page.rows {
                    let is_there = !self.is_swept(kind, record.expires_at);
                    if is_there && self.unmasked(kind, std::slice::from_ref(key)) == 1 {
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

fn note(stats: &mut KindStats, expiry: u64, now: Timestamp) {
    if now.as_millis() < expiry {
        stats.live += 1;
    } else {
        stats.expired += 1;
        let overdue = Duration::from_millis(now.as_millis() - expiry);
        stats.oldest_overdue = stats.oldest_overdue.max(Some(overdue));
    }
}
