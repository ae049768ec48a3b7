//! Sweeps of a shared store, and what batches leave for them.

use std::collections::BTreeMap;
use std::time::Duration;

use ebbtide::engines::postgres::migrate;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::sessions::{SessionRequest, TouchOutcome};
use ebbtide::{
    BackendExt, Batch, Budget, Clock as _, Kind, ManualClock, Scope, Stores, SystemClock, Ttl, Write,
};

use crate::service::{
    OwnServer, at, cases, connect, fresh_on, key, migrated, open, open_at, put, record, schema_of, server,
    sql, within,
};

cases! {
    a_second_sweeper_leaves_the_work_to_the_first
    a_sweep_waits_for_nobody
    a_sweep_puts_off_what_was_prolonged_and_removes_it_at_its_end
    touches_and_redemptions_change_no_index
    placeholders_are_neither_seen_nor_counted_and_are_swept
    a_refused_batch_leaves_nothing_to_sweep
    a_large_sweep_is_done_in_steps_and_counted_exactly
    a_partition_full_of_expired_records_is_scanned_in_bounded_pages
    a_page_is_bounded_in_bytes
}

async fn a_second_sweeper_leaves_the_work_to_the_first() {
    let url = migrated().await;
    let store = open_at(&url).await;
    put(&store, key("a"), record("v", 10)).await;
    // Another node in the midst of its sweep holds the lock. Its number is seen from outside.
    let schema = schema_of(&url);
    let spy = connect(&server()).await;
    let lock = format!("BEGIN; LOCK TABLE {schema}.probes IN ACCESS EXCLUSIVE MODE");
    spy.batch_execute(&lock).await.unwrap();
    let swept = tokio::spawn({
        let store = store.clone();
        async move { store.sweep(at(11), &Budget::everything(&[Kind::Probe])).await }
    });
    // The first one cannot even be planned while the table is locked; once it goes on, it is the only one.
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass";
    let table = format!("{schema}.probes");
    within(60, async {
        while spy.query_one(waiting, &[&table]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    spy.batch_execute("COMMIT").await.unwrap();
    assert_eq!(within(60, swept).await.unwrap().unwrap().total(), 1);

    put(&store, key("b"), record("v", 10)).await;
    let number = ebbtide_sweep_lock(&schema);
    spy.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({number})")).await.unwrap();
    let idle = store.sweep(at(11), &Budget::default()).await.unwrap();
    assert_eq!((idle.total(), idle.more), (0, false));
    spy.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.sweep(at(11), &Budget::default()).await.unwrap().total(), 1);
}

/// The number of the lock: a promise to other versions of the engine, and so written down here once more.
fn ebbtide_sweep_lock(schema: &str) -> i64 {
    use sha2::{Digest as _, Sha256};
    let hash: [u8; 32] = Sha256::digest(format!("ebbtide\0sweep\0{schema}\0\0")).into();
    i64::from_be_bytes(*hash.first_chunk().unwrap())
}

async fn a_sweep_waits_for_nobody() {
    let url = migrated().await;
    let store = open_at(&url).await;
    for name in ["held", "free"] {
        put(&store, key(name), record("v", 10)).await;
    }
    let spy = connect(&server()).await;
    let held = format!("BEGIN; SELECT 1 FROM {}.probes ORDER BY key LIMIT 1 FOR UPDATE", schema_of(&url));
    spy.batch_execute(&held).await.unwrap();
    let swept = within(60, store.sweep_all(at(11), &Budget::default())).await.unwrap();
    assert_eq!(swept.total(), 1, "what is locked is left for the next time");
    spy.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.sweep_all(at(11), &Budget::default()).await.unwrap().total(), 1);
}

async fn a_sweep_puts_off_what_was_prolonged_and_removes_it_at_its_end() {
    let url = migrated().await;
    let store = open_at(&url).await;
    for name in ["longer", "shorter", "same"] {
        put(&store, key(name), record("v", 100)).await;
    }
    put(&store, key("longer"), record("v", 1_000)).await;
    put(&store, key("shorter"), record("v", 10)).await;
    let due = format!("SELECT array_agg(due_at ORDER BY due_at) FROM {}.probes", schema_of(&url));
    let client = connect(&server()).await;
    let due = async || client.query_one(&due, &[]).await.unwrap().get::<_, Option<Vec<i64>>>(0);
    assert_eq!(due().await, Some(vec![10, 100, 100]), "an end that is put off changes no index");
    assert_eq!(store.sweep_all(at(50), &Budget::default()).await.unwrap().total(), 1);
    assert_eq!(due().await, Some(vec![100, 100]));
    assert_eq!(store.sweep_all(at(101), &Budget::default()).await.unwrap().total(), 1);
    assert_eq!(due().await, Some(vec![1_000]), "the sweep has put it off");
    let stats = store.stats(at(101)).await.unwrap()[&Kind::Probe];
    assert_eq!((stats.live, stats.expired, stats.oldest_overdue), (1, 0, None));
    assert_eq!(store.sweep_all(at(1_000), &Budget::default()).await.unwrap().total(), 0);
    assert_eq!(store.sweep_all(at(1_001), &Budget::default()).await.unwrap().total(), 1);
    assert_eq!(due().await, None);
}

/// More than nine of ten updates are heap-only: they leave the indexes as they are, and need no vacuum.
async fn touches_and_redemptions_change_no_index() {
    const SESSIONS: usize = 40;
    const TOUCHES: usize = 20;
    // A server of its own: transactions of other tests would keep dead rows, and with them the room on their pages.
    let own = OwnServer::start();
    let url = fresh_on(&own.url).await;
    migrate(&url).await.unwrap();
    let clock = ManualClock::at(SystemClock.now());
    let stores = Stores::builder_for_tests(open_at(&url).await).clock(clock.clone()).build();
    let (sessions, codes) = (stores.sessions(&Scope::Global), stores.codes(&Scope::Global));
    let mut ids = Vec::new();
    for number in 0..SESSIONS {
        let request =
            SessionRequest::new().subject(format!("user {number}")).ttl(Ttl::from_secs(1_800).unwrap());
        ids.push(sessions.create(request).await.unwrap().session_id);
    }
    for _ in 0..TOUCHES {
        clock.advance(Duration::from_secs(60));
        for id in &ids {
            assert!(matches!(sessions.touch(id, None).await.unwrap(), TouchOutcome::Touched { .. }));
        }
    }
    for number in 0..SESSIONS {
        let request = CodeRequest::new("app", format!("user {number}"), "https://app.example/cb");
        let code = codes.issue(request).await.unwrap().code;
        clock.advance(Duration::from_secs(1));
        let redeem = Redeem::new(code, "app").redirect_uri("https://app.example/cb").with_grant();
        assert!(matches!(codes.redeem(redeem).await.unwrap(), RedeemOutcome::Redeemed(_)));
    }
    // Connections tell their counts when they end.
    drop((sessions, codes, stores));
    let client = connect(&own.url).await;
    let counts = "SELECT relname::text, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables \
                  WHERE schemaname = $1 AND n_tup_upd > 0 ORDER BY 1";
    let schema = schema_of(&url);
    let told = async || {
        let rows = client.query(counts, &[&schema]).await.unwrap();
        rows.iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect::<BTreeMap<String, (i64, i64)>>()
    };
    let expected = i64::try_from(SESSIONS * TOUCHES).unwrap();
    within(60, async {
        while told().await.get("sessions").is_none_or(|(updates, _)| *updates < expected)
            || !told().await.contains_key("codes")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let told = told().await;
    println!("updates, and heap-only ones: {told:?}");
    for (table, (updates, hot)) in &told {
        assert!(10 * hot > 9 * updates, "{table}: {hot} of {updates}");
    }
}

async fn rows(url: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {}.probes", schema_of(url));
    connect(&server()).await.query_one(&count, &[]).await.unwrap().get(0)
}

async fn placeholders_are_neither_seen_nor_counted_and_are_swept() {
    let url = migrated().await;
    let store = open_at(&url).await;
    let batch = vec![
        Write::Absent { key: key("tombstone") },
        Write::Insert { key: key("a"), record: record("v", 10) },
    ];
    assert!(store.commit(Batch::new(batch).unwrap(), at(0)).await.unwrap().is_applied());
    assert_eq!(rows(&url).await, 2, "the absence is held by a row");
    assert_eq!(store.get(&key("tombstone"), at(0)).await.unwrap(), None);
    let stats = store.stats(at(0)).await.unwrap()[&Kind::Probe];
    assert_eq!((stats.live, stats.expired, stats.oldest_overdue), (1, 0, None));
    assert_eq!(store.sweep_all(at(5), &Budget::default()).await.unwrap().total(), 0);
    assert_eq!(rows(&url).await, 1, "and that row is swept");
    assert!(store.insert(key("tombstone"), record("v", 10), at(0)).await.unwrap().is_applied());
}

async fn a_refused_batch_leaves_nothing_to_sweep() {
    let url = migrated().await;
    let store = open_at(&url).await;
    put(&store, key("there"), record("v", 10)).await;
    let insert = |name: &str| Write::Insert { key: key(name), record: record("w", 10) };
    let batch = vec![insert("x"), Write::Delete { key: key("y") }, insert("there"), insert("z")];
    let commit = store.commit(Batch::new(batch).unwrap(), at(0)).await.unwrap();
    assert_eq!(commit, ebbtide::Commit::Refused { index: 2 });
    assert_eq!(rows(&url).await, 1);
}

async fn a_large_sweep_is_done_in_steps_and_counted_exactly() {
    let url = migrated().await;
    let store = open_at(&url).await;
    let fill = format!(
        "INSERT INTO {}.probes SELECT decode(md5(n::text), 'hex'), '', decode(md5(n::text), 'hex'), \
         n % 7, 0, n % 7 FROM generate_series(1, 7000) AS n",
        schema_of(&url)
    );
    sql(&server(), &fill).await;
    let budget = Budget { records: 2_500, ..Budget::default() };
    let first = store.sweep(at(6), &budget).await.unwrap();
    assert_eq!((first.total(), first.more), (2_500, true));
    assert_eq!(store.sweep_all(at(6), &budget).await.unwrap().total(), 3_500);
    assert_eq!(rows(&url).await, 1_000, "those that expire at the instant are kept");
    assert_eq!(store.stats(at(6)).await.unwrap()[&Kind::Probe].expired, 1_000);
}

async fn a_partition_full_of_expired_records_is_scanned_in_bounded_pages() {
    let url = migrated().await;
    let store = open_at(&url).await;
    let sorted = |n: u64| ebbtide::Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[n.into()]).unwrap();
    for chunk in 0..30u64 {
        let puts = (0..100).map(|n| Write::Put { key: sorted(chunk * 100 + n), record: record("v", 10) });
        assert!(store.commit(Batch::new(puts.collect()).unwrap(), at(0)).await.unwrap().is_applied());
    }
    let live = record("live", 1_000);
    put(&store, sorted(5_000), live.clone()).await;
    let prefix = ebbtide::Prefix::partition(Kind::Probe, &Scope::Global, &["p".into()], &[]).unwrap();
    let first = store.scan(&prefix, None, 1, at(10)).await.unwrap();
    assert!(first.items.is_empty() && first.next.is_some(), "an empty page that has a next");
    assert_eq!(store.scan_all(&prefix, at(10)).await.unwrap(), [(sorted(5_000), live)]);
}

async fn a_page_is_bounded_in_bytes() {
    let store = open().await;
    let large = "x".repeat(300_000);
    for n in 0..40u64 {
        let key = ebbtide::Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[n.into()]).unwrap();
        put(&store, key, record(&large, 10)).await;
    }
    let prefix = ebbtide::Prefix::kind_wide(Kind::Probe);
    let page = store.scan(&prefix, None, 1_000, at(0)).await.unwrap();
    assert_eq!(page.items.len(), 26, "eight million bytes");
    assert_eq!(store.scan_all(&prefix, at(0)).await.unwrap().len(), 40);
}
