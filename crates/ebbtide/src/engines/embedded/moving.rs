//! Moving a store of the old format over: one engine without a log of its own, in `PATH/data`.
//!
//! Its records go into the windows of the cold store in sorted bulk, one kind after the other. The file `MOVING` names
//! the kinds that are done, so that a move that was broken off goes on with the kind that it was at. Windows are chosen
//! by the clock mark of the old store, which does not change meanwhile. The new format is written when log and cold store
//! are durable; until then the old files are the store, and afterwards they stay in `PATH/old`.
//!
//! Every step is logged. The test `moved` ends the process at each of these lines.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::folder::{self, Folder, STEPS, step};
use super::{Options, RealDisk};
use crate::engines::log::cold::{ColdRow, ColdStore, OldStore, Window, window_for};
use crate::engines::log::disk::Disk;
use crate::engines::log::embedded::retire::named_windows;
use crate::engines::log::faults::Faults;
use crate::engines::log::manifest::{self, Manifest, ManifestFile};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::{Rng, SystemRng};
use crate::model::time::Timestamp;

const MOVING: &str = "MOVING";
/// Ending of the progress before it has its name.
const NEW: &str = "new";

/// Bytes of records that are moved by one bulk.
const BULK_BYTES: usize = 32 << 20;

/// Moves the store in `folder` over. The caller calls [`end`] when the new store is open.
pub(super) fn move_over<C: ColdStore>(folder: &Folder, options: &Options) -> Result<()> {
    let old = C::open_old(&folder.old_data())?;
    let mark = old.clock_mark()?;
    let progress = folder.path().join(MOVING);
    // Progress counts only with the cold store that it speaks of: without one, it is from before a way back.
    let mut moved = if folder.cold().exists() { read_progress(&progress)? } else { None };
    if moved.is_none() {
        remove_progress(folder)?;
        folder.remove_new()?;
        step("removed an attempt before");
    }
    let cannot = |error| folder::unusable("cannot create the directory of the cold store", error);
    folder::create_dir(&folder.cold()).map_err(cannot)?;
    step("created the directory of the cold store");
    let cold = C::open(&folder.cold(), options.cache_bytes)?;
    tracing::warn!("the store has the format of an earlier version; moving its records over");
    let moved = moved.get_or_insert_default();
    for &kind in Kind::ALL {
        if moved.iter().any(|name| name == kind.name()) {
            continue;
        }
        for window in cold.windows(kind) {
            // Left by an attempt that ended within this kind.
            cold.drop_window(kind, window)?;
            tracing::debug!(target: STEPS, kind = kind.name(), "dropped a window");
        }
        let count = move_kind(&old, &cold, kind, mark.unwrap_or(Timestamp::ZERO))?;
        if count == 0 {
            continue;
        }
        cold.sync()?;
        tracing::debug!(target: STEPS, kind = kind.name(), "synced the cold store");
        moved.push(kind.name().to_owned());
        write_progress(&progress, moved)?;
        tracing::info!(target: STEPS, kind = kind.name(), records = count, "moved the records of a kind");
    }
    write_manifest(folder, &cold, mark)?;
    step("wrote the manifest");
    drop((old, cold));
    step("closed the cold store");
    folder.finish()
}

/// Puts the files of the old format aside, and forgets the progress of the move. Every opening calls it: a crash may
/// have come between the new format and this.
pub(super) fn end(folder: &Folder) -> Result<()> {
    if folder.put_old_aside()? {
        tracing::warn!(
            "the store has been moved over; its old files are in the directory `old` until `ebbtide doctor --forget-old`"
        );
    }
    remove_progress(folder)
}

/// Fills a new folder with all records of `source`, and returns their numbers by kind. The caller finishes the folder.
pub(super) fn write_new<C: ColdStore>(
    folder: &Folder,
    options: &Options,
    source: &impl OldStore,
) -> Result<BTreeMap<String, u64>> {
    let cannot = |error| folder::unusable("cannot create the directory of the cold store", error);
    folder::create_dir(&folder.cold()).map_err(cannot)?;
    let cold = C::open(&folder.cold(), options.cache_bytes)?;
    let mark = source.clock_mark()?;
    let mut counts = BTreeMap::new();
    for &kind in Kind::ALL {
        let count = move_kind(source, &cold, kind, mark.unwrap_or(Timestamp::ZERO))?;
        if count > 0 {
            counts.insert(kind.name().to_owned(), count);
        }
    }
    cold.sync()?;
    write_manifest(folder, &cold, mark)?;
    Ok(counts)
}

/// Moves the records of one kind, and returns their number.
fn move_kind<C: ColdStore>(old: &impl OldStore, cold: &C, kind: Kind, now: Timestamp) -> Result<u64> {
    let mut bulks: BTreeMap<Window, Vec<ColdRow>> = BTreeMap::new();
    let mut windows = cold.windows(kind);
    let (mut bytes, mut count) = (0, 0);
    old.each(kind, &mut |key: &[u8], record: Record| {
        let window = window_for(record.expires_at, now, &windows);
        if !windows.contains(&window) {
            windows.push(window);
        }
        bytes += key.len() + record.value.len() + 64;
        count += 1;
        bulks.entry(window).or_default().push(ColdRow { key: key.into(), record: Some(record) });
        if bytes >= BULK_BYTES {
            bytes = 0;
            tracing::info!(target: STEPS, kind = kind.name(), records = count, "moving");
            return ingest(cold, kind, std::mem::take(&mut bulks));
        }
        Ok(())
    })?;
    ingest(cold, kind, bulks)?;
    Ok(count)
}

fn ingest<C: ColdStore>(cold: &C, kind: Kind, bulks: BTreeMap<Window, Vec<ColdRow>>) -> Result<()> {
    bulks.into_iter().try_for_each(|(window, rows)| {
        cold.ingest(kind, window, rows)?;
        tracing::debug!(target: STEPS, kind = kind.name(), window = window.0, "moved the records of a window");
        Ok(())
    })
}

/// Writes a manifest that names the windows, and no segment yet.
fn write_manifest<C: ColdStore>(folder: &Folder, cold: &C, mark: Option<Timestamp>) -> Result<()> {
    let disk = RealDisk::open(&folder.log())
        .map_err(|error| folder::unusable("cannot create the directory of the log", error))?;
    let rng: &dyn Rng = &SystemRng;
    let mut manifest = Manifest::new(rng.bytes(), Vec::new());
    manifest.clock_mark = mark.map(Timestamp::as_millis);
    manifest.windows = named_windows(cold)?;
    let mut file = ManifestFile::new(Arc::new(disk) as Arc<dyn Disk>, manifest, Faults::default());
    file.change(|_| {}).map_err(manifest::Failure::into_error)?;
    folder::sync_dir(folder.path())
        .map_err(|error| folder::unusable("cannot sync the directory of the store", error))
}

/// Kinds that have been moved; none if no move has begun.
fn read_progress(path: &Path) -> Result<Option<Vec<String>>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.lines().map(str::to_owned).collect())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(folder::unusable("cannot read the progress of the move", error)),
    }
}

/// Removes the progress of a move that has ended, or that counts no more.
fn remove_progress(folder: &Folder) -> Result<()> {
    let path = folder.path().join(MOVING);
    for path in [path.with_extension(NEW), path] {
        match fs::remove_file(path) {
            Ok(()) => step("removed the progress"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(folder::unusable("cannot remove the progress of the move", error)),
        }
    }
    Ok(())
}

/// Replaces the progress atomically: a kind that it names is durable in the cold store.
fn write_progress(path: &Path, done: &[String]) -> Result<()> {
    let write = || {
        let temporary = path.with_extension(NEW);
        let mut file = fs::File::create(&temporary)?;
        file.write_all(done.join("\n").as_bytes())?;
        file.sync_all()?;
        step("wrote the progress");
        fs::rename(&temporary, path)?;
        step("renamed the progress");
        path.parent().map_or(Ok(()), folder::sync_dir)
    };
    write().map_err(|error| folder::unusable("cannot write the progress of the move", error))
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::Admin;
    use crate::backend::BackendExt as _;
    use crate::engines::log::cold::stored::encode;
    use crate::model::key::{Key, Prefix};
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;

    const MARK: u64 = 1_800_000_000_000;
    const HOUR: u64 = 3_600_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(MARK + millis).unwrap()
    }

    fn key(kind: Kind, number: u64) -> Key {
        Key::new(kind, &Scope::Global, &["p".into()], &[number.into()]).unwrap()
    }

    /// Ends from an hour to years away, and never.
    fn record(kind: Kind, number: u64) -> Record {
        let ends = [at(HOUR), at(48 * HOUR), at(400 * HOUR), at(40_000 * HOUR), Timestamp::NEVER];
        let value = format!("{kind}-{number}");
        Record::new(value, ends[usize::try_from(number % 5).unwrap()], &SeededRng::new(number))
    }

    /// Rows of a kind, as the version before wrote them. Half of them are flushed into a table by `rotate`.
    fn rows(kind: Kind, mut put: impl FnMut(&[u8], Vec<u8>), mut rotate: impl FnMut()) {
        for number in 0..20 {
            put(key(kind, number).as_bytes(), encode(&record(kind, number)));
            if number == 9 {
                rotate();
            }
        }
    }

    /// Writes a store as the version before wrote it: records of every kind, in the journal and in tables.
    #[cfg(feature = "fjall")]
    fn old_fjall(path: &Path) {
        use fjall::{Database, KeyspaceCreateOptions, PersistMode};

        let database = Database::builder(path).open().unwrap();
        for &kind in Kind::ALL {
            let space = database.keyspace(kind.name(), KeyspaceCreateOptions::default).unwrap();
            let rotate = || space.rotate_memtable_and_wait().unwrap();
            rows(kind, |key, row| space.insert(key, row).unwrap(), rotate);
        }
        let meta = database.keyspace("meta", KeyspaceCreateOptions::default).unwrap();
        meta.insert("mark", MARK.to_be_bytes()).unwrap();
        database.persist(PersistMode::SyncAll).unwrap();
    }

    /// The same of RocksDB: a column family for each kind.
    #[cfg(feature = "rocksdb")]
    fn old_rocksdb(path: &Path) {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let names = Kind::ALL.iter().map(|kind| kind.name()).chain(["meta"]);
        let database = rocksdb::DB::open_cf(&options, path, names).unwrap();
        for &kind in Kind::ALL {
            let column = database.cf_handle(kind.name()).unwrap();
            let rotate = || database.flush_cf(&column).unwrap();
            rows(kind, |key, row| database.put_cf(&column, key, row).unwrap(), rotate);
        }
        let meta = database.cf_handle("meta").unwrap();
        database.put_cf(&meta, "mark", MARK.to_be_bytes()).unwrap();
    }

    fn check(path: &Path, store: &dyn Admin) {
        pollster::block_on(async {
            for &kind in Kind::ALL {
                let found = store.scan_all(&Prefix::kind_wide(kind), at(0)).await.unwrap();
                let expected: Vec<_> =
                    (0..20).map(|number| (key(kind, number), record(kind, number))).collect();
                assert_eq!(found, expected);
                let again = store.insert(key(kind, 1), record(kind, 1), at(0)).await.unwrap();
                assert!(!again.is_applied(), "a record of {kind} is free again");
            }
            assert!(store.get(&key(Kind::Code, 0), at(HOUR)).await.unwrap().is_none());
            assert!(store.clock_mark().await.unwrap().is_some());
        });
        assert!(path.join("old/data").is_dir() && path.join("old/FORMAT").is_file());
        assert!(!path.join("data").exists() && path.join("keyring.json").is_file());
    }

    fn is_moved_over<C: ColdStore>(write_old: fn(&Path)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        write_old(&path.join("data"));
        fs::write(path.join("FORMAT"), format!("ebbtide {} 1\n", C::NAME)).unwrap();
        fs::write(path.join("keyring.json"), "{}").unwrap();
        for _ in 0..2 {
            check(path, &crate::engines::embedded::open::<C>(path.to_str().unwrap()).unwrap());
        }
        let url = format!("{}:{}", C::NAME, path.display()).parse().unwrap();
        assert!(crate::engines::embedded::doctor::forget_old(&url).unwrap());
        assert!(!path.join("old").exists());
        let report = crate::engines::embedded::doctor::examine(&url, None).unwrap();
        assert_eq!((report.damage.len(), report.cold_records), (0, 20 * Kind::ALL.len() as u64));
    }

    #[cfg(feature = "fjall")]
    #[test]
    fn a_fjall_store_of_the_old_format_is_moved_over_and_its_files_are_kept() {
        is_moved_over::<crate::engines::log::cold::fjall::FjallCold>(old_fjall);
    }

    #[cfg(feature = "rocksdb")]
    #[test]
    fn a_rocksdb_store_of_the_old_format_is_moved_over_and_its_files_are_kept() {
        is_moved_over::<crate::engines::log::cold::rocksdb::RocksCold>(old_rocksdb);
    }
}
