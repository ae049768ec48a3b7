//! Listings of kinds without a map in order, which only administrators walk: by segment.
//!
//! One pass over the log finds the next keys of the kind, many pages of them. Pages take their keys from the pass and
//! from the cold store, and each key is judged when its page is made. So a pass need not be exact: it must have every
//! key that was in the log when the walk began.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Core;
use super::lookup::{Known, RecordLocation};
use super::scan::Range;
use crate::backend::{Cursor, Page};
use crate::engines::log::cold::{ColdPage, ColdStore};
use crate::engines::log::frame::Frame;
use crate::engines::log::group::Header;
use crate::engines::log::index::{IndexEntry, SHARDS};
use crate::engines::log::position::Position;
use crate::engines::log::segment::Segment;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Keys that one pass keeps.
const KEPT: usize = if cfg!(test) { 20 } else { 200_000 };

/// Records of a kind that are read one by one instead of by a pass over all segments.
const FEW: usize = if cfg!(test) { 4 } else { 20_000 };

/// Keys of a kind that one pass over the log found, in order.
pub(super) struct Pass {
    prefix: Box<[u8]>,
    /// Place behind which the keys are.
    from: Box<[u8]>,
    keys: Vec<Box<[u8]>>,
    /// True if there are more behind the last one.
    more: bool,
    /// Removals from the cold store before the pass.
    removals: u64,
}

impl Pass {
    /// Returns true if the pass has the next keys of a walk that began before it.
    fn covers(&self, range: &Range<'_>, removals: u64) -> bool {
        let Bound::Excluded(after) = range.start else { return false };
        let is_short = self.more && self.keys.last().is_none_or(|last| after >= &**last);
        self.removals == removals
            && range.prefix.starts_with(&self.prefix)
            && after >= &*self.from
            && !is_short
    }

    /// Up to `most` keys of a range, and whether there are more behind them.
    fn keys(&self, range: &Range<'_>) -> (&[Box<[u8]>], bool) {
        let first = match range.start {
            Bound::Excluded(after) => self.keys.partition_point(|key| &**key <= after),
            _ => self.keys.partition_point(|key| &**key < range.prefix),
        };
        let keys = &self.keys[first..];
        let inside = keys.partition_point(|key| key.starts_with(range.prefix));
        let count = inside.min(range.most);
        (&keys[..count], count < inside || (inside == keys.len() && self.more))
    }
}

impl<C: ColdStore> Core<C> {
    /// A page of a kind without a map, and the last frame that it rests on. One thread makes them, so that the pass at hand
    /// is never older than the first page of a walk.
    pub(super) fn unlisted_page(
        &self,
        range: &Range<'_>,
        now: Timestamp,
    ) -> Result<(Page, Option<Position>)> {
        let pass = self.pass(range)?;
        let moves = self.moves.load(Ordering::SeqCst);
        let cold = if self.has_cold(range.kind) {
            self.cold.scan(range.kind, range.start, range.prefix, range.most)?
        } else {
            ColdPage::default()
        };
        let (keys, more) = pass.keys(range);
        let cold_end = cold.rows.last().filter(|_| cold.more).map(|(key, _)| key.clone());
        let end = cold_end.into_iter().chain(keys.last().filter(|_| more).cloned()).min();
        let mut candidates: BTreeMap<Box<[u8]>, Option<Record>> =
            keys.iter().map(|key| (key.clone(), None)).collect();
        candidates.extend(cold.rows.into_iter().map(|(key, record)| (key, Some(record))));
        if let Some(end) = &end {
            candidates.retain(|key, _| key <= end);
        }
        let (mut page, mut rests_on, mut last) = (Page::default(), None, None);
        for (bytes, cold) in candidates {
            if page.items.len() == range.limit {
                page.next = last.map(|key: Box<[u8]>| Cursor::from_bytes(key.into_vec()));
                return Ok((page, rests_on));
            }
            let key = Key::decode(range.kind, &bytes)?;
            let record = match cold {
                Some(record) if self.is_untouched(&key, moves) => {
                    Some(record).filter(|record| !self.is_swept(range.kind, record.expires_at))
                }
                _ => {
                    let standing = self.resolve(&key)?;
                    rests_on = rests_on.max(standing.position());
                    standing.record()?
                }
            };
            page.items.extend(record.filter(|record| record.is_live(now)).map(|record| (key, record)));
            last = Some(bytes);
        }
        page.next = end.map(|key| Cursor::from_bytes(key.into_vec()));
        Ok((page, rests_on))
    }

    /// Returns true if a cold record that was read after `moves` still counts: the log has no newer frame, and nothing has
    /// left the log since.
    fn is_untouched(&self, key: &Key, moves: u64) -> bool {
        let hash = self.hash(key);
        let shard = self.index.shard_of(hash);
        shard.with_hash(hash).next().is_none() && self.moves.load(Ordering::SeqCst) == moves
    }

    /// State of a key. Reads from the disk.
    fn resolve(&self, key: &Key) -> Result<RecordLocation> {
        let hash = self.hash(key);
        let mut known = Known::default();
        loop {
            match self.look(hash, key, &known, 0)? {
                Ok(standing) => return Ok(standing),
                Err(need) => self.fetch(&need, key, &mut known)?,
            }
        }
    }

    /// The pass at hand, if it has the next keys; else a new one. The first page of a walk always makes one.
    fn pass(&self, range: &Range<'_>) -> Result<Arc<Pass>> {
        let removals = self.removals.load(Ordering::SeqCst);
        let passes = || self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = passes().get(&range.kind).filter(|pass| pass.covers(range, removals)) {
            return Ok(Arc::clone(pass));
        }
        let pass = Arc::new(self.pass_over(range, removals)?);
        // One that has all keys of a small kind is as cheap to make again.
        if pass.more || pass.keys.len() > range.most {
            passes().insert(range.kind, Arc::clone(&pass));
        } else {
            passes().remove(&range.kind);
        }
        Ok(pass)
    }

    /// Finds the keys of a range that are in the log. What was acknowledged before is among them, or has retired and is in
    /// the cold store.
    fn pass_over(&self, range: &Range<'_>, removals: u64) -> Result<Pass> {
        let (mut keys, mut more): (BTreeSet<Box<[u8]>>, _) = (BTreeSet::new(), false);
        let mut add = |key: &[u8]| {
            let is_behind = match range.start {
                Bound::Excluded(after) => key > after,
                _ => true,
            };
            if is_behind && key.starts_with(range.prefix) {
                keys.insert(Box::from(key));
                if keys.len() > KEPT.max(range.most) {
                    keys.pop_last();
                    more = true;
                }
            }
        };
        if let Some(entries) = self.few(range.kind) {
            for entry in entries {
                // A segment that is gone was retired.
                if let Some(frame) = self.frame(entry.position())?
                    && let Some((_, key)) = Frame::read(&frame)?.0.key()
                {
                    add(key);
                }
            }
        } else {
            self.each_key(range.kind, &mut add)?;
        }
        let from = match range.start {
            Bound::Excluded(after) => after,
            _ => range.prefix,
        };
        let (prefix, from) = (range.prefix.into(), from.into());
        Ok(Pass { prefix, from, keys: keys.into_iter().collect(), more, removals })
    }

    /// Entries of a kind; none if there are many.
    fn few(&self, kind: Kind) -> Option<Vec<IndexEntry>> {
        let mut entries = Vec::new();
        for number in 0..SHARDS {
            let shard = self.index.shard(number);
            entries.extend(shard.iter().filter(|entry| entry.kind_code() == kind.code()).take(FEW + 1));
            if entries.len() > FEW {
                return None;
            }
        }
        entries.sort_unstable_by_key(IndexEntry::position);
        Some(entries)
    }

    /// Visits the key of each record in the durable groups of all segments, in the order of the log.
    fn each_key(&self, kind: Kind, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let end = self.log.durable_end();
        for segment in self.log.segments_up_to(end.segment()) {
            let used = if segment.id == end.segment() { end.offset() } else { segment.len };
            let bytes = segment.read(0, used as usize)?;
            let mut at = 0;
            while let Some(header) = bytes.get(at..).and_then(|bytes| Header::read(bytes, &segment.epoch)) {
                let Some(body) = header.body(&bytes[at..]) else {
                    let (name, sequence) = (Segment::name(segment.id), header.sequence);
                    return Err(Error::corrupt(format!("segment {name} is damaged at group {sequence}")));
                };
                Frame::each(body, |_, frame| {
                    if let Frame::Store(stored) = frame
                        && stored.kind == kind
                    {
                        visit(stored.key);
                    }
                    Ok(())
                })?;
                at += header.size();
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}
