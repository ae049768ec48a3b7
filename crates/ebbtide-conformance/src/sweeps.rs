//! Sweeping: strict, by the record's own expiry, and invisible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Rig;
use ebbtide::backend::{BackendExt, Budget};
use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::model::rng::Rng;
use ebbtide::model::write::Write;

/// Reads a record, expired or not: at the first instant nothing has expired.
async fn is_stored(rig: &Rig, key: &Key) -> bool {
    rig.backend.get(key, ebbtide::model::time::Timestamp::ZERO).await.expect("get").is_some()
}

fn index_key(rig: &Rig, name: &str) -> Key {
    Key::new(Kind::ProbeIndex, &rig.scope, &[name.into()], &[]).expect("good names")
}

pub(super) async fn a_sweep_is_strict(rig: Rig) {
    let [before, at, after] = ["before", "at", "after"].map(|name| rig.key(name));
    rig.stored(&before, "v", 999).await;
    rig.stored(&at, "v", 1_000).await;
    rig.stored(&after, "v", 1_001).await;
    let swept = rig.sweep(1_000).await;
    assert_eq!(swept.total(), 1, "only what expired before");
    assert!(!is_stored(&rig, &before).await);
    assert!(is_stored(&rig, &at).await, "what expires at the instant is kept");
    assert!(is_stored(&rig, &after).await);
    assert_eq!(rig.sweep(1_001).await.total(), 1);
    assert!(!is_stored(&rig, &at).await);
}

pub(super) async fn a_sweep_never_removes_what_is_live(rig: Rig) {
    let mut live = Vec::new();
    for number in 0..50u64 {
        let key = rig.sorted_key("p", &[number.into()]);
        let expires = if number % 2 == 0 { 10 } else { 1_000 + number };
        let record = rig.stored(&key, "v", expires).await;
        if number % 2 == 1 {
            live.push((key, record));
        }
    }
    assert_eq!(rig.sweep(1_000).await.total(), 25);
    assert_eq!(rig.scan(&rig.partition("p", &[]), 1_000).await, live);
}

pub(super) async fn a_sweep_counts_by_kind(rig: Rig) {
    for number in 0..5 {
        rig.stored(&rig.key(&number.to_string()), "v", 10).await;
    }
    for number in 0..3 {
        rig.stored(&index_key(&rig, &number.to_string()), "v", 10).await;
    }
    let swept = rig.sweep(11).await;
    assert_eq!(swept.removed.get(&Kind::Probe), Some(&5));
    assert_eq!(swept.removed.get(&Kind::ProbeIndex), Some(&3));
    assert_eq!(swept.total(), 8);
    assert!(rig.sweep(11).await.removed.is_empty(), "nothing is removed twice");
}

pub(super) async fn a_sweep_leaves_other_kinds_alone(rig: Rig) {
    let (record, index) = (rig.key("a"), index_key(&rig, "a"));
    rig.stored(&record, "v", 10).await;
    rig.stored(&index, "v", 10).await;
    let budget = Budget::everything(&[Kind::ProbeIndex]);
    assert_eq!(rig.backend.sweep_all(rig.at(11), &budget).await.expect("sweep").total(), 1);
    assert!(is_stored(&rig, &record).await);
    assert!(!is_stored(&rig, &index).await);
}

pub(super) async fn a_sweep_is_resumed_until_there_is_no_more(rig: Rig) {
    for number in 0..30u64 {
        rig.stored(&rig.sorted_key("p", &[number.into()]), "v", 10).await;
    }
    let budget = Budget { records: 7, ..Budget::everything(Kind::PROBES) };
    let mut removed = 0;
    for _ in 0..100 {
        let step = rig.backend.sweep(rig.at(11), &budget).await.expect("sweep");
        removed += step.total();
        if !step.more {
            break;
        }
    }
    assert_eq!(removed, 30, "what the steps counted is what there was");
    assert_eq!(rig.backend.scan_all(&rig.partition("p", &[]), rig.at(0)).await.expect("scan"), []);
}

pub(super) async fn a_sweep_goes_by_the_present_expiry(rig: Rig) {
    let (longer, shorter, gone) = (rig.key("longer"), rig.key("shorter"), rig.key("gone"));
    for (key, expires) in [(&longer, 10), (&shorter, 1_000), (&gone, 10)] {
        rig.stored(key, "old", expires).await;
    }
    // An engine may still hold the old versions, and must not use their expiry.
    let kept = rig.stored(&longer, "new", 1_000).await;
    rig.stored(&shorter, "new", 10).await;
    assert!(rig.applied(Write::Delete { key: gone.clone() }, 0).await);
    let swept = rig.sweep(11).await;
    assert_eq!(rig.get(&longer, 11).await, Some(kept));
    assert!(!is_stored(&rig, &shorter).await, "an older, longer life does not come back");
    assert!(!is_stored(&rig, &gone).await);
    assert_eq!(swept.total(), 1, "a record counts once, and a deleted one not at all");
}

pub(super) async fn a_sweep_beside_extensions_removes_none_of_the_extended(rig: Rig) {
    const RECORDS: usize = 64;
    let mut records = Vec::new();
    for number in 0..RECORDS {
        let key = rig.sorted_key("p", &[(number as u64).into()]);
        let record = rig.stored(&key, "short", 10).await;
        records.push((key, record.version));
    }
    // The extensions are evaluated while the records are live; the sweeps run with a later time. Each record is
    // either extended and kept, or swept and then refused.
    let extended = rig.together(20, |rig, index| {
        let mine: Vec<_> = records.iter().skip(index).step_by(16).cloned().collect();
        async move {
            let mut extended = Vec::new();
            if index >= 16 {
                rig.sweep(11).await;
                return extended;
            }
            for (key, expected) in mine {
                let record = rig.record("long", 1_000);
                if rig.applied(Write::Replace { key: key.clone(), expected, record: record.clone() }, 9).await
                {
                    extended.push((key, record));
                }
            }
            extended
        }
    });
    let mut extended: Vec<_> = extended.await.into_iter().flatten().collect();
    extended.sort_by(|(left, _), (right, _)| left.cmp(right));
    rig.sweep(11).await;
    assert_eq!(rig.scan(&rig.partition("p", &[]), 11).await, extended);
}

/// Number of tasks that write and extend records beside two that sweep continuously.
const WRITERS: usize = 16;

/// Decrements the counter when its task ends, in any way.
struct Writer(Arc<AtomicUsize>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Every call advances the case's time by a millisecond.
fn tick(clock: &AtomicU64) -> u64 {
    clock.fetch_add(1, Ordering::SeqCst) + 1
}

pub(super) async fn a_sweep_removes_nothing_that_a_read_would_honour(rig: Rig) {
    let clock = Arc::new(AtomicU64::new(0));
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    rig.together(WRITERS + 2, |rig, index| {
        let (clock, writing) = (Arc::clone(&clock), Arc::clone(&writing));
        async move {
            if index < WRITERS {
                let _writer = Writer(writing);
                for round in 0..12 {
                    let key = rig.sorted_key("p", &[(index as u64).into(), (round % 3).into()]);
                    live_and_be_extended(&rig, &clock, &key).await;
                }
                return;
            }
            while writing.load(Ordering::SeqCst) > 0 {
                rig.sweep(clock.load(Ordering::SeqCst)).await;
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
}

/// Writes a record with a random TTL of milliseconds, and extends it while it is live and at its expiry.
async fn live_and_be_extended(rig: &Rig, clock: &AtomicU64, key: &Key) {
    let random = || {
        let [byte] = (rig.rng.as_ref() as &dyn Rng).bytes();
        u64::from(byte) + 1
    };
    let mut ends = tick(clock) + random();
    let mut record = rig.stored(key, "v", ends).await;
    for _ in 0..6 {
        let now = tick(clock);
        let read = rig.get(key, now).await;
        // No sweep has gone beyond the clock's present time.
        if clock.load(Ordering::SeqCst) < ends {
            assert_eq!(read.as_ref(), Some(&record), "a sweep has removed a live record");
        }
        let (now, later) = (tick(clock), ends + random());
        let longer = rig.record("v", later);
        let extend = Write::Replace { key: key.clone(), expected: record.version, record: longer.clone() };
        if rig.applied(extend, now).await {
            assert!(now < ends, "an expired record was extended");
            (ends, record) = (later, longer);
        } else {
            assert!(clock.load(Ordering::SeqCst) >= ends, "a live record was not there to be extended");
            return;
        }
    }
}

pub(super) async fn a_swept_key_can_be_used_again(rig: Rig) {
    let key = rig.key("a");
    for round in 1..=3u64 {
        let record = rig.record("v", 100 * round);
        let insert = Write::Insert { key: key.clone(), record: record.clone() };
        assert!(rig.applied(insert, 100 * round - 50).await);
        assert_eq!(rig.get(&key, 100 * round - 1).await, Some(record));
        assert_eq!(rig.sweep(100 * round + 1).await.total(), 1);
    }
}

pub(super) async fn sweeping_changes_no_answer(rig: Rig) {
    // The same operations on two sets of records, one of them swept in between.
    let mut answers = Vec::new();
    for (set, swept) in [("kept", false), ("swept", true)] {
        let names = ["get", "take", "insert", "replace", "remove", "check", "absent"];
        let keys = names.map(|name| rig.sorted_key(set, &[name.into()]));
        let mut versions = Vec::new();
        for key in &keys {
            versions.push(rig.stored(key, "v", 10).await.version);
        }
        if swept {
            assert!(rig.sweep(11).await.total() >= 7, "all seven are swept");
        }
        let [get, take, insert, replace, remove, check, absent] = keys;
        answers.push([
            rig.get(&get, 11).await.is_some(),
            rig.take(&take, 11).await.is_some(),
            rig.applied(Write::Insert { key: insert, record: rig.record("w", 100) }, 11).await,
            rig.applied(
                Write::Replace { key: replace, expected: versions[3], record: rig.record("w", 100) },
                11,
            )
            .await,
            rig.applied(Write::Remove { key: remove, expected: versions[4] }, 11).await,
            rig.applied(Write::Check { key: check, expected: versions[5] }, 11).await,
            rig.applied(Write::Absent { key: absent }, 11).await,
            rig.scan(&rig.partition(set, &[]), 11).await.len() == 1,
        ]);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], [false, false, true, false, false, false, true, true]);
}

pub(super) async fn stats_count_the_live_and_the_overdue(rig: Rig) {
    const MINUTE: u64 = 60_000;
    for (name, expires) in [("a", MINUTE), ("b", 2 * MINUTE), ("c", 60 * MINUTE)] {
        rig.stored(&rig.key(name), "v", expires).await;
    }
    let of = |stats: ebbtide::admin::Stats| stats.get(&Kind::Probe).copied().unwrap_or_default();
    let before = of(rig.backend.stats(rig.at(0)).await.expect("stats"));
    assert_eq!((before.live, before.expired, before.oldest_overdue), (3, 0, None));
    let now = rig.at(10 * MINUTE);
    let stats = of(rig.backend.stats(now).await.expect("stats"));
    assert_eq!((stats.live, stats.expired), (1, 2));
    let overdue = stats.oldest_overdue.expect("two are overdue");
    // Engines may count by the minute.
    let (least, most) = (Duration::from_millis(8 * MINUTE), Duration::from_millis(10 * MINUTE));
    assert!(least <= overdue && overdue <= most, "{overdue:?} overdue");
    assert_eq!(rig.sweep(10 * MINUTE).await.total(), 2);
    let after = of(rig.backend.stats(now).await.expect("stats"));
    assert_eq!((after.live, after.expired, after.oldest_overdue), (1, 0, None));
}

pub(super) async fn twenty_of_a_hundred_that_expire_are_gone_within_two_intervals(rig: Rig) {
    const INTERVAL: u64 = 30_000;
    let mut keys = Vec::new();
    for number in 0..100u64 {
        let key = rig.sorted_key("p", &[number.into()]);
        // One in five ends within the first interval, the last of them right before its sweep.
        let expires = if number % 5 == 0 { INTERVAL - 5 * (95 - number) } else { 10 * INTERVAL };
        rig.stored(&key, "v", expires).await;
        keys.push((key, expires));
    }
    let swept = rig.sweep(INTERVAL).await.total() + rig.sweep(2 * INTERVAL).await.total();
    assert_eq!(swept, 20);
    for (key, expires) in keys {
        assert_eq!(is_stored(&rig, &key).await, expires > INTERVAL, "{expires}");
    }
}
