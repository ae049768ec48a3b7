//! fjall as a cold store: a keyspace for each window of a kind, written in bulk, without its journal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};

use super::{Bound, ColdPage, ColdStore, Row, Window};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Bytes of a stored record before its value: version and expiry.
const HEAD: usize = 24;

/// Threads that compact.
const WORKERS: usize = 2;

type Spaces = BTreeMap<(Kind, Window), Keyspace>;

/// A fjall database behind the log.
pub struct FjallCold {
    root: PathBuf,
    database: Database,
    spaces: RwLock<Spaces>,
    /// Folders whose entries changed since the last sync: fjall does not sync the folder of its keyspaces.
    changed: Mutex<BTreeSet<PathBuf>>,
}

impl FjallCold {
    /// Opens or creates the database in `path`.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<Self> {
        let builder = Database::builder(path).cache_size(cache_bytes).worker_threads(WORKERS);
        let database = builder.manual_journal_persist(true).open().map_err(failed)?;
        let mut spaces = Spaces::new();
        for name in database.list_keyspace_names() {
            let space = database.keyspace(&name, KeyspaceCreateOptions::default).map_err(failed)?;
            let at = parse(&name).ok_or_else(|| {
                Error::corrupt(format!("the cold store has an unknown keyspace {}", &*name))
            })?;
            spaces.insert(at, space);
        }
        Ok(Self { root: path.to_owned(), database, spaces: RwLock::new(spaces), changed: Mutex::default() })
    }

    fn spaces(&self) -> RwLockReadGuard<'_, Spaces> {
        self.spaces.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keyspaces of a kind.
    fn of(&self, kind: Kind) -> Vec<Keyspace> {
        let spaces = self.spaces();
        spaces.range((kind, Window(0))..=(kind, Window(u64::MAX))).map(|(_, space)| space.clone()).collect()
    }

    fn space_or_new(&self, kind: Kind, window: Window) -> Result<Keyspace> {
        if let Some(space) = self.spaces().get(&(kind, window)) {
            return Ok(space.clone());
        }
        let space =
            self.database.keyspace(&name(kind, window), KeyspaceCreateOptions::default).map_err(failed)?;
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.insert(self.root.clone());
        changed.extend(space.path().parent().map(Path::to_owned));
        changed.insert(space.path().to_owned());
        drop(changed);
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        Ok(spaces.entry((kind, window)).or_insert(space).clone())
    }
}

/// Name of a keyspace.
fn name(kind: Kind, window: Window) -> String {
    format!("{}-{}", kind.name(), window.0)
}

fn parse(name: &str) -> Option<(Kind, Window)> {
    let (kind, end) = name.rsplit_once('-')?;
    Some((kind.parse().ok()?, Window(end.parse().ok()?)))
}

fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + record.value.len());
    bytes.extend_from_slice(record.version.as_bytes());
    bytes.extend_from_slice(&record.expires_at.as_millis().to_be_bytes());
    bytes.extend_from_slice(&record.value);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Record> {
    let short = || Error::corrupt("a record of the cold store is shorter than its head");
    let version = Version::from_bytes(*bytes.first_chunk().ok_or_else(short)?);
    let millis = u64::from_be_bytes(*bytes.get(16..).and_then(<[u8]>::first_chunk).ok_or_else(short)?);
    let expires_at = Timestamp::from_stored(millis).map_err(|error| short().caused_by(error))?;
    Ok(Record { value: Bytes::copy_from_slice(&bytes[HEAD..]), version, expires_at })
}

fn read(guard: Guard) -> Result<(Box<[u8]>, Record)> {
    let (key, value) = guard.into_inner().map_err(failed)?;
    Ok((Box::from(&*key), decode(&value)?))
}

fn failed(error: fjall::Error) -> Error {
    let kind = match &error {
        fjall::Error::Io(_)
        | fjall::Error::Storage(LsmError::Io(_))
        | fjall::Error::Locked
        | fjall::Error::Poisoned
        | fjall::Error::KeyspaceDeleted => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, "the cold store failed").caused_by(error)
}

fn not_synced(error: io::Error) -> Error {
    Error::unavailable("a folder of the cold store could not be synced").caused_by(error)
}

impl ColdStore for FjallCold {
    fn windows(&self, kind: Kind) -> Vec<Window> {
        let spaces = self.spaces();
        spaces.range((kind, Window(0))..=(kind, Window(u64::MAX))).map(|((_, window), _)| *window).collect()
    }

    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Record>> {
        for space in self.of(kind) {
            if let Some(value) = space.get(key).map_err(failed)? {
                return decode(&value).map(Some);
            }
        }
        Ok(None)
    }

    fn scan(&self, kind: Kind, start: Bound<&[u8]>, prefix: &[u8], limit: usize) -> Result<ColdPage> {
        let mut all = BTreeMap::new();
        for space in self.of(kind) {
            for guard in space.range::<&[u8], _>((start, Bound::Unbounded)).take(limit.saturating_add(1)) {
                let (key, record) = read(guard)?;
                if !key.starts_with(prefix) {
                    break;
                }
                all.insert(key, record);
            }
        }
        let more = all.len() > limit;
        Ok(ColdPage { rows: all.into_iter().take(limit).collect(), more })
    }

    fn ingest(&self, kind: Kind, window: Window, rows: Vec<Row>) -> Result<()> {
        let space = self.space_or_new(kind, window)?;
        let mut bulk = space.start_ingestion().map_err(failed)?;
        for row in rows {
            match row.record {
                Some(record) => bulk.write(&*row.key, encode(&record)),
                None => bulk.write_tombstone(&*row.key),
            }
            .map_err(failed)?;
        }
        // Syncs the table, the version that names it, and their folder.
        bulk.finish().map_err(failed)
    }

    fn expired(&self, kind: Kind, window: Window, until: Timestamp, limit: usize) -> Result<Vec<Box<[u8]>>> {
        let Some(space) = self.spaces().get(&(kind, window)).cloned() else { return Ok(Vec::new()) };
        let mut keys = Vec::new();
        for guard in space.iter() {
            let (key, record) = read(guard)?;
            if record.is_swept(until) {
                keys.push(key);
                if keys.len() >= limit {
                    break;
                }
            }
        }
        Ok(keys)
    }

    fn drop_window(&self, kind: Kind, window: Window) -> Result<()> {
        let dropped = self.spaces.write().unwrap_or_else(PoisonError::into_inner).remove(&(kind, window));
        match dropped {
            Some(space) => self.database.delete_keyspace(space).map_err(failed),
            None => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(failed)?;
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in &*changed {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(not_synced)?;
        }
        changed.clear();
        Ok(())
    }
}
