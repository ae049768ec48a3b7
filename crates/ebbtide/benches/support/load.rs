//! Records of a benchmark, and callers that write them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::{
    Backend, BackendExt as _, Batch, Clock as _, Digest, Key, Kind, Record, Scope, Stopwatch, SystemChance,
    SystemClock, Timestamp, Ttl, Write,
};

pub(crate) fn key(number: u64) -> Key {
    let digest = Digest::of("replay", &[&number.to_be_bytes()]);
    Key::new(Kind::Replay, &Scope::tenant("acme").unwrap(), &[digest.part()], &[]).unwrap()
}

pub(crate) fn record(expires_at: Timestamp) -> Record {
    Record::new("", expires_at, &SystemChance)
}

/// Fills a store by large batches, without waiting for the clock: expiry times are handed in.
pub(crate) async fn fill(
    store: &Arc<dyn Backend>,
    records: u64,
    from: u64,
    expires: impl Fn(u64) -> Timestamp,
    now: Timestamp,
) {
    let mut number = from;
    while number < from + records {
        let mut commits = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let upto = (number + 100).min(from + records);
            let writes: Vec<_> =
                (number..upto).map(|n| Write::Insert { key: key(n), record: record(expires(n)) }).collect();
            number = upto;
            if writes.is_empty() {
                break;
            }
            let store = Arc::clone(store);
            commits.spawn(async move { store.commit(Batch::new(writes).unwrap(), now).await.unwrap() });
        }
        while let Some(commit) = commits.join_next().await {
            assert!(commit.unwrap().is_applied());
        }
    }
}

/// The 99th percentile of the latency of inserts by 64 callers, over two seconds or until `until` is finished.
pub(crate) async fn foreground<T>(
    store: &Arc<dyn Backend>,
    from: u64,
    until: Option<&tokio::task::JoinHandle<T>>,
) -> f64 {
    let next = Arc::new(AtomicU64::new(from));
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (store, next, stop) = (Arc::clone(store), Arc::clone(&next), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let now = SystemClock.now();
                    let late = Ttl::from_secs(24 * 3_600).unwrap().expires_at(now).unwrap();
                    let stopwatch = Stopwatch::start();
                    let inserted = store.insert(key(next.fetch_add(1, Ordering::Relaxed)), record(late), now);
                    assert!(inserted.await.unwrap().is_applied());
                    times.push(stopwatch.elapsed().as_secs_f64());
                }
                times
            })
        })
        .collect();
    match until {
        None => tokio::time::sleep(Duration::from_secs(2)).await,
        Some(task) => {
            while !task.is_finished() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}
