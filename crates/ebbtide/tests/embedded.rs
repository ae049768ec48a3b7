//! Promises of the embedded engines alone: the folder, backups, the clock mark, calls from synchronous code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::engines::blocking::Blocking;
use ebbtide::stores::audit::AuditContext;
use ebbtide::timekeeping::{ClockState, ManualClocks, Timed};
use ebbtide::{
    Admin, BackendExt, Batch, Budget, Ebbtide, Error, ErrorKind, Key, Kind, Prefix, Record, Scope, SystemRng,
    Timestamp, Ttl, Write, open_engine as open,
};

const ENGINES: &[&str] = if cfg!(feature = "rocksdb") { &["fjall", "rocksdb"] } else { &["fjall"] };

const BEGIN: u64 = 1_800_000_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(BEGIN + seconds * 1_000).unwrap()
}

fn key(name: &str) -> Key {
    Key::new(Kind::Code, &Scope::Global, &["p".into()], &[name.into()]).unwrap()
}

fn record(seconds: u64) -> Record {
    Record::new("value", at(seconds), &SystemRng)
}

async fn store(engine: &str, path: &Path) -> Arc<dyn Admin> {
    try_store(engine, path).await.unwrap()
}

async fn try_store(engine: &str, path: &Path) -> Result<Arc<dyn Admin>, Error> {
    open(&format!("{engine}:{}", path.display())).await
}

async fn live_names(store: &dyn Admin, now: Timestamp) -> Vec<Key> {
    let all = store.scan_all(&Prefix::kind_wide(Kind::Code), now).await.unwrap();
    all.into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let first = store(engine, dir.path()).await;
        assert!(first.insert(key("kept"), record(100), at(0)).await.unwrap().is_applied());
        assert!(first.insert(key("taken"), record(100), at(0)).await.unwrap().is_applied());
        assert!(first.take(&key("taken"), at(0)).await.unwrap().is_some());
        let stats = first.stats(at(0)).await.unwrap();
        drop(first);
        let second = store(engine, dir.path()).await;
        assert_eq!(live_names(second.as_ref(), at(0)).await, [key("kept")]);
        assert!(!second.insert(key("kept"), record(100), at(0)).await.unwrap().is_applied());
        assert_eq!(second.stats(at(0)).await.unwrap(), stats);
        assert_eq!(stats[&Kind::Code].live, 1);
    }
}

/// The file `FORMAT` is a pipe, from which the opening reads until somebody writes to it. Here that is a task of the same thread.
#[tokio::test]
async fn an_opening_does_not_block_the_runtime() {
    use std::sync::atomic::{AtomicBool, Ordering};

    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("FORMAT");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let write = |pipe: &Path| std::fs::write(pipe, "ebbtide another 2\n").unwrap();
        let (is_over, has_blocked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (ended, blocked, path) = (Arc::clone(&is_over), Arc::clone(&has_blocked), pipe.clone());
        let watchdog = std::thread::spawn(move || {
            let waiting = ebbtide::Stopwatch::start();
            while waiting.elapsed() < Duration::from_secs(30) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            // Ends an opening that blocks this test, so that it fails instead of hanging.
            blocked.store(true, Ordering::SeqCst);
            write(&path);
        });
        let writing = async {
            if !has_blocked.load(Ordering::SeqCst) {
                write(&pipe);
            }
            is_over.store(true, Ordering::SeqCst);
        };
        let (opened, ()) = tokio::join!(try_store(engine, dir.path()), writing);
        watchdog.join().unwrap();
        assert!(!has_blocked.load(Ordering::SeqCst), "{engine}: the opening has blocked the runtime");
        assert_eq!(opened.err().unwrap().kind(), ErrorKind::Corrupt, "{engine}: the format is malformed");
    }
}

#[tokio::test]
async fn a_second_opening_is_refused_and_says_why() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let _first = store(engine, dir.path()).await;
        let second = try_store(engine, dir.path()).await.err().unwrap();
        assert_eq!(second.kind(), ErrorKind::Unavailable);
        assert!(second.message().contains("another process"), "{second}");
    }
}

#[tokio::test]
async fn a_newer_format_and_a_bad_option_are_refused() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        drop(store(engine, dir.path()).await);
        std::fs::write(dir.path().join("FORMAT"), format!("ebbtide {engine} 9\n")).unwrap();
        let newer = try_store(engine, dir.path()).await.err().unwrap();
        assert!(newer.message().contains("format 9"), "{newer}");
        for query in ["cache_mib=0", "cache_mib=many", "colour=red"] {
            let bad = open(&format!("{engine}:{}?{query}", dir.path().display())).await.err().unwrap();
            assert_eq!(bad.kind(), ErrorKind::Invalid, "{query}");
        }
        assert!(open(&format!("{engine}:")).await.is_err());
    }
}

#[tokio::test]
async fn a_backup_made_while_serving_is_a_store_of_its_own() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let (original, copy) = (dir.path().join("store"), dir.path().join("copy"));
        let serving = open(&format!("{engine}:{}?horizon_seconds=1", original.display())).await.unwrap();
        std::fs::write(original.join("keyring.json"), "{}").unwrap();
        for number in 0..100 {
            assert!(
                serving.put(key(&format!("c{number}")), record(1_000), at(0)).await.unwrap().is_applied()
            );
        }
        retired(&original).await;
        for number in 0..500 {
            let expires = if number % 2 == 0 { 10 } else { 1_000 };
            assert!(
                serving.put(key(&number.to_string()), record(expires), at(0)).await.unwrap().is_applied()
            );
        }
        // Writers go on while the copy is made: whole commits are in it or not, and the ledger agrees.
        let busy = Arc::clone(&serving);
        let writer = tokio::spawn(async move {
            for number in 0..500 {
                let pair = [key(&format!("a{number}")), key(&format!("b{number}"))];
                let writes = pair.map(|key| Write::Insert { key, record: record(1_000) });
                assert!(busy.commit(Batch::new(writes.to_vec()).unwrap(), at(0)).await.unwrap().is_applied());
            }
        });
        serving.backup(&copy).await.unwrap();
        writer.await.unwrap();
        assert!(serving.backup(&copy).await.is_err(), "a backup does not go over another");

        let url = format!("{engine}:{}", copy.display()).parse().unwrap();
        let report = ebbtide::engines::embedded::doctor::examine(&url, None).unwrap();
        assert!(report.damage.is_empty() && report.torn_bytes == 0, "{report:?}");
        assert!(report.cold_records >= 100, "{report:?}");
        let restored = store(engine, &copy).await;
        assert!(copy.join("keyring.json").exists(), "keys go along");
        let names = live_names(restored.as_ref(), at(0)).await;
        let of = |letter: &str| {
            let begins = |key: &&Key| format!("{:?}", key.sort()).contains(&format!("\"{letter}"));
            names.iter().filter(begins).count()
        };
        assert_eq!(of("a"), of("b"), "half a commit is in the backup");
        assert_eq!((names.len(), of("c")), (600 + of("a") + of("b"), 100));
        assert_eq!(restored.stats(at(0)).await.unwrap()[&Kind::Code].live, names.len() as u64);
        let swept = restored.sweep_all(at(100), &Budget::everything(Kind::ALL)).await.unwrap();
        assert_eq!(swept.total(), 250);
    }
}

/// Waits until the oldest segment of the log has retired.
async fn retired(folder: &Path) {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "log");
    let segments = || files(&folder.join("log")).into_iter().filter(is_segment);
    let oldest = segments().min().unwrap();
    let waiting = ebbtide::Stopwatch::start();
    while segments().any(|path| path == oldest) {
        assert!(waiting.elapsed() < Duration::from_secs(120), "{} did not retire", oldest.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = files(folder)
        .into_iter()
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_store_that_nobody_writes_to_retires_and_is_examined_and_salvaged_without_a_change() {
    use ebbtide::engines::embedded::{doctor, salvage};

    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let (original, target) = (dir.path().join("store"), dir.path().join("salvaged"));
        let quiet = open(&format!("{engine}:{}?horizon_seconds=1", original.display())).await.unwrap();
        for number in 0..50 {
            assert!(quiet.put(key(&number.to_string()), record(1_000), at(0)).await.unwrap().is_applied());
        }
        retired(&original).await;
        drop(quiet);
        let before = contents(&original);
        let url = format!("{engine}:{}", original.display()).parse().unwrap();
        let report = doctor::examine(&url, None).unwrap();
        assert_eq!((report.damage.len(), report.cold_records), (0, 50), "{report:?}");
        assert!(contents(&original) == before, "doctor has changed the {engine} store");
        let salvaged = salvage::salvage(&url, &target).unwrap();
        assert_eq!((salvaged.records["codes"], salvaged.lost.len()), (50, 0), "{salvaged:?}");
        assert!(contents(&original) == before, "salvage has changed the {engine} store");
        assert_eq!(live_names(store(engine, &target).await.as_ref(), at(0)).await.len(), 50);
    }
}

#[tokio::test]
async fn a_sweep_removes_all_that_has_expired_and_nothing_else() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let store = store(engine, dir.path()).await;
        let usual = Budget::default();
        for number in 0..40 {
            let expires = if number < 8 { 60 } else { 100_000 };
            assert!(store.put(key(&number.to_string()), record(expires), at(0)).await.unwrap().is_applied());
        }
        assert_eq!(store.sweep(at(60), &usual).await.unwrap().total(), 0, "the end itself is not past");
        assert_eq!(store.stats(at(1_000)).await.unwrap()[&Kind::Code].expired, 8);
        let part = Budget { records: 3, ..Budget::default() };
        let swept = store.sweep(at(1_000), &part).await.unwrap();
        assert_eq!((swept.total(), swept.more), (3, true), "a budget ends a sweep");
        assert_eq!(
            store.sweep(at(1_000), &usual).await.unwrap().total(),
            5,
            "a fifth of the records is swept"
        );
        assert_eq!(store.sweep(at(1_000), &usual).await.unwrap().total(), 0);
        let stats = store.stats(at(1_000)).await.unwrap()[&Kind::Code];
        assert_eq!((stats.live, stats.expired, stats.oldest_overdue), (32, 0, None));
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The folder is for its owner alone, and so is each file that the log writes.
#[tokio::test]
async fn files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = store(engine, &path).await;
        assert!(store.put(key("a"), record(60), at(0)).await.unwrap().is_applied());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        for folder in [path.clone(), path.join("log"), path.join("cold")] {
            assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        }
        for file in files(&path.join("log")).into_iter().chain([path.join("FORMAT"), path.join("LOCK")]) {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
}

/// A command that opens, writes and ends leaves no large files behind.
#[tokio::test]
async fn short_openings_leave_little_on_the_disk() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let store = store(engine, dir.path()).await;
            assert!(store.insert(key(&number.to_string()), record(60), at(0)).await.unwrap().is_applied());
        }
        let store = store(engine, dir.path()).await;
        assert_eq!(live_names(store.as_ref(), at(0)).await.len(), 20);
        let log = files(&dir.path().join("log"));
        let bytes: u64 = log.iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(bytes < 3 << 20, "{bytes} bytes in {} files", log.len());
    }
}

/// Also while the engine flushes and compacts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_sees_half_of_a_batch_through_sweeps() {
    const RECORDS: usize = 90;
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let store = store(engine, dir.path()).await;
        let put = |round: usize| {
            let put = |number| {
                let record = Record::new(round.to_string(), at(9_000), &SystemRng);
                Write::Put { key: key(&format!("{number:03}")), record }
            };
            let passing = Write::Put { key: key("passing"), record: record(60) };
            Batch::new((0..RECORDS).map(put).chain([passing]).collect()).unwrap()
        };
        assert!(store.commit(put(0), at(0)).await.unwrap().is_applied());
        let (ended, told) = tokio::sync::watch::channel(false);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (store, told) = (Arc::clone(&store), told.clone());
                tokio::spawn(async move {
                    while !*told.borrow() {
                        let seen = store.scan_all(&Prefix::kind_wide(Kind::Code), at(100)).await.unwrap();
                        assert_eq!(seen.len(), RECORDS);
                        let first = &seen[0].1.value;
                        assert!(seen.iter().all(|(_, record)| record.value == *first), "half of a batch");
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let sweeper = tokio::spawn({
            let store = Arc::clone(&store);
            async move {
                let all = Budget { force: true, ..Budget::default() };
                while !*told.borrow() {
                    store.sweep(at(100), &all).await.unwrap();
                }
            }
        });
        for round in 1..300 {
            assert!(store.commit(put(round), at(0)).await.unwrap().is_applied());
        }
        ended.send(true).unwrap();
        for task in readers.into_iter().chain([sweeper]) {
            task.await.unwrap();
        }
    }
}

/// The store with the time that it remembers.
async fn timed(engine: &str, folder: &Path, clocks: &ManualClocks) -> Timed {
    Timed::open(store(engine, folder).await, Arc::new(clocks.clone())).await.unwrap()
}

async fn insert(timed: &Timed, name: &str, seconds: u64) {
    let now = timed.now().unwrap();
    let end = now.end(Ttl::from_secs(i64::try_from(seconds).unwrap()).unwrap()).unwrap();
    let record = Record::new("", end, &SystemRng);
    assert!(timed.insert(key(name), record, now).await.unwrap().is_applied());
}

#[tokio::test]
async fn a_clock_set_back_revives_nothing_and_stops_no_expiry_also_after_a_restart() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let clocks = ManualClocks::at(at(0));
        {
            let timed = timed(engine, dir.path(), &clocks).await;
            insert(&timed, "old", 60).await;
            clocks.advance(HOUR);
            insert(&timed, "code", 60).await;
            insert(&timed, "later", 100_000).await;
            clocks.step_wall_back(HOUR);
            assert_eq!(timed.get(&key("old"), timed.now().unwrap()).await.unwrap(), None, "within a process");
        }
        let timed = timed(engine, dir.path(), &clocks).await;
        let live = async |name| timed.get(&key(name), timed.now().unwrap()).await.unwrap().is_some();
        assert!(!live("old").await && live("code").await, "and after a restart");
        clocks.advance(Duration::from_secs(60));
        assert!(!live("code").await && live("later").await, "its life goes on by the boot-time clock");
        assert_eq!(timed.time().status().state, ClockState::Behind);
    }
}

#[tokio::test]
async fn after_a_reboot_a_clock_behind_the_last_commit_waits() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let clocks = ManualClocks::at(at(0));
        {
            let timed = timed(engine, dir.path(), &clocks).await;
            insert(&timed, "a", 60).await;
            // The timer has not written the mark since; the engine has the time of the commit.
            clocks.advance(Duration::from_secs(9));
            let session = Key::new(Kind::Session, &Scope::Global, &["b".into()], &[]).unwrap();
            let now = timed.now().unwrap();
            let record = Record::new("", now.end(Ttl::from_secs(60).unwrap()).unwrap(), &SystemRng);
            assert!(timed.insert(session, record, now).await.unwrap().is_applied());
        }
        clocks.reboot();
        clocks.step_wall_back(Duration::from_secs(5));
        let timed = timed(engine, dir.path(), &clocks).await;
        let error = timed.now().unwrap_err();
        assert!(error.message().contains("behind the store's clock mark"), "{engine}: {error}");
        clocks.step_wall(Duration::from_secs(5));
        assert!(timed.now().unwrap().is_confirmed());
    }
}

#[tokio::test]
async fn a_clock_two_years_ahead_erases_nothing_until_it_is_accepted() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let clocks = ManualClocks::at(at(0));
        let db = Ebbtide::over(store(engine, dir.path()).await).clocks(clocks.clone()).open().await.unwrap();
        insert(db.timed(), "code", 600).await;
        clocks.step_wall(DAY * 730);
        assert!(db.time().now().is_err(), "nothing is answered, and nothing issued");
        let budget = Budget::everything(Kind::ALL);
        let refused = db.timed().sweep(&budget).await.unwrap_err();
        assert!(refused.message().contains("730 d"), "{refused}");
        clocks.step_wall_back(DAY * 730);
        assert!(
            db.timed().get(&key("code"), db.time().now().unwrap()).await.unwrap().is_some(),
            "it is back"
        );
        clocks.step_wall(DAY * 730);
        let context = AuditContext::new("operator", "it is 2028").unwrap();
        let accepted = db.accept_clock(&context, false).await.unwrap();
        assert_eq!(accepted.to.since(accepted.from), DAY * 730);
        assert_eq!(db.timed().sweep(&budget).await.unwrap().total(), 1, "accepted, it is swept");
        let log = db.stores().audit(&Scope::Global).list(None, 10).await.unwrap();
        assert_eq!(log.items.len(), 1);
        assert_eq!((log.items[0].action.name(), log.items[0].actor.as_str()), ("clock", "operator"));
        clocks.step_wall_back(DAY);
        assert!(db.accept_clock(&context, false).await.is_err(), "back only if it is asked for");
        let accepted = db.accept_clock(&context, true).await.unwrap();
        assert!(accepted.fence.is_some());
    }
}

#[test]
fn synchronous_code_needs_no_runtime() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("{engine}:{}", dir.path().display());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Blocking::new(runtime.block_on(open(&url)).unwrap());
        drop(runtime);
        let insert = || Batch::try_from(Write::Insert { key: key("a"), record: record(10) }).unwrap();
        assert!(store.commit(insert(), at(0)).unwrap().is_applied());
        assert!(!store.commit(insert(), at(0)).unwrap().is_applied());
        assert!(store.get(&key("a"), at(0)).unwrap().is_some());
        assert_eq!(store.scan(&Prefix::kind_wide(Kind::Code), None, 10, at(0)).unwrap().items.len(), 1);
        assert!(store.take(&key("a"), at(0)).unwrap().is_some());
        assert_eq!(store.sweep(at(100), &Budget::everything(Kind::ALL)).unwrap().total(), 0);
    }
}
