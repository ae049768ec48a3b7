//! fjall as a cold store: two keyspaces for each window of a kind, written in bulk, without its journal.
//!
//! One keyspace has the records, the other the expiry list of the window: the expiry and the key of each record, so that
//! a sweep finds what has expired without reading the rest. An entry of the list whose record has moved or gone is
//! harmless, and is removed when its time has come.
//!
//! One more keyspace guards the ids that fjall gives to keyspaces. Opening goes on behind the highest id that it finds, so
//! that the id of a dropped keyspace could be given again; the tombstones of the first would hide the second, and the
//! opening after that would remove it with its records. The guard has a higher id than every window that is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};

use super::stored::{GENERATION, behind_generation, decode, encode, end_key, generation};
use super::{Bound, ColdPage, ColdRow, ColdStore, OldStore, Visit, Window};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Threads that compact.
const WORKERS: usize = 2;

/// Memory for cached blocks of a copy or an old store.
const SMALL_CACHE: u64 = 16 << 20;

/// Ending of the names of expiry lists.
const ENDS: &str = "-ends";

/// Beginning of the names of guards.
const GUARD: &str = "guard-";

/// Keyspaces of one window.
#[derive(Clone)]
struct Space {
    rows: Keyspace,
    ends: Keyspace,
}

type Spaces = BTreeMap<(Kind, Window), Space>;

/// Keyspace whose id is higher than those of the windows that are dropped.
#[derive(Default)]
struct Keeper {
    /// Number in its name, and the keyspace.
    guard: Option<(u64, Keyspace)>,
    /// True if no keyspace was made since.
    is_newest: bool,
}

/// A fjall database behind the log.
pub struct FjallCold {
    root: PathBuf,
    database: Database,
    spaces: RwLock<Spaces>,
    keeper: Mutex<Keeper>,
    /// Folders whose entries changed since the last sync: fjall does not sync the folder of its keyspaces.
    changed: Mutex<BTreeSet<PathBuf>>,
    /// Ends up to which the list of a window was emptied, so that a sweep does not pass over its tombstones again.
    swept_to: Mutex<BTreeMap<(Kind, Window), Vec<u8>>>,
}

impl FjallCold {
    fn spaces(&self) -> RwLockReadGuard<'_, Spaces> {
        self.spaces.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keyspaces of the records of a kind.
    fn of(&self, kind: Kind) -> Vec<Keyspace> {
        let spaces = self.spaces();
        let range = spaces.range((kind, Window(0))..=(kind, Window(u64::MAX)));
        range.map(|(_, space)| space.rows.clone()).collect()
    }

    fn space_or_new(&self, kind: Kind, window: Window) -> Result<Space> {
        if let Some(space) = self.spaces().get(&(kind, window)) {
            return Ok(space.clone());
        }
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.is_newest = false;
        // The list first: records without one would stay until their window is dropped.
        let ends = self.keyspace(&format!("{}{ENDS}", name(kind, window)))?;
        let rows = self.keyspace(&name(kind, window))?;
        drop(keeper);
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        Ok(spaces.entry((kind, window)).or_insert(Space { rows, ends }).clone())
    }

    fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let space = self.database.keyspace(name, KeyspaceCreateOptions::default).map_err(failed)?;
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.insert(self.root.clone());
        changed.extend(space.path().parent().map(Path::to_owned));
        changed.insert(space.path().to_owned());
        Ok(space)
    }

    /// Makes sure that the guard is newer than every window, and durable.
    fn guard(&self) -> Result<()> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_newest {
            return Ok(());
        }
        let number = keeper.guard.as_ref().map_or(1, |(number, _)| number + 1);
        let guard = self.keyspace(&format!("{GUARD}{number}"))?;
        self.sync_folders()?;
        let old = keeper.guard.replace((number, guard));
        keeper.is_newest = true;
        old.map_or(Ok(()), |(_, old)| self.database.delete_keyspace(old).map_err(failed))
    }

    fn sync_folders(&self) -> Result<()> {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in &*changed {
            match File::open(folder).and_then(|folder| folder.sync_all()) {
                // A window that was dropped meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && *folder != self.root => {}
                synced => synced.map_err(not_synced)?,
            }
        }
        changed.clear();
        Ok(())
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
}

#[cfg(test)]
impl FjallCold {
    /// Removes a record from the expiry list of its window, and leaves it where it is.
    pub(crate) fn unlist(&self, kind: Kind, window: Window, key: &[u8]) {
        let space = self.spaces()[&(kind, window)].clone();
        let record = decode(&space.rows.get(key).unwrap().unwrap()).unwrap();
        bulk(&space.ends, std::iter::once((end_key(record.expires_at, key), None))).unwrap();
    }

    /// Leaves what a crash leaves which comes between the two keyspaces of a new window.
    pub(crate) fn begin_window(&self, kind: Kind, window: Window) {
        self.keyspace(&format!("{}{ENDS}", name(kind, window))).unwrap();
        self.sync().unwrap();
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

fn read(guard: Guard) -> Result<(Box<[u8]>, Record)> {
    let (key, value) = guard.into_inner().map_err(failed)?;
    Ok((Box::from(&*key), decode(&value)?))
}

fn failed(error: fjall::Error) -> Error {
    let kind = match &error {
        // A table that is cut short or gone is damage: nothing of it is being written.
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error))
            if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound) =>
        {
            ErrorKind::Corrupt
        }
        fjall::Error::Io(_)
        | fjall::Error::Storage(LsmError::Io(_))
        | fjall::Error::Locked
        | fjall::Error::Poisoned
        | fjall::Error::KeyspaceDeleted => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    };
    let message =
        if kind == ErrorKind::Corrupt { "the cold store is damaged" } else { "the cold store failed" };
    Error::new(kind, message).caused_by(error)
}

fn not_synced(error: io::Error) -> Error {
    Error::unavailable("a folder of the cold store could not be synced").caused_by(error)
}

/// Writes sorted rows into a keyspace, one table at a time, and syncs them.
fn bulk<K: AsRef<[u8]>>(space: &Keyspace, rows: impl Iterator<Item = (K, Option<Vec<u8>>)>) -> Result<()> {
    let mut bulk = space.start_ingestion().map_err(failed)?;
    for (key, value) in rows {
        match value {
            Some(value) => bulk.write(key.as_ref(), value),
            None => bulk.write_tombstone(key.as_ref()),
        }
        .map_err(failed)?;
    }
    // Syncs the tables, the version that names them, and their folder.
    bulk.finish().map_err(failed)
}

impl ColdStore for FjallCold {
    type Old = OldFjall;

    const NAME: &'static str = "fjall";

    fn open(path: &Path, cache_bytes: u64) -> Result<Self> {
        let builder = Database::builder(path).cache_size(cache_bytes).worker_threads(WORKERS);
        let database = builder.manual_journal_persist(true).open().map_err(failed)?;
        let (mut rows, mut ends, mut guards) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for name in database.list_keyspace_names() {
            let space = database.keyspace(&name, KeyspaceCreateOptions::default).map_err(failed)?;
            if let Some(number) = name.strip_prefix(GUARD).and_then(|number| number.parse::<u64>().ok()) {
                guards.insert(number, space);
                continue;
            }
            let (of, all) = name.strip_suffix(ENDS).map_or((&*name, &mut rows), |window| (window, &mut ends));
            let at = parse(of).ok_or_else(|| {
                Error::corrupt(format!("the cold store has an unknown keyspace {}", &*name))
            })?;
            all.insert(at, space);
        }
        let mut spaces = Spaces::new();
        for (at, rows) in rows {
            let ends = ends.remove(&at).ok_or_else(|| {
                Error::corrupt(format!("the expiry list of window {} is missing", name(at.0, at.1)))
            })?;
            spaces.insert(at, Space { rows, ends });
        }
        let keeper = Keeper { guard: guards.pop_last(), is_newest: false };
        let cold = Self {
            root: path.to_owned(),
            database,
            spaces: RwLock::new(spaces),
            keeper: Mutex::new(keeper),
            changed: Mutex::default(),
            swept_to: Mutex::default(),
        };
        // A crash may have come between the two keyspaces of a new window, or of one that was dropped; or between two
        // guards.
        for space in ends.into_values().chain(guards.into_values()) {
            cold.guard()?;
            cold.database.delete_keyspace(space).map_err(failed)?;
        }
        Ok(cold)
    }

    fn is_table(path: &Path) -> bool {
        path.parent().is_some_and(|folder| folder.ends_with("tables"))
    }

    fn open_old(path: &Path) -> Result<OldFjall> {
        OldFjall::open(path)
    }

    fn windows(&self, kind: Kind) -> Vec<Window> {
        let spaces = self.spaces();
        spaces.range((kind, Window(0))..=(kind, Window(u64::MAX))).map(|((_, window), _)| *window).collect()
    }

    fn generation(&self, kind: Kind, window: Window) -> Result<Option<u64>> {
        let Some(space) = self.spaces().get(&(kind, window)).cloned() else { return Ok(None) };
        space.rows.get(GENERATION).map_err(failed)?.map(|bytes| generation(&bytes)).transpose()
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
        let (mut all, start) = (BTreeMap::new(), behind_generation(start));
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

    fn ingest(&self, kind: Kind, window: Window, rows: Vec<ColdRow>) -> Result<()> {
        let space = self.space_or_new(kind, window)?;
        let ends = rows.iter().filter_map(|row| Some((row.record.as_ref()?.expires_at, &row.key)));
        let ends = ends.filter(|(expires_at, _)| !expires_at.is_never());
        let mut ends: Vec<Vec<u8>> = ends.map(|(expires_at, key)| end_key(expires_at, key)).collect();
        ends.sort_unstable();
        if let Some(first) = ends.first() {
            self.sweep_from(kind, window, first);
            bulk(&space.ends, ends.iter().map(|end| (end, Some(Vec::new()))))?;
        }
        let next = self.generation(kind, window)?.unwrap_or(0) + 1;
        let rows = rows.iter().map(|row| (&*row.key, row.record.as_ref().map(encode)));
        bulk(&space.rows, std::iter::once((GENERATION, Some(next.to_be_bytes().to_vec()))).chain(rows))
    }

    fn expired(&self, kind: Kind, window: Window, until: Timestamp, limit: usize) -> Result<Vec<Box<[u8]>>> {
        let Some(space) = self.spaces().get(&(kind, window)).cloned() else { return Ok(Vec::new()) };
        let until_end = until.as_millis().to_be_bytes().to_vec();
        let from = self.swept_to.lock().unwrap_or_else(PoisonError::into_inner).get(&(kind, window)).cloned();
        let range = from.unwrap_or_default().min(until_end.clone())..until_end.clone();
        let (mut keys, mut past) = (BTreeSet::new(), Vec::new());
        let mut first = None;
        for guard in space.ends.range(range) {
            let end = guard.key().map_err(failed)?;
            let Some((_, key)) = end.split_first_chunk::<8>() else {
                return Err(Error::corrupt("an entry of an expiry list is malformed"));
            };
            if keys.len() >= limit {
                break;
            }
            // The record decides: it may have moved, or end later.
            let record = space.rows.get(key).map_err(failed)?.map(|value| decode(&value)).transpose()?;
            if record.is_some_and(|record| record.is_swept(until)) {
                keys.insert(Box::from(key));
                first.get_or_insert_with(|| end.to_vec());
            } else {
                past.push(end.to_vec());
            }
        }
        if !past.is_empty() {
            bulk(&space.ends, past.into_iter().map(|end| (end, None)))?;
        }
        // The entries of what is removed now go with the next call.
        let mut swept_to = self.swept_to.lock().unwrap_or_else(PoisonError::into_inner);
        swept_to.insert((kind, window), first.unwrap_or(until_end));
        drop(swept_to);
        Ok(keys.into_iter().collect())
    }

    fn is_listed(&self, kind: Kind, window: Window, key: &[u8], expires_at: Timestamp) -> Result<bool> {
        let Some(space) = self.spaces().get(&(kind, window)).cloned() else { return Ok(false) };
        space.ends.contains_key(end_key(expires_at, key)).map_err(failed)
    }

    fn drop_window(&self, kind: Kind, window: Window) -> Result<()> {
        self.swept_to.lock().unwrap_or_else(PoisonError::into_inner).remove(&(kind, window));
        let dropped = self.spaces.write().unwrap_or_else(PoisonError::into_inner).remove(&(kind, window));
        let Some(space) = dropped else { return Ok(()) };
        self.guard()?;
        // The records first: opening removes a list without records, and refuses records without a list.
        self.database.delete_keyspace(space.rows).map_err(failed)?;
        self.database.delete_keyspace(space.ends).map_err(failed)
    }

    fn sync(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(failed)?;
        self.sync_folders()
    }

    fn each(&self, kind: Kind, window: Window, visit: Visit<'_>) -> Result<()> {
        let Some(space) = self.spaces().get(&(kind, window)).cloned() else { return Ok(()) };
        let all = (Bound::Excluded(GENERATION), Bound::Unbounded);
        for guard in space.rows.range::<&[u8], _>(all) {
            let (key, record) = read(guard)?;
            visit(&key, record)?;
        }
        Ok(())
    }

    fn copy(&self, path: &Path) -> Result<()> {
        let copy = Self::open(path, SMALL_CACHE)?;
        let spaces = self.spaces().clone();
        for ((kind, window), space) in spaces {
            let target = copy.space_or_new(kind, window)?;
            for (from, to) in [(&space.ends, &target.ends), (&space.rows, &target.rows)] {
                let mut bulk = to.start_ingestion().map_err(failed)?;
                for guard in from.iter() {
                    let (key, value) = guard.into_inner().map_err(failed)?;
                    bulk.write(key, value).map_err(failed)?;
                }
                bulk.finish().map_err(failed)?;
            }
        }
        copy.sync()
    }
}

/// A store that fjall wrote before there was a log: a keyspace for each kind, and one for the store's own rows.
pub struct OldFjall(Database);

impl OldFjall {
    const META: &str = "meta";

    fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Err(Error::corrupt("the directory `data` of the store is missing"));
        }
        let database = Database::builder(path).cache_size(SMALL_CACHE).open().map_err(failed)?;
        for name in database.list_keyspace_names() {
            if &*name != Self::META && name.parse::<Kind>().is_err() {
                return Err(Error::corrupt(format!("the store has an unknown keyspace {}", &*name)));
            }
        }
        Ok(Self(database))
    }

    fn space(&self, name: &str) -> Result<Option<Keyspace>> {
        if !self.0.keyspace_exists(name) {
            return Ok(None);
        }
        self.0.keyspace(name, KeyspaceCreateOptions::default).map(Some).map_err(failed)
    }
}

impl OldStore for OldFjall {
    fn clock_mark(&self) -> Result<Option<Timestamp>> {
        let Some(meta) = self.space(Self::META)? else { return Ok(None) };
        let Some(bytes) = meta.get(b"mark").map_err(failed)? else { return Ok(None) };
        let millis = (*bytes).try_into().map_err(|_| Error::corrupt("the clock mark is malformed"))?;
        Timestamp::from_stored(u64::from_be_bytes(millis)).map(Some)
    }

    fn each(&self, kind: Kind, visit: Visit<'_>) -> Result<()> {
        let Some(space) = self.space(kind.name())? else { return Ok(()) };
        for guard in space.iter() {
            let (key, record) = read(guard)?;
            visit(&key, record)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    fn rows(count: u8) -> Vec<ColdRow> {
        let rng = SeededRng::new(1);
        let row = |number| ColdRow {
            key: Box::from([1, number].as_slice()),
            record: Some(Record::new(vec![number], Timestamp::NEVER, &rng)),
        };
        (0..count).map(row).collect()
    }

    fn count(cold: &FjallCold, kind: Kind) -> usize {
        cold.scan(kind, Bound::Unbounded, &[], 100).unwrap().rows.len()
    }

    #[test]
    fn windows_that_are_made_after_others_were_dropped_are_there_at_the_next_opening() {
        for dropped in 1..=6 {
            let dir = tempfile::tempdir().unwrap();
            let open = || FjallCold::open(dir.path(), 1 << 20).unwrap();
            let cold = open();
            cold.ingest(Kind::Code, Window(1), rows(3)).unwrap();
            for window in 1..=dropped {
                cold.ingest(Kind::Nonce, Window(window), rows(5)).unwrap();
            }
            for window in 1..=dropped {
                cold.drop_window(Kind::Nonce, Window(window)).unwrap();
            }
            drop(cold);
            for round in 0..3 {
                let cold = open();
                cold.ingest(Kind::Session, Window(1), rows(5)).unwrap();
                cold.sync().unwrap();
                drop(cold);
                let cold = open();
                let counts = [Kind::Code, Kind::Nonce, Kind::Session].map(|kind| count(&cold, kind));
                assert_eq!(counts, [3, 0, 5], "{dropped} windows dropped, round {round}");
                cold.drop_window(Kind::Session, Window(1)).unwrap();
            }
        }
    }
}
