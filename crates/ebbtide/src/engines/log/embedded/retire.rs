//! Retirement: the oldest segment leaves the log for the cold store.
//!
//! The order of the steps makes a crash after any of them harmless: survivors and tombstones into the cold store, one
//! sync; the checkpoint, once every group that was open when the walk ended is durable; the entries of the index;
//! the file. Until the checkpoint the segment is replayed, and masks what the cold store already has.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::Core;
use crate::engines::log::cold::{ColdRow, ColdStore, Window, window_for};
use crate::engines::log::faults::PlantedFault;
use crate::engines::log::frame::Frame;
use crate::engines::log::group::{HEADER, Header};
use crate::engines::log::index::IndexEntry;
use crate::engines::log::position::Position;
use crate::engines::log::segment::Segment;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;
use crate::model::time::{Stopwatch, Timestamp};

/// Changes of the cold store by kind and window. The index points to one frame of each key, so that no key is there twice.
type Bulks = BTreeMap<(Kind, Window), Vec<ColdRow>>;

/// Entries that leave the index, with the keys of kinds that are listed.
type Leaving = Vec<(Kind, Option<Box<[u8]>>, IndexEntry)>;

/// Bytes of a row in a table beside its key and its value, at most.
const ROW_BYTES: usize = 64;

impl<C: ColdStore> Core<C> {
    /// Retires segments that are older than the horizon, or that are too many.
    pub(super) async fn maintain(&self) -> Result<()> {
        self.measure_space();
        self.write_hints();
        let Some(now) = self.last_known_time()? else { return Ok(()) };
        while let Some((id, is_old)) = self.due() {
            // A caller that closes the store waits for this thread.
            if self.is_closing.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !self.retire_oldest(now).await? {
                if is_old {
                    // It is still written to, or nothing is behind it. The next look retires it.
                    self.log.leave(id);
                }
                return Ok(());
            }
            self.measure_space();
        }
        Ok(())
    }

    /// A time that has been reached: what had expired by then is not moved. None if nobody has ever handed in the time.
    fn last_known_time(&self) -> Result<Option<Timestamp>> {
        let latest = Some(self.latest.load(Ordering::Relaxed)).filter(|latest| *latest > 0);
        let latest = latest.map(Timestamp::from_stored).transpose()?;
        // A leap of the clock moves no mark: what it would make expire is not dropped.
        Ok(match (self.mark().time, latest) {
            (Some(mark), Some(latest)) => Some(mark.min(latest)),
            (mark, latest) => mark.or(latest),
        })
    }

    /// The oldest segment with frames, if it is to retire, and true if that is for its age.
    fn due(&self) -> Option<(u32, bool)> {
        let mut ages = self.ages.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self.log.used();
        for id in &used {
            ages.entry(*id).or_insert_with(Stopwatch::start);
        }
        let oldest = *used.first()?;
        let is_old = ages.get(&oldest)?.elapsed() >= self.options.horizon;
        (is_old || self.log.bytes() > self.options.cap_bytes).then_some((oldest, is_old))
    }

    /// Compares the free space of the disk with the reserve.
    pub(super) fn measure_space(&self) {
        self.log.measure_space(0);
    }

    /// Fails while the disk is short and the rows do not fit beside half of the reserve. At the end of the disk a cold store
    /// leaves what it has written of a table: that would take what revocations need.
    fn check_fits(&self, bulks: &Bulks) -> Result<()> {
        let size = |row: &ColdRow| {
            (ROW_BYTES + row.key.len() + row.record.as_ref().map_or(0, |record| record.value.len())) as u64
        };
        let bytes: u64 = bulks.values().flatten().map(size).sum();
        let fits = |free: u64| free >= bytes + bytes / 4 + self.log.reserve() / 2;
        if bytes == 0 || !self.log.is_short() || self.disk.free().is_ok_and(fits) {
            return Ok(());
        }
        Err(Error::unavailable("the disk is almost full; the oldest segment stays in the log"))
    }

    /// Retires the oldest segment, if a later one is in use, and answers whether it did.
    pub(super) async fn retire_oldest(&self, now: Timestamp) -> Result<bool> {
        let _alone = self.maintenance.lock().await;
        let Some((segment, last)) = self.log.oldest() else { return Ok(false) };
        // An attempt before, of this process or of one that crashed, may have left copies in the cold store.
        let is_repeated = self.retiring.fetch_max(segment.id, Ordering::SeqCst) >= segment.id;
        let collected = self.collect(&segment, last, is_repeated, now);
        if let Err(error) = &collected
            && error.kind() == ErrorKind::Corrupt
        {
            self.found_damage(&segment, error);
        }
        let (bulks, leaving) = collected?;
        self.check_fits(&bulks)?;
        let open = self.log.appended_end();
        for (kind, _) in bulks.keys() {
            self.has_cold[usize::from(kind.code())].store(true, Ordering::SeqCst);
        }
        for ((kind, window), mut rows) in bulks {
            rows.sort_unstable_by(|left, right| left.key.cmp(&right.key));
            self.cold.ingest(kind, window, rows)?;
        }
        self.sync_cold()?;
        let mark = self.mark().time;
        if let Some(before) = open.offset().checked_sub(1)
            && !self.faults().has(PlantedFault::CheckpointDoesNotWait)
        {
            // A newer version in one of these groups is why an older one was left behind.
            self.log.durable(Position::new(open.segment(), before)).await?;
        }
        if self.faults().has(PlantedFault::UnlinkBeforeCheckpoint) {
            let _ = self.disk.unlink(&Segment::name(segment.id));
        }
        let windows = named_windows(&self.cold)?;
        self.log.change_manifest(|manifest| {
            manifest.windows = windows;
            manifest.checkpoint = segment.id;
            manifest.first_sequence = last + 1;
            manifest.segments.retain(|entry| entry.id > segment.id);
            manifest.clock_mark = mark.map(Timestamp::as_millis);
        })?;
        self.remove(leaving);
        self.log.forget(segment.id);
        self.ages.lock().unwrap_or_else(PoisonError::into_inner).remove(&segment.id);
        self.forget_hint(&segment);
        if let Err(error) = self.disk.unlink(&Segment::name(segment.id)) {
            // Opening removes it: the manifest does not name it.
            tracing::warn!(%error, segment = segment.id, "cannot remove a retired segment of the log");
        }
        Ok(true)
    }

    /// Walks a segment and sorts what the index still points to.
    fn collect(
        &self,
        segment: &Segment,
        last: u64,
        is_repeated: bool,
        now: Timestamp,
    ) -> Result<(Bulks, Leaving)> {
        let bytes = segment.read(0, segment.len as usize)?;
        let (mut bulks, mut leaving) = (Bulks::new(), Leaving::new());
        let mut windows: BTreeMap<Kind, Vec<Window>> = BTreeMap::new();
        // It is the oldest segment: its first group, if it has one, is the first that would be replayed.
        let (mut at, mut sequence) = (0, self.log.manifest().first_sequence - 1);
        while sequence < last {
            let header = bytes.get(at..).and_then(|bytes| Header::read(bytes, &segment.epoch));
            let header = header.filter(|header| header.sequence == sequence + 1);
            let body = header.and_then(|header| Some((header, header.body(&bytes[at..])?)));
            let Some((header, body)) = body else {
                return Err(Error::corrupt(format!(
                    "segment {} of the log is damaged behind group {sequence}; groups up to {last} were durable",
                    Segment::name(segment.id)
                )));
            };
            Frame::each(body, |offset, frame| {
                let Some((kind, key)) = frame.key() else { return Ok(()) };
                let offset = u32::try_from(at + HEADER + offset).expect("a segment is smaller than 4 GiB");
                let Some(entry) = self.entry_at(kind, key, Position::new(segment.id, offset)) else {
                    return Ok(());
                };
                let windows = windows.entry(kind).or_insert_with(|| self.cold.windows(kind));
                let mut home = None;
                if let Frame::Store(stored) = frame
                    && entry.is_live(now)
                {
                    let window = window_for(stored.expires_at, now, windows);
                    let row = ColdRow { key: key.into(), record: Some(stored.record()) };
                    bulks.entry((kind, window)).or_default().push(row);
                    home = Some(window);
                }
                if (entry.may_be_cold() || is_repeated) && !self.faults().has(PlantedFault::TombstoneDropped)
                {
                    for window in windows.iter().filter(|window| Some(**window) != home) {
                        let tombstone = ColdRow { key: key.into(), record: None };
                        bulks.entry((kind, *window)).or_default().push(tombstone);
                    }
                }
                windows.extend(home.filter(|window| !windows.contains(window)));
                leaving.push((kind, (self.options.is_listed)(kind).then(|| key.into()), entry));
                Ok(())
            })?;
            sequence = header.sequence;
            at += header.size();
        }
        Ok((bulks, leaving))
    }

    /// The entry of a key, if it points to this frame.
    fn entry_at(&self, kind: Kind, key: &[u8], at: Position) -> Option<IndexEntry> {
        let hash = self.index.hash(kind, key);
        self.index.shard_of(hash).with_hash(hash).find(|entry| entry.position() == at)
    }

    /// Removes entries that still are what they were when the segment was walked. Their shards' epochs rise with them, so
    /// that a cold read from before counts no more.
    fn remove(&self, leaving: Leaving) {
        for (kind, key, entry) in leaving {
            let mut shard = self.index.shard_of(entry.hash());
            let mut map = self.ordered.write(kind);
            if !shard.remove(entry) {
                continue;
            }
            shard.epoch += 1;
            self.moves.fetch_add(1, Ordering::SeqCst);
            if let (Some(map), Some(key)) = (&mut map, key) {
                map.remove(&key);
            }
        }
        for number in 0..crate::engines::log::index::SHARDS {
            self.index.shard(number).shrink();
        }
    }
}

/// Windows of a cold store with their generations, as the manifest names them.
pub(crate) fn named_windows(cold: &impl ColdStore) -> Result<Vec<(u8, u64, u64)>> {
    let mut named = Vec::new();
    for &kind in Kind::ALL {
        for window in cold.windows(kind) {
            named.push((kind.code(), window.0, cold.generation(kind, window)?.unwrap_or(0)));
        }
    }
    Ok(named)
}
