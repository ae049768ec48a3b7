//! What the embedded engines do in a second, beside Redis on the same machine in the same run.
//!
//! `cargo bench --bench embedded` measures fjall; with the feature `rocksdb`, that too. Arguments choose the parts:
//! `inserts`, `sweep`, `open`. `QUICK=1` uses a tenth of the records.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

#[path = "support/load.rs"]
mod load;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::{Backend, BackendExt, Budget, Clock, Stopwatch, SystemClock, Ttl, open};
use load::{fill, foreground, key, record};

/// The allocator of the `ebbtide` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENGINES: &[&str] = if cfg!(feature = "rocksdb") { &["fjall", "rocksdb"] } else { &["fjall"] };

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runs = |part: &str| chosen.is_empty() || chosen.iter().any(|name| name == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if runs("inserts") {
        runtime.block_on(inserts());
    }
    if runs("sweep") {
        runtime.block_on(sweep());
    }
    if runs("open") {
        runtime.block_on(opening());
    }
}

fn scaled(records: u64) -> u64 {
    if std::env::var_os("QUICK").is_some() { records / 10 } else { records }
}

async fn store(engine: &str, path: &Path) -> Arc<dyn Backend> {
    open(&format!("{engine}:{}", path.display())).await.unwrap()
}

/// `IN_FLIGHT=64` and `ENGINE=fjall` leave out the others, for a profiler.
fn in_flight() -> Vec<usize> {
    let chosen = std::env::var("IN_FLIGHT").ok().map(|text| vec![text.parse().unwrap()]);
    chosen.unwrap_or_else(|| vec![1, 64, 1_024])
}

fn engines() -> impl Iterator<Item = &'static str> {
    let chosen = std::env::var("ENGINE").ok();
    ENGINES.iter().copied().filter(move |engine| chosen.as_ref().is_none_or(|name| name == engine))
}

/// Durable insert-if-absent in alternating rounds: Redis, then each engine at 1, 64 and 1,024 in flight.
async fn inserts() {
    const ROUNDS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let mut redis = Redis::start(dir.path());
    let mut stores = Vec::new();
    for engine in engines() {
        stores.push((engine, store(engine, &dir.path().join(engine)).await));
    }
    let next = Arc::new(AtomicU64::new(0));
    let mut figures: Vec<(String, Vec<f64>)> = Vec::new();
    let mut note = |name: String, rate: f64| match figures.iter_mut().find(|(known, _)| *known == name) {
        Some((_, rates)) => rates.push(rate),
        None => figures.push((name, vec![rate])),
    };
    for _ in 0..ROUNDS {
        if let Some(redis) = &mut redis {
            note("redis AOF always, 64 connections".to_owned(), redis.set_nx_per_second());
        }
        for (engine, store) in &stores {
            for in_flight in in_flight() {
                let rate = insert_rate(store, in_flight, &next, Duration::from_secs(4)).await;
                note(format!("{engine}, {in_flight} in flight"), rate);
            }
        }
    }
    println!("durable insert-if-absent per second (median of {ROUNDS} rounds, spread, ratio to Redis)");
    let median = |rates: &[f64]| {
        let mut rates = rates.to_vec();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let peer = figures.iter().find(|(name, _)| name.starts_with("redis")).map(|(_, rates)| median(rates));
    for (name, rates) in &figures {
        let (low, high) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let ratio = peer.map_or_else(String::new, |peer| format!("{:6.2} x", median(rates) / peer));
        println!("  {name:34} {:>9.0}  ({low:.0} to {high:.0})  {ratio}", median(rates));
    }
}

async fn insert_rate(
    store: &Arc<dyn Backend>,
    in_flight: usize,
    next: &Arc<AtomicU64>,
    time: Duration,
) -> f64 {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let stopwatch = Stopwatch::start();
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let (store, next) = (Arc::clone(store), Arc::clone(next));
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let ttl = Ttl::from_secs(60).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let now = SystemClock.now();
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let commit =
                        store.insert(key(number), record(ttl.expires_at(now).unwrap()), now).await.unwrap();
                    assert!(commit.is_applied());
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    done.load(Ordering::Relaxed) as f64 / stopwatch.elapsed().as_secs_f64()
}

/// A Redis server of our own, stopped when dropped.
struct Redis {
    server: std::process::Child,
    port: u16,
}

impl Redis {
    /// None where no Redis is installed: the figures are then without a ratio, and say so.
    fn start(dir: &Path) -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir", &dir.display().to_string()])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""])
            .stdout(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            println!("no redis-server here (Debian's package redis): figures without a peer");
            return None;
        };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { server, port })
    }

    fn set_nx_per_second(&mut self) -> f64 {
        let output = Command::new("redis-benchmark")
            .args(["-p", &self.port.to_string(), "-c", "64", "-n", "150000", "-r", "1000000000", "--csv"])
            .args(["SET", "replay:__rand_int__:aaaaaaaaaaaaaaaaaaaaaaaa", "1", "NX", "EX", "60"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let row = text.lines().last().unwrap();
        // The command in the first column may hold commas of its own; the rate is the first number behind it.
        let mut fields = row.split("\",\"").map(|field| field.trim_matches('"'));
        fields.find_map(|field| field.parse().ok()).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// One million expired among one million live: records a second, and what 64 callers feel of it.
async fn sweep() {
    let each = scaled(1_000_000);
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let store = store(engine, dir.path()).await;
        let now = SystemClock.now();
        let soon = Ttl::from_secs(60).unwrap().expires_at(now).unwrap();
        let late = Ttl::from_secs(24 * 3_600).unwrap().expires_at(now).unwrap();
        fill(&store, 2 * each, 0, |n| if n % 2 == 0 { soon } else { late }, now).await;
        let until = Ttl::from_secs(300).unwrap().expires_at(now).unwrap();
        let before = foreground::<()>(&store, 10 * each, None).await;
        let sweeping = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let stopwatch = Stopwatch::start();
                let swept = store.sweep_all(until, &Budget::default()).await.unwrap();
                (swept.total(), stopwatch.elapsed())
            })
        };
        let during = foreground(&store, 20 * each, Some(&sweeping)).await;
        let (removed, time) = sweeping.await.unwrap();
        assert!(removed >= each, "{removed} of {each} were swept");
        println!(
            "{engine}: swept {removed} of {} records in {:.2} s under load: {:.0} records/s; \
             foreground p99 {:.2} ms without, {:.2} ms during: {:.2} x",
            2 * each,
            time.as_secs_f64(),
            removed as f64 / time.as_secs_f64(),
            before * 1e3,
            during * 1e3,
            during / before
        );
    }
}

/// Opening time and resident memory with ten million records.
async fn opening() {
    let records = scaled(10_000_000);
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemClock.now();
        let minutes = |n: u64| Ttl::from_secs(60 * (1 + i64::try_from(n % 1_440).unwrap())).unwrap();
        let filled = store(engine, dir.path()).await;
        fill(&filled, records, 0, |n| minutes(n).expires_at(now).unwrap(), now).await;
        let resident = resident_mib();
        drop(filled);
        let stopwatch = Stopwatch::start();
        let reopened = store(engine, dir.path()).await;
        let opened = stopwatch.elapsed();
        assert!(reopened.get(&key(records / 2), now).await.unwrap().is_some());
        let empty = tempfile::tempdir().unwrap();
        let stopwatch = Stopwatch::start();
        drop(store(engine, empty.path()).await);
        println!(
            "{engine}: {records} records: opened in {:.0} ms (an empty store in {:.0} ms), {resident} MiB resident after filling",
            opened.as_secs_f64() * 1e3,
            stopwatch.elapsed().as_secs_f64() * 1e3
        );
    }
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}
