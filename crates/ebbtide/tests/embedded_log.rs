//! The log of the embedded engine on real folders, with threads: the conformance kit while segments retire all the time, with
//! each cold store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::engines::log::cold::ColdStore;
use ebbtide::engines::log::cold::fjall::FjallCold;
#[cfg(feature = "rocksdb")]
use ebbtide::engines::log::cold::rocksdb::RocksCold;
use ebbtide::engines::log::disk::Disk;
use ebbtide::engines::log::disk::real::RealDisk;
use ebbtide::engines::log::embedded::{Embedded, Options};
use ebbtide::engines::log::faults::Faults;
use ebbtide::engines::log::recovery::Settings;
use ebbtide::{
    Admin, Backend as _, BackendExt as _, ErrorKind, Key, Kind, Prefix, Record, Result, Rng as _, Scope,
    SeededRng, Timestamp,
};
use ebbtide_conformance::stores::{self, STORE_CASES};
use ebbtide_conformance::{self as conformance, CASES};

const DAY: u64 = 24 * 3_600_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
}

fn key(number: u64) -> Key {
    Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[number.into()]).unwrap()
}

fn cold<C: ColdStore>(folder: &Path) -> Result<C> {
    C::open(&folder.join("cold"), 16 << 20)
}

fn options() -> Options {
    let settings = Settings {
        segment_len: 8 << 20,
        first_len: 1 << 20,
        keyrings: Vec::new(),
        rng: Arc::new(SeededRng::new(1)),
        faults: Faults::default(),
    };
    Options { read_threads: 2, walk_threads: 2, keep_bytes: 1 << 20, ..Options::new(settings) }
}

fn try_open<C: ColdStore>(folder: &Path) -> Result<Embedded<C>> {
    open_with(folder, &options())
}

fn open_with<C: ColdStore>(folder: &Path, options: &Options) -> Result<Embedded<C>> {
    let disk = Arc::new(RealDisk::open(&folder.join("log")).unwrap());
    Embedded::open(disk as Arc<dyn Disk>, options, || cold(folder))
}

/// Segments that are quick to copy.
fn small() -> Options {
    let mut options = options();
    (options.settings.segment_len, options.settings.first_len) = (256 << 10, 64 << 10);
    options
}

fn open<C: ColdStore>(folder: &Path) -> Embedded<C> {
    try_open(folder).unwrap()
}

/// Runs a case on the store while segments retire, at the time at which the case begins, and returns how many did. Nothing
/// has expired then, so that all records move, and a sweep counts them.
fn run<C, F>(store: Embedded<C>, begin: u64, case: impl FnOnce(Arc<dyn Admin>) -> F) -> u32
where
    C: ColdStore,
    F: Future<Output = std::result::Result<(), String>>,
{
    let store = Arc::new(store);
    let (retired, counted) = (Arc::clone(&store), Arc::clone(&store));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let outcome = runtime.block_on(async move {
        let begin = Timestamp::from_millis(begin).unwrap();
        let retiring = tokio::spawn(async move {
            loop {
                let _ = retired.roll();
                let _ = retired.retire_oldest(begin).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let outcome = case(store).await;
        retiring.abort();
        outcome
    });
    drop(runtime);
    outcome.unwrap_or_else(|error| panic!("{error}"));
    counted.checkpoint()
}

fn the_kit_passes_while_segments_retire<C: ColdStore>() {
    let mut retired = 0;
    for case in CASES {
        let folder = tempfile::tempdir().unwrap();
        let named = |error: String| format!("{}::{}: {error}", case.group, case.name);
        retired += run(open::<C>(folder.path()), 4_102_444_800_000, |store| async move {
            conformance::run(case, store, 1).await.map_err(named)
        });
    }
    assert!(retired > 100, "{retired} segments were retired");
}

/// One of `every` cases: opening a store takes longer with RocksDB.
fn the_stores_pass_while_segments_retire<C: ColdStore>(every: usize) {
    for case in STORE_CASES.iter().step_by(every) {
        let folder = tempfile::tempdir().unwrap();
        let named = |error: String| format!("{}::{}: {error}", case.group, case.name);
        run(open::<C>(folder.path()), 1_800_000_000_000, |store| async move {
            stores::run(case, store, 1).await.map_err(named)
        });
    }
}

/// Removes a part of the cold store that holds records: fjall's folder of a keyspace, or a table of RocksDB.
fn lose_a_part(cold: &Path) {
    let keyspaces = cold.join("keyspaces");
    if keyspaces.is_dir() {
        let parts = keyspaces.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let part = parts.filter(|path| !path.ends_with("0")).max().unwrap();
        return std::fs::remove_dir_all(part).unwrap();
    }
    let tables =
        files(cold).into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "sst"));
    std::fs::remove_file(tables.max().unwrap()).unwrap();
}

fn records_come_back_and_a_lost_folder_is_corrupt<C: ColdStore>() {
    let folder = tempfile::tempdir().unwrap();
    let store = open::<C>(folder.path());
    let rng = SeededRng::new(1);
    pollster::block_on(async {
        for number in 0..50 {
            let record = Record::new("v", at(DAY), &rng);
            assert!(store.put(key(number), record, at(0)).await.unwrap().is_applied());
        }
        while !store.roll() {
            store.room().await.unwrap();
        }
        store.set_clock_mark(at(1)).await.unwrap();
        assert!(store.retire_oldest(at(1)).await.unwrap());
    });
    drop(store);
    let store = open::<C>(folder.path());
    let found = pollster::block_on(store.scan_all(&Prefix::kind_wide(Kind::Probe), at(2))).unwrap();
    assert_eq!(found.len(), 50);
    drop(store);
    // Without the log, newer versions and deletes are lost: the store does not begin anew.
    let kept = folder.path().join("kept");
    std::fs::rename(folder.path().join("log"), &kept).unwrap();
    for _ in 0..2 {
        assert_eq!(try_open::<C>(folder.path()).err().unwrap().kind(), ErrorKind::Corrupt);
    }
    std::fs::remove_dir_all(folder.path().join("log")).unwrap();
    std::fs::rename(&kept, folder.path().join("log")).unwrap();
    lose_a_part(&folder.path().join("cold"));
    let error = try_open::<C>(folder.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

const KEPT: u64 = 400;
const DELETED: u64 = 100;

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; 40 + usize::try_from(number % 60).unwrap()];
    SeededRng::new(number).fill(&mut value);
    value
}

/// A folder with records and deletes in the cold store, in closed segments and in the last one.
fn filled<C: ColdStore>(folder: &Path) {
    let store = open_with::<C>(folder, &small()).unwrap();
    let rng = SeededRng::new(1);
    pollster::block_on(async {
        for part in 0..3 {
            for number in (0..KEPT + DELETED).filter(|number| number % 3 == part) {
                let record = Record::new(value(number), at(DAY), &rng);
                assert!(store.insert(key(number), record, at(0)).await.unwrap().is_applied());
            }
            if part < 2 {
                while !store.roll() {
                    store.room().await.unwrap();
                }
                store.set_clock_mark(at(1)).await.unwrap();
            }
            if part == 0 {
                assert!(store.retire_oldest(at(1)).await.unwrap());
            }
        }
        for number in KEPT..KEPT + DELETED {
            assert!(store.take(&key(number), at(1)).await.unwrap().is_some());
        }
    });
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort_unstable();
    files
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Damages a random place of a random file, and says what it did.
fn damage(folder: &Path, rng: &SeededRng) -> String {
    let files = files(folder);
    let path = &files[usize::try_from(rng.below(files.len() as u64)).unwrap()];
    let mut bytes = std::fs::read(path).unwrap();
    let at = |rng: &SeededRng| usize::try_from(rng.below(bytes.len().max(1) as u64)).unwrap();
    // Most of a segment is zeros that were never written.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let within = |rng: &SeededRng| usize::try_from(rng.below(used.max(1) as u64)).unwrap();
    let done = match rng.below(5) {
        0 | 1 if used > 0 => {
            let at = within(rng);
            bytes[at] ^= 1 << rng.below(8);
            format!("flipped a bit of byte {at}")
        }
        2 if used > 0 => {
            let sector = within(rng) / 512 * 512;
            let end = (sector + 512).min(bytes.len());
            bytes[sector..end].fill(0);
            format!("zeroed the sector at {sector}")
        }
        3 if !bytes.is_empty() => {
            let len = at(rng);
            bytes.truncate(len);
            format!("cut at {len}")
        }
        _ => {
            std::fs::remove_file(path).unwrap();
            return format!("removed {}", path.strip_prefix(folder).unwrap().display());
        }
    };
    std::fs::write(path, bytes).unwrap();
    format!("{done} of {}", path.strip_prefix(folder).unwrap().display())
}

/// Damages copies of a folder. At least this share of them, in percent, is found on opening.
fn no_random_damage_of_a_folder_loses_anything_in_silence<C: ColdStore>(least: u64) {
    let damages =
        std::env::var("EBBTIDE_TEST_DAMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(500_u64);
    let dir = tempfile::tempdir().unwrap();
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    filled::<C>(&whole);
    let (mut refused, mut answered) = (0_u64, 0_u64);
    for seed in 0..damages {
        let rng = SeededRng::new(seed);
        let _ = std::fs::remove_dir_all(&broken);
        copy(&whole, &broken);
        let done = damage(&broken, &rng);
        let store = match open_with::<C>(&broken, &small()) {
            Ok(store) => store,
            Err(error) => {
                assert!(!error.message().is_empty());
                refused += 1;
                continue;
            }
        };
        answered += 1;
        pollster::block_on(async {
            for number in 0..KEPT + DELETED {
                match store.get(&key(number), at(2)).await {
                    Ok(Some(record)) => {
                        assert!(number < KEPT, "seed {seed}, {done}: {number} is back");
                        assert_eq!(record.value, value(number), "seed {seed}, {done}: {number} is another");
                    }
                    Ok(None) => assert!(number >= KEPT, "seed {seed}, {done}: {number} is lost in silence"),
                    Err(_) => {}
                }
            }
        });
    }
    println!(
        "{damages} damages: {refused} stores did not open, {answered} opened and lost nothing in silence"
    );
    assert!(refused * 100 > damages * least, "{refused} of {damages} damages were found on opening");
}

macro_rules! with_each_cold_store {
    ($($name:ident: $cold:ty, $least:literal, $every:literal;)+) => {$(
        mod $name {
            use super::*;

            #[test]
            fn the_kit_passes_while_segments_retire() {
                super::the_kit_passes_while_segments_retire::<$cold>();
            }

            #[test]
            fn the_stores_pass_while_segments_retire() {
                super::the_stores_pass_while_segments_retire::<$cold>($every);
            }

            #[test]
            fn records_come_back_and_a_lost_folder_is_corrupt() {
                super::records_come_back_and_a_lost_folder_is_corrupt::<$cold>();
            }

            #[test]
            fn no_random_damage_of_a_folder_loses_anything_in_silence() {
                super::no_random_damage_of_a_folder_loses_anything_in_silence::<$cold>($least);
            }
        }
    )+};
}

with_each_cold_store! {
    fjall: FjallCold, 25, 1;
}

// Its notes and options are files as well, which nobody needs.
#[cfg(feature = "rocksdb")]
with_each_cold_store! {
    rocksdb: RocksCold, 15, 6;
}
