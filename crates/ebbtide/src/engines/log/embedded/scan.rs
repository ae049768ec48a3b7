//! Listings: keys of the log in order, merged with a walk of the cold store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::Core;
use crate::backend::{Cursor, Page};
use crate::engines::log::cold::{ColdPage, ColdStore};
use crate::engines::log::frame::Frame;
use crate::engines::log::index::IndexEntry;
use crate::engines::log::position::Position;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Tries before a walk keeps retirement from moving records.
const TRIES: usize = 4;

/// Range of a page.
pub(super) struct Range<'a> {
    pub(super) kind: Kind,
    pub(super) prefix: &'a [u8],
    pub(super) start: Bound<&'a [u8]>,
    pub(super) limit: usize,
    /// Most records that are looked at, expired ones included.
    pub(super) most: usize,
}

/// Keys of the log in a range, in order, and whether there are more.
struct Keys {
    entries: BTreeMap<Box<[u8]>, IndexEntry>,
    more: bool,
}

impl<C: ColdStore> Core<C> {
    /// A page, and the last frame that it rests on. Reads from the disk.
    pub(super) fn page(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Page, Option<Position>)> {
        let start = match after {
            Some(cursor) if cursor.as_bytes() >= prefix.as_bytes() => Bound::Excluded(cursor.as_bytes()),
            _ => Bound::Included(prefix.as_bytes()),
        };
        let limit = limit.max(1);
        let most = limit.saturating_mul(2).saturating_add(1_000);
        let range = Range { kind: prefix.kind(), prefix: prefix.as_bytes(), start, limit, most };
        if !(self.options.is_listed)(range.kind) {
            return self.unlisted_page(&range, now);
        }
        for _ in 0..TRIES {
            if let Some(page) = self.try_page(&range, now)? {
                return Ok(page);
            }
        }
        let _alone = self.maintenance.blocking_lock();
        self.try_page(&range, now)?.ok_or_else(|| Error::unavailable("the log moved while it was listed"))
    }

    /// A page; none if retirement moved records meanwhile.
    fn try_page(&self, range: &Range<'_>, now: Timestamp) -> Result<Option<(Page, Option<Position>)>> {
        let moves = self.moves.load(Ordering::SeqCst);
        let cold = if self.has_cold(range.kind) {
            self.cold.scan(range.kind, range.start, range.prefix, range.most)?
        } else {
            ColdPage::default()
        };
        let Some(keys) = self.keys(range, moves) else { return Ok(None) };
        // The part of the range that both sides have seen to its end.
        let cold_end = cold.rows.last().filter(|_| cold.more).map(|(key, _)| key.clone());
        let log_end = keys.entries.keys().next_back().filter(|_| keys.more).cloned();
        let end = [cold_end, log_end].into_iter().flatten().min();
        let rests_on = keys.entries.values().map(IndexEntry::position).max();
        let mut rows: BTreeMap<Box<[u8]>, ScanRow> = BTreeMap::new();
        for (key, record) in cold.rows {
            if !self.is_swept(range.kind, record.expires_at) && record.is_live(now) {
                rows.insert(key, ScanRow::Cold(record));
            }
        }
        for (key, entry) in keys.entries {
            if entry.is_live(now) {
                rows.insert(key, ScanRow::Log(entry));
            } else {
                rows.remove(&key);
            }
        }
        if let Some(end) = &end {
            rows.retain(|key, _| key <= end);
        }
        let mut page = Page::default();
        let mut last = None;
        let is_cut = rows.len() > range.limit;
        for (key, row) in rows.into_iter().take(range.limit) {
            let record = match row {
                ScanRow::Cold(record) => record,
                ScanRow::Log(entry) => match self.stored(entry)? {
                    Some(record) => record,
                    None => return Ok(None),
                },
            };
            page.items.push((Key::decode(range.kind, &key)?, record));
            last = Some(key);
        }
        let next = if is_cut { last } else { end };
        page.next = next.map(|key| Cursor::from_bytes(key.into_vec()));
        Ok(Some((page, rests_on)))
    }

    /// Keys of the log in a range; none if retirement moved records since `moves`.
    fn keys(&self, range: &Range<'_>, moves: u64) -> Option<Keys> {
        let map = self.ordered.read(range.kind)?;
        // Retirement counts its moves while it has locked the map.
        if self.moves.load(Ordering::SeqCst) != moves {
            return None;
        }
        let mut entries: BTreeMap<Box<[u8]>, IndexEntry> = map
            .from(range.start)
            .take_while(|(key, _)| key.starts_with(range.prefix))
            .take(range.most + 1)
            .collect();
        let more = entries.len() > range.most;
        if more {
            entries.pop_last();
        }
        Some(Keys { entries, more })
    }

    /// A frame from memory or from its segment; none if that was retired.
    pub(super) fn frame(&self, at: Position) -> Result<Option<Vec<u8>>> {
        match self.log.in_memory(at) {
            Some(frame) => Ok(Some(frame)),
            None => self.log.read(at),
        }
    }

    fn stored(&self, entry: IndexEntry) -> Result<Option<Record>> {
        let Some(frame) = self.frame(entry.position())? else { return Ok(None) };
        match Frame::read(&frame)?.0 {
            Frame::Store(stored) => Ok(Some(stored.record())),
            _ => Err(Error::corrupt("an entry of the index points to no record")),
        }
    }
}

/// A row of a page, from where it is newest.
enum ScanRow {
    Log(IndexEntry),
    Cold(Record),
}
