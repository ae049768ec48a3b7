//! RocksDB: the embedded engine for tens of millions of records.

use std::ffi::CStr;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::compaction_filter::{CompactionFilter, Decision};
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, BoundColumnFamily, Cache, ColumnFamilyDescriptor,
    CompactOptions, DBCompressionType, DBRawIteratorWithThreadMode, DBWithThreadMode, MultiThreaded,
    Options as DbOptions, ReadOptions, SnapshotWithThreadMode, WriteBatch, WriteOptions,
};

use super::embedded::{Embedded, Engine, Op, Options, Pace, Visitor, Walk, stored_millis};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

type Db = DBWithThreadMode<MultiThreaded>;

/// Opens the store behind `rocksdb:`.
pub(super) fn open(rest: &str) -> Result<Embedded<RocksDb>> {
    Embedded::open(&Options::parse(rest)?)
}

const META: &str = "meta";

/// What compactions may write in a second, so that they leave the disk to the commits.
const COMPACTION_BYTES_PER_SECOND: i64 = 256 << 20;

pub(super) struct RocksDb {
    db: Db,
    column_options: DbOptions,
    cutoff: Arc<AtomicU64>,
}

impl RocksDb {
    fn column(&self, kind: Kind) -> Option<Arc<BoundColumnFamily<'_>>> {
        self.db.cf_handle(kind.name())
    }

    /// Only whoever writes for the committer calls this, so no two threads make one column family.
    fn column_or_new(&self, kind: Kind) -> Result<Arc<BoundColumnFamily<'_>>> {
        if let Some(column) = self.column(kind) {
            return Ok(column);
        }
        self.db.create_cf(kind.name(), &self.column_options).map_err(failed)?;
        self.column(kind).ok_or_else(|| Error::unavailable("a column family is missing after its creation"))
    }

    fn meta(&self) -> Result<Arc<BoundColumnFamily<'_>>> {
        self.db
            .cf_handle(META)
            .ok_or_else(|| Error::corrupt("the column family of the store's metadata is missing"))
    }
}

impl Engine for RocksDb {
    type Snapshot<'a> = SnapshotWithThreadMode<'a, Db>;

    const NAME: &'static str = "rocksdb";

    fn open(dir: &Path, cache_bytes: u64) -> Result<Self> {
        let cutoff = Arc::new(AtomicU64::new(0));
        let column_options = column_options(cache_bytes, Arc::clone(&cutoff));
        let options = database_options();
        let mut names = if dir.join("CURRENT").exists() {
            Db::list_cf(&options, dir).map_err(failed)?
        } else {
            vec!["default".to_owned()]
        };
        if !names.iter().any(|name| name == META) {
            names.push(META.to_owned());
        }
        let columns = names.into_iter().map(|name| {
            let options = if name == META { DbOptions::default() } else { column_options.clone() };
            ColumnFamilyDescriptor::new(name, options)
        });
        let db = Db::open_cf_descriptors(&options, dir, columns).map_err(failed)?;
        Ok(Self { db, column_options, cutoff })
    }

    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Bytes>> {
        let Some(column) = self.column(kind) else { return Ok(None) };
        let value = self.db.get_pinned_cf(&column, key).map_err(failed)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn walk(&self, kind: Kind, walk: Walk<'_>, visit: Visitor<'_>) -> Result<()> {
        let Some(column) = self.column(kind) else { return Ok(()) };
        let mut items = self.db.raw_iterator_cf(&column);
        match walk.start {
            Bound::Unbounded => items.seek_to_first(),
            Bound::Included(key) => items.seek(key),
            Bound::Excluded(key) => {
                items.seek(key);
                if items.key() == Some(key) {
                    items.next();
                }
            }
        }
        visit_all(items, walk.prefix, visit)
    }

    fn write(&self, ops: Vec<Op<'_>>) -> Result<()> {
        let mut batch = WriteBatch::default();
        let meta = self.meta()?;
        for op in ops {
            match op {
                Op::Put(kind, key, value) => batch.put_cf(&self.column_or_new(kind)?, key, value),
                Op::Delete(kind, key) => batch.delete_cf(&self.column_or_new(kind)?, key),
                Op::DeleteRun(kind, keys) => {
                    if let [first, .., last] | [first @ last] = keys {
                        // The end is exclusive: the last key and nothing that follows it.
                        let end = [last.as_slice(), &[0]].concat();
                        batch.delete_range_cf(&self.column_or_new(kind)?, first.clone(), end);
                    }
                }
                Op::PutMeta(key, value) => batch.put_cf(&meta, key, value),
                Op::DeleteMeta(key) => batch.delete_cf(&meta, key),
            }
        }
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        self.db.write_opt(batch, &durable).map_err(failed)
    }

    fn snapshot(&self) -> Self::Snapshot<'_> {
        self.db.snapshot()
    }

    fn walk_snapshot(&self, snapshot: &Self::Snapshot<'_>, kind: Kind, visit: Visitor<'_>) -> Result<()> {
        let Some(column) = self.column(kind) else { return Ok(()) };
        let mut reading = ReadOptions::default();
        // A count of everything must not push out what the foreground reads.
        reading.fill_cache(false);
        let mut items = snapshot.raw_iterator_cf_opt(&column, reading);
        items.seek_to_first();
        visit_all(items, &[], visit)
    }

    fn walk_meta(&self, snapshot: &Self::Snapshot<'_>, visit: Visitor<'_>) -> Result<()> {
        let mut items = snapshot.raw_iterator_cf(&self.meta()?);
        items.seek_to_first();
        visit_all(items, &[], visit)
    }

    fn compact(&self, kind: Kind, cutoff: Timestamp, _: &Arc<Pace>) -> Result<()> {
        let Some(column) = self.column(kind) else { return Ok(()) };
        self.db.flush_cf(&column).map_err(failed)?;
        self.cutoff.store(cutoff.as_millis(), Ordering::Release);
        let mut whole = CompactOptions::default();
        whole.set_exclusive_manual_compaction(true);
        whole.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        // It answers nothing. If it failed, the count that follows finds the records still there.
        self.db.compact_range_cf_opt(&column, None::<&[u8]>, None::<&[u8]>, &whole);
        self.cutoff.store(0, Ordering::Release);
        Ok(())
    }

    fn checkpoint(&self, dir: &Path) -> Result<()> {
        let checkpoint = Checkpoint::new(&self.db).map_err(failed)?;
        checkpoint.create_checkpoint(dir).map_err(failed)
    }
}

fn database_options() -> DbOptions {
    let mut options = DbOptions::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_background_jobs(3);
    options.set_db_write_buffer_size(256 << 20);
    options.set_max_total_wal_size(512 << 20);
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
    // Most inserts find nothing: the filter of the memtable saves the search in it.
    options.set_memtable_prefix_bloom_ratio(0.05);
    options.set_memtable_whole_key_filtering(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compaction_filter_factory(Expiry(cutoff));
    options
}

fn visit_all(
    mut items: DBRawIteratorWithThreadMode<'_, Db>,
    prefix: &[u8],
    visit: Visitor<'_>,
) -> Result<()> {
    while let Some((key, value)) = items.item() {
        if !key.starts_with(prefix) || visit(key, value).is_break() {
            return Ok(());
        }
        items.next();
    }
    items.status().map_err(failed)
}

/// Makes the filter of each compaction. The engine's own compactions drop nothing by its expiry: only a sweep does,
/// and it compacts one kind from top to bottom, while no other compaction of that kind runs.
struct Expiry(Arc<AtomicU64>);

impl CompactionFilterFactory for Expiry {
    type Filter = DropExpired;

    fn create(&mut self, context: CompactionFilterContext) -> DropExpired {
        let cutoff = if context.is_manual_compaction { self.0.load(Ordering::Acquire) } else { 0 };
        DropExpired { cutoff }
    }

    fn name(&self) -> &CStr {
        c"expiry"
    }
}

struct DropExpired {
    cutoff: u64,
}

impl CompactionFilter for DropExpired {
    fn filter(&mut self, _level: u32, _key: &[u8], value: &[u8]) -> Decision {
        let expired = self.cutoff > 0 && stored_millis(value).is_some_and(|millis| millis < self.cutoff);
        if expired { Decision::Remove } else { Decision::Keep }
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
    Error::new(kind, "the embedded engine failed").caused_by(error)
}
