//! RocksDB as a cold store: two column families for each window of a kind, written in bulk, without its journal.
//!
//! As with fjall, one has the records and the other the expiry list of the window. A passed window is dropped with its
//! column families. Within a live one, compactions drop records by their own expiry, up to the time of the last sweep:
//! the answers of the log do not depend on it, since a sweep counts a record as removed before that time moves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::compaction_filter::{CompactionFilter, Decision};
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{
    BlockBasedOptions, BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBCompressionType,
    DBRawIteratorWithThreadMode, DBWithThreadMode, FlushOptions, MultiThreaded, Options as DbOptions,
    ReadOptions, WriteBatch, WriteOptions,
};

use super::stored::{GENERATION, behind_generation, decode, encode, end_key, generation, millis};
use super::{Bound, ColdPage, ColdRow, ColdStore, OldStore, Tuning, Visit, Window};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

type Db = DBWithThreadMode<MultiThreaded>;
type Column<'a> = Arc<BoundColumnFamily<'a>>;

/// Ending of the names of expiry lists.
const ENDS: &str = "-ends";

/// Bytes that compactions may write in a second, so that they leave the disk to the commits.
const COMPACTION_BYTES_PER_SECOND: i64 = 256 << 20;

/// Rows that are written by one batch.
const BATCH: usize = 1_000;

/// A RocksDB database behind the log.
pub struct RocksCold {
    db: Db,
    /// Names of the column families of windows; RocksDB lists those of a database that is not open.
    columns: RwLock<BTreeSet<String>>,
    column_options: DbOptions,
    /// Records that expired before this may be dropped by compactions.
    cutoff: Arc<AtomicU64>,
    /// Ends up to which the list of a window was emptied, so that a sweep does not pass over its tombstones again.
    swept_to: Mutex<BTreeMap<(Kind, Window), Vec<u8>>>,
}

impl RocksCold {
    fn column(&self, name: &str) -> Option<Column<'_>> {
        self.db.cf_handle(name)
    }

    fn column_or_new(&self, name: &str) -> Result<Column<'_>> {
        if let Some(column) = self.column(name) {
            return Ok(column);
        }
        // One thread writes, so that no two make one column family.
        self.db.create_cf(name, &self.column_options).map_err(failed)?;
        self.columns.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.column(name).ok_or_else(|| Error::unavailable("a column family is missing after its creation"))
    }

    fn write(
        &self,
        column: &Column<'_>,
        rows: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in rows {
            match value {
                Some(value) => batch.put_cf(column, key, value),
                None => batch.delete_cf(column, key),
            }
            if batch.len() >= BATCH {
                self.apply(std::mem::take(&mut batch))?;
            }
        }
        self.apply(batch)
    }

    /// Applies a batch without the journal: [`sync`](ColdStore::sync) flushes it.
    fn apply(&self, batch: WriteBatch) -> Result<()> {
        let mut unjournaled = WriteOptions::default();
        unjournaled.disable_wal(true);
        self.db.write_opt(batch, &unjournaled).map_err(failed)
    }

    fn items_from(&self, column: &Column<'_>, start: Bound<&[u8]>) -> DBRawIteratorWithThreadMode<'_, Db> {
        let mut reading = ReadOptions::default();
        // A walk must not push out what the foreground reads.
        reading.fill_cache(false);
        let mut items = self.db.raw_iterator_cf_opt(column, reading);
        match start {
            Bound::Unbounded => items.seek_to_first(),
            Bound::Included(key) => items.seek(key),
            Bound::Excluded(key) => {
                items.seek(key);
                if items.key() == Some(key) {
                    items.next();
                }
            }
        }
        items
    }

    /// Lets the next sweep of a window begin at `end`, if it would begin later.
    fn sweep_from(&self, kind: Kind, window: Window, end: &[u8]) {
        let mut swept_to = self.swept_to.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(to) = swept_to.get_mut(&(kind, window))
            && to.as_slice() > end
        {
            end.clone_into(to);
        }
    }

    fn names(&self, kind: Kind) -> Vec<String> {
        self.windows(kind).into_iter().map(|window| name(kind, window)).collect()
    }
}

/// Name of the column family of a window.
fn name(kind: Kind, window: Window) -> String {
    format!("{}-{}", kind.name(), window.0)
}

fn parse(name: &str) -> Option<(Kind, Window)> {
    let (kind, end) = name.rsplit_once('-')?;
    Some((kind.parse().ok()?, Window(end.parse().ok()?)))
}

fn list(options: &DbOptions, path: &Path) -> Result<Vec<String>> {
    if path.join("CURRENT").exists() {
        return Db::list_cf(options, path).map_err(failed);
    }
    Ok(vec!["default".to_owned()])
}

impl ColdStore for RocksCold {
    type Old = OldRocksDb;

    const NAME: &'static str = "rocksdb";

    fn open(path: &Path, cache_bytes: u64) -> Result<Self> {
        Self::open_tuned(path, cache_bytes, Tuning::default())
    }

    fn open_tuned(path: &Path, cache_bytes: u64, tuning: Tuning) -> Result<Self> {
        let cutoff = Arc::new(AtomicU64::new(0));
        let mut column_options = column_options(cache_bytes, Arc::clone(&cutoff));
        if let Some(files) = tuning.level0_trigger {
            column_options.set_level_zero_file_num_compaction_trigger(files);
        }
        let mut options = database_options();
        if let Some(jobs) = tuning.background_jobs {
            options.set_max_background_jobs(jobs);
        }
        let names = list(&options, path)?;
        for name in names.iter().filter(|name| *name != "default") {
            if parse(name.strip_suffix(ENDS).unwrap_or(name)).is_none() {
                return Err(Error::corrupt(format!("the cold store has an unknown column family {name}")));
            }
        }
        let columns = names.iter().map(|name| ColumnFamilyDescriptor::new(name, column_options.clone()));
        let db = Db::open_cf_descriptors(&options, path, columns).map_err(failed)?;
        for name in &names {
            let Some(rows) = name.strip_suffix(ENDS) else {
                if name != "default" && !names.contains(&format!("{name}{ENDS}")) {
                    return Err(Error::corrupt(format!("the expiry list of window {name} is missing")));
                }
                continue;
            };
            // A crash may have come between the two column families of a new window, or of one that was dropped.
            if !names.iter().any(|name| name == rows) {
                db.drop_cf(name).map_err(failed)?;
            }
        }
        let columns = names.into_iter().filter(|name| name != "default" && db.cf_handle(name).is_some());
        let columns = RwLock::new(columns.collect());
        Ok(Self { db, columns, column_options, cutoff, swept_to: Mutex::default() })
    }

    fn is_table(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending == "sst")
    }

    fn open_old(path: &Path) -> Result<OldRocksDb> {
        OldRocksDb::open(path)
    }

    fn windows(&self, kind: Kind) -> Vec<Window> {
        let columns = self.columns.read().unwrap_or_else(PoisonError::into_inner);
        let parsed = columns.iter().filter_map(|name| parse(name));
        let mut windows: Vec<_> =
            parsed.filter(|(other, _)| *other == kind).map(|(_, window)| window).collect();
        windows.sort_unstable();
        windows
    }

    fn generation(&self, kind: Kind, window: Window) -> Result<Option<u64>> {
        let Some(column) = self.column(&name(kind, window)) else { return Ok(None) };
        let row = self.db.get_pinned_cf(&column, GENERATION).map_err(failed)?;
        row.map(|bytes| generation(&bytes)).transpose()
    }

    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Record>> {
        for name in self.names(kind) {
            let Some(column) = self.column(&name) else { continue };
            if let Some(value) = self.db.get_pinned_cf(&column, key).map_err(failed)? {
                return decode(&value).map(Some);
            }
        }
        Ok(None)
    }

    fn scan(&self, kind: Kind, start: Bound<&[u8]>, prefix: &[u8], limit: usize) -> Result<ColdPage> {
        let (mut all, start) = (BTreeMap::new(), behind_generation(start));
        for name in self.names(kind) {
            let Some(column) = self.column(&name) else { continue };
            let mut items = self.items_from(&column, start);
            let mut count = 0;
            while let Some((key, value)) = items.item().filter(|(key, _)| key.starts_with(prefix)) {
                if count > limit {
                    break;
                }
                all.insert(Box::from(key), decode(value)?);
                count += 1;
                items.next();
            }
            items.status().map_err(failed)?;
        }
        let more = all.len() > limit;
        Ok(ColdPage { rows: all.into_iter().take(limit).collect(), more })
    }

    fn ingest(&self, kind: Kind, window: Window, rows: Vec<ColdRow>) -> Result<()> {
        let name = name(kind, window);
        let ends = self.column_or_new(&format!("{name}{ENDS}"))?;
        let ending = rows.iter().filter_map(|row| Some((row.record.as_ref()?.expires_at, &row.key)));
        let ending = ending.filter(|(expires_at, _)| !expires_at.is_never());
        let ending: Vec<_> = ending.map(|(expires_at, key)| end_key(expires_at, key)).collect();
        if let Some(first) = ending.iter().min() {
            self.sweep_from(kind, window, first);
        }
        self.write(&ends, ending.into_iter().map(|end| (end, Some(Vec::new()))))?;
        let column = self.column_or_new(&name)?;
        let next = self.generation(kind, window)?.unwrap_or(0) + 1;
        let rows = rows.iter().map(|row| (row.key.to_vec(), row.record.as_ref().map(encode)));
        let generation = (GENERATION.to_vec(), Some(next.to_be_bytes().to_vec()));
        self.write(&column, std::iter::once(generation).chain(rows))
    }

    fn expired(&self, kind: Kind, window: Window, until: Timestamp, limit: usize) -> Result<Vec<Box<[u8]>>> {
        let name = name(kind, window);
        let (Some(rows), Some(ends)) = (self.column(&name), self.column(&format!("{name}{ENDS}"))) else {
            return Ok(Vec::new());
        };
        let (mut keys, mut past) = (BTreeSet::new(), Vec::new());
        let from = self.swept_to.lock().unwrap_or_else(PoisonError::into_inner).get(&(kind, window)).cloned();
        let from = from.unwrap_or_default();
        let mut first = None;
        let mut items = self.items_from(&ends, Bound::Included(&from));
        while let Some(end) = items.key() {
            let Some((expiry, key)) = end.split_first_chunk::<8>() else {
                return Err(Error::corrupt("an entry of an expiry list is malformed"));
            };
            if u64::from_be_bytes(*expiry) >= until.as_millis() || keys.len() >= limit {
                break;
            }
            // The record decides: it may have moved, or end later.
            let record = self.db.get_pinned_cf(&rows, key).map_err(failed)?;
            let record = record.map(|value| decode(&value)).transpose()?;
            if record.is_some_and(|record| record.is_swept(until)) {
                keys.insert(Box::from(key));
                first.get_or_insert_with(|| end.to_vec());
            } else {
                past.push((end.to_vec(), None));
            }
            items.next();
        }
        items.status().map_err(failed)?;
        drop(items);
        self.write(&ends, past.into_iter())?;
        // The entries of what is removed now go with the next call.
        let until_end = || until.as_millis().to_be_bytes().to_vec().max(from);
        let mut swept_to = self.swept_to.lock().unwrap_or_else(PoisonError::into_inner);
        swept_to.insert((kind, window), first.unwrap_or_else(until_end));
        drop(swept_to);
        if keys.is_empty() {
            // All of it has been counted.
            self.cutoff.fetch_max(until.as_millis(), Ordering::AcqRel);
        }
        Ok(keys.into_iter().collect())
    }

    fn is_listed(&self, kind: Kind, window: Window, key: &[u8], expires_at: Timestamp) -> Result<bool> {
        let Some(ends) = self.column(&format!("{}{ENDS}", name(kind, window))) else { return Ok(false) };
        Ok(self.db.get_pinned_cf(&ends, end_key(expires_at, key)).map_err(failed)?.is_some())
    }

    fn drop_window(&self, kind: Kind, window: Window) -> Result<()> {
        self.swept_to.lock().unwrap_or_else(PoisonError::into_inner).remove(&(kind, window));
        let name = name(kind, window);
        // The records first: opening removes a list without records, and refuses records without a list.
        for name in [name.clone(), format!("{name}{ENDS}")] {
            if self.column(&name).is_some() {
                self.db.drop_cf(&name).map_err(failed)?;
                self.columns.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut whole = FlushOptions::default();
        whole.set_wait(true);
        let names = self.columns.read().unwrap_or_else(PoisonError::into_inner).clone();
        let columns: Vec<_> = names.iter().filter_map(|name| self.column(name)).collect();
        let columns: Vec<&Column<'_>> = columns.iter().collect();
        self.db.flush_cfs_opt(&columns, &whole).map_err(failed)
    }

    fn each(&self, kind: Kind, window: Window, visit: Visit<'_>) -> Result<()> {
        let Some(column) = self.column(&name(kind, window)) else { return Ok(()) };
        let mut items = self.items_from(&column, Bound::Excluded(GENERATION));
        while let Some((key, value)) = items.item() {
            visit(key, decode(value)?)?;
            items.next();
        }
        items.status().map_err(failed)
    }

    fn copy(&self, path: &Path) -> Result<()> {
        let checkpoint = Checkpoint::new(&self.db).map_err(failed)?;
        checkpoint.create_checkpoint(path).map_err(failed)
    }
}

fn database_options() -> DbOptions {
    let mut options = DbOptions::default();
    options.create_if_missing(true);
    options.set_max_background_jobs(3);
    options.set_db_write_buffer_size(256 << 20);
    options.set_bytes_per_sync(1 << 20);
    options.set_keep_log_file_num(4);
    options.set_max_open_files(1_024);
    options.set_ratelimiter(COMPACTION_BYTES_PER_SECOND, 100_000, 10);
    options
}

/// One cache for all column families, with indexes and filters in it: memory is bounded by it and the write buffers.
fn column_options(cache_bytes: u64, cutoff: Arc<AtomicU64>) -> DbOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(usize::try_from(cache_bytes).unwrap_or(usize::MAX)));
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = DbOptions::default();
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(64 << 20);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compaction_filter_factory(Expiry(cutoff));
    options
}

/// Makes the filter of each compaction: per record, by its own expiry.
struct Expiry(Arc<AtomicU64>);

impl CompactionFilterFactory for Expiry {
    type Filter = DropExpired;

    fn create(&mut self, _: CompactionFilterContext) -> DropExpired {
        DropExpired { cutoff: self.0.load(Ordering::Acquire) }
    }

    fn name(&self) -> &CStr {
        c"expiry"
    }
}

struct DropExpired {
    cutoff: u64,
}

impl CompactionFilter for DropExpired {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> Decision {
        // The number of the last bulk is no record.
        let is_expired = key != GENERATION && millis(value).is_some_and(|millis| millis < self.cutoff);
        if is_expired { Decision::Remove } else { Decision::Keep }
    }

    fn name(&self) -> &CStr {
        c"expiry"
    }
}

fn failed(error: rocksdb::Error) -> Error {
    let kind = match error.kind() {
        rocksdb::ErrorKind::Corruption => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    };
    let message =
        if kind == ErrorKind::Corrupt { "the cold store is damaged" } else { "the cold store failed" };
    Error::new(kind, message).caused_by(error)
}

/// A store that RocksDB wrote before there was a log: a column family for each kind, and one for the store's own rows.
pub struct OldRocksDb(Db);

impl OldRocksDb {
    const META: &str = "meta";

    fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Err(Error::corrupt("the directory `data` of the store is missing"));
        }
        let options = database_options();
        let names = list(&options, path)?;
        for name in &names {
            if name != "default" && name != Self::META && name.parse::<Kind>().is_err() {
                return Err(Error::corrupt(format!("the store has an unknown column family {name}")));
            }
        }
        Ok(Self(Db::open_cf(&options, path, names).map_err(failed)?))
    }
}

impl OldStore for OldRocksDb {
    fn clock_mark(&self) -> Result<Option<Timestamp>> {
        let Some(meta) = self.0.cf_handle(Self::META) else { return Ok(None) };
        let Some(bytes) = self.0.get_cf(&meta, b"mark").map_err(failed)? else { return Ok(None) };
        let millis = bytes.try_into().map_err(|_| Error::corrupt("the clock mark is malformed"))?;
        Timestamp::from_stored(u64::from_be_bytes(millis)).map(Some)
    }

    fn each(&self, kind: Kind, visit: Visit<'_>) -> Result<()> {
        let Some(column) = self.0.cf_handle(kind.name()) else { return Ok(()) };
        let mut items = self.0.raw_iterator_cf(&column);
        items.seek_to_first();
        while let Some((key, value)) = items.item() {
            visit(key, decode(value)?)?;
            items.next();
        }
        items.status().map_err(failed)
    }
}
