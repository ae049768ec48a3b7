//! A cold store for tests: maps in memory, each bulk in a file of its own on the disk of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use minicbor::{Decode, Encode};

use super::*;
use crate::engines::log::disk::Disk;
use crate::model::error::Error;
use crate::model::record::Version;

const BEGINNING: &str = "cold-";

/// Name of a bulk that is being written.
const UNNAMED: &str = "bulk.new";

type Table = BTreeMap<Box<[u8]>, Record>;

/// Value, version and expiry of a record.
type StoredRecord = (Vec<u8>, Vec<u8>, u64);

#[derive(Encode, Decode)]
struct Bulk {
    #[n(0)]
    kind: u8,
    #[n(1)]
    window: u64,
    #[n(2)]
    rows: Vec<(Vec<u8>, Option<StoredRecord>)>,
}

#[derive(Default)]
struct ColdState {
    tables: BTreeMap<(Kind, Window), Table>,
    files: BTreeMap<(Kind, Window), Vec<String>>,
    next: u64,
    reads: u64,
}

pub(crate) struct TestStore {
    disk: Arc<dyn Disk>,
    state: Mutex<ColdState>,
}

fn failed(error: std::io::Error) -> Error {
    Error::unavailable("the cold store failed").caused_by(error)
}

impl TestStore {
    /// Reads the bulks that are whole, in the order in which they were written.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<Self> {
        let mut state = ColdState::default();
        for name in disk.list().map_err(failed)? {
            let Some(number) = name.strip_prefix(BEGINNING) else { continue };
            state.next = number.parse::<u64>().unwrap() + 1;
            let bytes = disk.open(&name).and_then(|file| file.read_all()).map_err(failed)?;
            // A bulk that was not synced may be torn.
            let Some((crc, content)) = bytes.split_first_chunk::<4>() else { continue };
            if content.is_empty() || crc32c::crc32c(content).to_le_bytes() != *crc {
                continue;
            }
            let bulk: Bulk = minicbor::decode(content).unwrap();
            let at = (Kind::from_code(bulk.kind).unwrap(), Window(bulk.window));
            let rows = bulk.rows.into_iter().map(|(key, record)| ColdRow {
                key: key.into(),
                record: record.map(|(value, version, expires_at)| Record {
                    value: Bytes::from(value),
                    version: Version::from_bytes(version.try_into().unwrap()),
                    expires_at: Timestamp::from_stored(expires_at).unwrap(),
                }),
            });
            apply(state.tables.entry(at).or_default(), rows.collect());
            state.files.entry(at).or_default().push(name);
        }
        Ok(Self { disk, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, ColdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads of single records so far.
    pub(crate) fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Records and tombs in all windows.
    pub(crate) fn len(&self) -> usize {
        self.state().tables.values().map(BTreeMap::len).sum()
    }
}

fn apply(table: &mut Table, rows: Vec<ColdRow>) {
    for row in rows {
        match row.record {
            Some(record) => table.insert(row.key, record),
            None => table.remove(&row.key),
        };
    }
}

/// The test store has no old format.
pub(crate) struct NoOld;

impl OldStore for NoOld {
    fn clock_mark(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    fn each(&self, _: Kind, _: Visit<'_>) -> Result<()> {
        Ok(())
    }
}

impl ColdStore for TestStore {
    type Old = NoOld;

    const NAME: &'static str = "test";

    fn open(_: &Path, _: u64) -> Result<Self> {
        Err(Error::invalid("the test store is opened on a disk"))
    }

    fn is_table(_: &Path) -> bool {
        false
    }

    fn open_old(_: &Path) -> Result<NoOld> {
        Ok(NoOld)
    }

    fn each(&self, kind: Kind, window: Window, visit: Visit<'_>) -> Result<()> {
        let table = self.state().tables.get(&(kind, window)).cloned().unwrap_or_default();
        table.into_iter().try_for_each(|(key, record)| visit(&key, record))
    }

    fn generation(&self, kind: Kind, window: Window) -> Result<Option<u64>> {
        Ok(self.state().files.get(&(kind, window)).map(|files| files.len() as u64))
    }

    fn copy(&self, _: &Path) -> Result<()> {
        Err(Error::invalid("the test store is not copied"))
    }

    fn windows(&self, kind: Kind) -> Vec<Window> {
        self.state().tables.keys().filter(|(other, _)| *other == kind).map(|(_, window)| *window).collect()
    }

    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Record>> {
        let mut state = self.state();
        state.reads += 1;
        let mut found = state
            .tables
            .iter()
            .filter(|((other, _), _)| *other == kind)
            .filter_map(|(_, table)| table.get(key));
        Ok(found.next().cloned())
    }

    fn scan(&self, kind: Kind, start: Bound<&[u8]>, prefix: &[u8], limit: usize) -> Result<ColdPage> {
        let state = self.state();
        let mut all = BTreeMap::new();
        for (_, table) in state.tables.iter().filter(|((other, _), _)| *other == kind) {
            let range = table.range::<[u8], _>((start, Bound::Unbounded));
            all.extend(range.take_while(|(key, _)| key.starts_with(prefix)).take(limit + 1));
        }
        let rows: Vec<_> =
            all.iter().take(limit).map(|(key, record)| ((*key).clone(), (*record).clone())).collect();
        Ok(ColdPage { more: all.len() > rows.len(), rows })
    }

    fn ingest(&self, kind: Kind, window: Window, rows: Vec<ColdRow>) -> Result<()> {
        assert!(rows.is_sorted_by(|left, right| left.key < right.key), "a bulk is sorted");
        let mut state = self.state();
        let name = format!("{BEGINNING}{:08}", state.next);
        state.next += 1;
        let stored = |record: &Record| {
            (record.value.to_vec(), record.version.as_bytes().to_vec(), record.expires_at.as_millis())
        };
        let bulk = Bulk {
            kind: kind.code(),
            window: window.0,
            rows: rows.iter().map(|row| (row.key.to_vec(), row.record.as_ref().map(stored))).collect(),
        };
        let content = minicbor::to_vec(&bulk).unwrap();
        // Synced before it has its name: after a failed sync the bytes may be in the page cache and never on the disk.
        let file = self.disk.create(UNNAMED).map_err(failed)?;
        let bytes = [&crc32c::crc32c(&content).to_le_bytes()[..], &content].concat();
        file.write_at(&bytes, 0).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        self.disk.rename(UNNAMED, &name).map_err(failed)?;
        state.files.entry((kind, window)).or_default().push(name);
        apply(state.tables.entry((kind, window)).or_default(), rows);
        Ok(())
    }

    fn expired(&self, kind: Kind, window: Window, until: Timestamp, limit: usize) -> Result<Vec<Box<[u8]>>> {
        let state = self.state();
        let Some(table) = state.tables.get(&(kind, window)) else { return Ok(Vec::new()) };
        let rows = table.iter().filter(|(_, record)| record.is_swept(until)).take(limit);
        Ok(rows.map(|(key, _)| key.clone()).collect())
    }

    fn is_listed(&self, kind: Kind, window: Window, key: &[u8], _: Timestamp) -> Result<bool> {
        Ok(self.state().tables.get(&(kind, window)).is_some_and(|table| table.contains_key(key)))
    }

    fn drop_window(&self, kind: Kind, window: Window) -> Result<()> {
        let mut state = self.state();
        state.tables.remove(&(kind, window));
        for name in state.files.remove(&(kind, window)).unwrap_or_default() {
            self.disk.unlink(&name).map_err(failed)?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync_dir().map_err(failed)
    }
}
