//! Kills a process that writes and consumes under load, again and again, and looks at what it left.
//!
//! The child announces what it is about to take and what was acknowledged. After each SIGKILL the parent opens the
//! store: what was acknowledged is there, what was taken stays taken, and the ledger agrees with a full scan.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use ebbtide::{
    Admin, BackendExt, Budget, ErrorKind, Key, Kind, Prefix, Record, Rng, Scope, SeededRng, SystemRng,
    Timestamp, open_engine as open,
};
use libtest_mimic::{Arguments, Trial};

const KILLS: u64 = 100;
const CHILD: &str = "EBBTIDE_CRASH_CHILD";

fn main() -> ExitCode {
    if let Ok(url) = std::env::var(CHILD) {
        runtime().block_on(child(&url));
        return ExitCode::SUCCESS;
    }
    let engines: &[&str] = if cfg!(feature = "rocksdb") { &["fjall", "rocksdb"] } else { &["fjall"] };
    let kills = engines.iter().map(|engine| {
        Trial::test(format!("{engine}::what_was_acknowledged_outlives_a_hundred_kills"), move || {
            runtime().block_on(parent(engine));
            Ok(())
        })
    });
    let full = engines.iter().map(|engine| {
        Trial::test(
            format!("{engine}::a_full_disk_refuses_new_records_lets_others_end_and_loses_nothing"),
            move || {
                runtime().block_on(fill_the_disk(engine));
                Ok(())
            },
        )
    });
    libtest_mimic::run(&Arguments::from_args(), kills.chain(full).collect()).exit_code()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
}

fn key(round: u64, number: u64) -> Key {
    Key::new(Kind::Code, &Scope::Global, &[round.into()], &[number.into()]).unwrap()
}

/// Every fifth has ended long ago when the sweeps come.
fn record(number: u64) -> Record {
    let expires_at = if number.is_multiple_of(5) { at(1 + number) } else { at(1_000_000_000) };
    Record::new(number.to_string(), expires_at, &SystemRng)
}

const SWEEP_AT: u64 = 500_000_000;

async fn child(arguments: &str) {
    let (round, url) = arguments.split_once(' ').unwrap();
    let store = open(url).await.unwrap();
    if round == "full" {
        return write_until_refused(store).await;
    }
    let round: u64 = round.parse().unwrap();
    let tasks: Vec<_> = (0..16).map(|task| tokio::spawn(work(Arc::clone(&store), round, task))).collect();
    loop {
        // Sweeping without a pause takes most of the time: some rounds are killed amid it, the others amid commits.
        if round.is_multiple_of(4) {
            store.sweep(at(SWEEP_AT), &Budget::everything(Kind::ALL)).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        if tasks.iter().any(tokio::task::JoinHandle::is_finished) {
            std::process::exit(1);
        }
    }
}

/// From here on no file of this process grows past some size, as on a full disk. It begins once the store is open, so
/// that a journal whose whole length is taken at once does not end the test before it starts; and it is less than
/// either engine fills before it turns to another file.
fn let_the_disk_be_full_soon() {
    let limit = ["--pid".to_owned(), std::process::id().to_string(), "--fsize=16384000".to_owned()];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success(), "prlimit sets the limit");
}

async fn write_until_refused(store: Arc<dyn Admin>) {
    let_the_disk_be_full_soon();
    // Random bytes, since an engine would compress others to nothing.
    let mut value = vec![0; 300_000];
    SystemRng.fill(&mut value);
    let large = |number: u64| Record::new(value.clone(), record(number | 1).expires_at, &SystemRng);
    for number in 0..10_000 {
        match store.insert(key(0, number), large(number), at(0)).await {
            Ok(commit) if commit.is_applied() => say('i', number),
            Ok(_) => panic!("nothing was there"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                // Nothing has failed that was begun: what is there can be read and ended, and nothing is added.
                for taken in 0..3 {
                    assert!(store.insert(key(1, number), large(number), at(0)).await.is_err());
                    assert!(store.get(&key(0, 5), at(0)).await.unwrap().is_some());
                    assert!(store.take(&key(0, taken), at(0)).await.unwrap().is_some());
                }
                say('T', number);
                return;
            }
        }
    }
}

async fn fill_the_disk(engine: &str) {
    let dir = tempfile::tempdir().unwrap();
    // The signal that comes at the limit is ignored, so that the write fails.
    let script = "trap '' XFSZ; exec \"$0\"";
    let child = Command::new("bash")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, format!("full {engine}:{}", dir.path().display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let heard = listen(child, u64::MAX);
    let refused = *heard.taken.iter().next().expect("the child came to the end of the disk and said so");
    assert!(refused > 10, "some were written first");
    assert_eq!(heard.inserted.len() as u64, refused, "every one before it was acknowledged");
    let store = open(&format!("{engine}:{}", dir.path().display())).await.unwrap();
    for &number in &heard.inserted {
        let standing = store.get(&key(0, number), at(0)).await.unwrap();
        assert_eq!(
            standing.is_some(),
            number > 2,
            "{engine}: {number} was acknowledged, and is gone or is back"
        );
    }
    let again = store.insert(key(2, 0), record(1), at(0)).await.unwrap();
    assert!(again.is_applied(), "reopened, with room on the disk, the store takes up work again");
}

async fn work(store: Arc<dyn Admin>, round: u64, task: u64) {
    for step in 0..u64::MAX {
        let number = step * 16 + task;
        if store.insert(key(round, number), record(number), at(0)).await.unwrap().is_applied() {
            say('i', number);
        }
        if step % 3 == 2 {
            let taken = number - 16;
            say('t', taken);
            if store.take(&key(round, taken), at(0)).await.unwrap().is_some() {
                say('T', taken);
            }
        }
    }
}

/// One write of a whole line: a kill leaves it whole or not at all.
fn say(what: char, number: u64) {
    std::io::stdout().lock().write_all(format!("{what}{number}\n").as_bytes()).unwrap();
}

#[derive(Default)]
struct Heard {
    inserted: HashSet<u64>,
    taking: HashSet<u64>,
    taken: HashSet<u64>,
}

async fn parent(engine: &str) {
    let dir = tempfile::tempdir().unwrap();
    let rng = SeededRng::new(7);
    let mut rounds = BTreeMap::new();
    for round in 0..KILLS {
        let heard = run_and_kill(engine, dir.path(), round, 1 + rng.below(1_500));
        check(engine, dir.path(), &BTreeMap::from([(round, &heard)])).await;
        rounds.insert(round, heard);
    }
    let all: BTreeMap<_, _> = rounds.iter().map(|(round, heard)| (*round, heard)).collect();
    check(engine, dir.path(), &all).await;
    let acknowledged: usize = rounds.values().map(|heard| heard.inserted.len()).sum();
    let taken: usize = rounds.values().map(|heard| heard.taken.len()).sum();
    println!("{engine}: {KILLS} kills, {acknowledged} acknowledged inserts, {taken} acknowledged takes");
    assert!(acknowledged > 1_000, "the child had too little time to show anything");
}

fn run_and_kill(engine: &str, path: &Path, round: u64, lines: u64) -> Heard {
    let child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, format!("{round} {engine}:{}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    listen(child, lines)
}

/// Hears what the child says, and kills it after so many lines.
fn listen(mut child: Child, lines: u64) -> Heard {
    let mut heard = Heard::default();
    let mut killed = false;
    for (count, line) in BufReader::new(child.stdout.take().unwrap()).lines().enumerate() {
        let line = line.unwrap();
        let number: u64 = line[1..].parse().unwrap();
        match &line[..1] {
            "i" => heard.inserted.insert(number),
            "t" => heard.taking.insert(number),
            _ => heard.taken.insert(number),
        };
        if count as u64 >= lines && !killed {
            // SIGKILL. What the child had said by then is still read from the pipe.
            child.kill().unwrap();
            killed = true;
        }
    }
    let status = child.wait().unwrap();
    assert!(killed != status.success(), "the child ended otherwise than it should: {status}");
    heard
}

async fn check(engine: &str, path: &Path, rounds: &BTreeMap<u64, &Heard>) {
    let store = open(&format!("{engine}:{}", path.display())).await.unwrap();
    for (&round, heard) in rounds {
        for &number in &heard.taken {
            let standing = store.get(&key(round, number), at(0)).await.unwrap();
            assert!(standing.is_none(), "{engine} {round}: {number} was taken and is back");
        }
        for &number in heard.inserted.difference(&heard.taking) {
            // The sweeps of the child may have reclaimed what had ended by their time.
            if number.is_multiple_of(5) {
                continue;
            }
            let again = store.insert(key(round, number), record(number), at(0)).await.unwrap();
            assert!(!again.is_applied(), "{engine} {round}: {number} was inserted twice");
        }
    }
    store.sweep_all(at(SWEEP_AT), &Budget::everything(Kind::ALL)).await.unwrap();
    let scanned = store.scan_all(&Prefix::kind_wide(Kind::Code), Timestamp::ZERO).await.unwrap().len() as u64;
    let stats = store.stats(at(SWEEP_AT)).await.unwrap().get(&Kind::Code).copied().unwrap_or_default();
    assert_eq!((stats.live, stats.expired), (scanned, 0), "{engine}: the ledger does not agree with a scan");
}
