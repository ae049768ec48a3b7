//! Many nodes and many callers on one table: contention, time bounds, and sweeps by a clock that is ahead.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::codes::CodeRequest;
use ebbtide::stores::grants::GrantRequest;
use ebbtide::timekeeping::{ManualClocks, Timed};
use ebbtide::{
    Admin, Backend as _, BackendExt as _, Budget, Clock as _, Ebbtide, ErrorKind, Key, Keyring, Kind,
    ManualClock, Record, Scope, Stopwatch, Stores, SystemClock, SystemRng,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::site::{Site, at, key, open, record};

crate::trials! {
    issuing_for_one_client_conflicts_on_no_item
    of_a_thousand_issues_for_one_client_no_two_touch_one_item
    several_gets_are_one_request
    a_batch_that_is_dealt_with_in_part_is_asked_for_again
    an_endpoint_that_hangs_is_unavailable_within_the_time_of_a_login
    an_endpoint_that_refuses_connections_has_done_nothing
    an_index_record_stays_while_its_record_may_be_live_by_another_clock
    a_sweep_by_a_clock_that_is_hours_ahead_removes_nothing
    nodes_that_are_idle_or_open_scan_nothing
    rows_of_an_earlier_version_are_accepted_after_an_operator_has_looked
}

async fn issuing_for_one_client_conflicts_on_no_item(site: &Site) {
    const ISSUERS: usize = 64;
    let (proxy, store, _) = site.proxied().await;
    proxy.limit();
    let stores = Stores::for_tests(Arc::new(store));
    let stopwatch = Stopwatch::start();
    let mut issuers = JoinSet::new();
    for issuer in 0..ISSUERS {
        let codes = stores.codes(&Scope::Global);
        issuers.spawn(async move {
            for number in 0..4 {
                let subject = format!("subject {issuer} {number}");
                let request = CodeRequest::new("one client", subject, "https://app.example/cb");
                codes.issue(request).await.unwrap();
            }
        });
    }
    issuers.join_all().await;
    let (conflicts, throttled, _) = proxy.limited();
    println!("{} codes of one client in {:?}", ISSUERS * 4, stopwatch.elapsed());
    assert_eq!((conflicts, throttled), (0, 0));
}

async fn of_a_thousand_issues_for_one_client_no_two_touch_one_item(site: &Site) {
    const ISSUERS: usize = 64;
    const EACH: usize = 8;
    let (proxy, store, _) = site.proxied().await;
    proxy.limit_alone();
    // A clock that stands: no lease ends while the machine is busy.
    let clock = ManualClock::at(SystemClock.now());
    let stores = Stores::builder_for_tests(Arc::new(store)).clock(clock).build();
    let stopwatch = Stopwatch::start();
    let mut issuers = JoinSet::new();
    for issuer in 0..ISSUERS {
        let (codes, grants) = (stores.codes(&Scope::Global), stores.grants(&Scope::Global));
        issuers.spawn(async move {
            for number in 0..EACH {
                let subject = |of: &str| format!("{of} {issuer} {number}");
                let request = CodeRequest::new("one client", subject("code"), "https://app.example/cb");
                codes.issue(request).await.unwrap();
                grants.issue(GrantRequest::new(subject("grant"), "one client")).await.unwrap();
            }
        });
    }
    issuers.join_all().await;
    let took = stopwatch.elapsed();
    println!("{} codes and grants of one client in {took:?}", 2 * ISSUERS * EACH);
    // 1,024 of them: a thousand a second, on a machine that does nothing else.
    assert!(
        std::env::var_os("EBBTIDE_TEST_QUIET").is_none() || took < Duration::from_millis(1_024),
        "{took:?}"
    );
    let (conflicts, throttled, _) = proxy.limited();
    assert_eq!((conflicts, throttled, proxy.most_touched()), (0, 0, 1));
}

async fn several_gets_are_one_request(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    for name in ["a", "b"] {
        assert!(past.insert(key(name), record(name, 100), at(0)).await.unwrap().is_applied());
    }
    assert!(past.insert(key("over"), record("over", 1), at(0)).await.unwrap().is_applied());
    let keys = [key("b"), key("missing"), key("a"), key("over"), key("b")];
    let found = store.get_many(&keys, at(1)).await.unwrap();
    let values: Vec<_> = found.into_iter().map(|record| record.map(|record| record.value)).collect();
    let [a, b] = ["a", "b"].map(|value| Some(value.into()));
    assert_eq!(values, [b.clone(), None, a, None, b]);
    assert_eq!((proxy.requests("BatchGetItem"), proxy.take_total()), (1, 1));
}

async fn a_batch_that_is_dealt_with_in_part_is_asked_for_again(site: &Site) {
    let (proxy, store, past) = site.proxied().await;
    proxy.limit();
    let keys: Vec<_> = (0..120).map(|number| key(&number.to_string())).collect();
    for some in keys.chunks(60) {
        let put = |key: &Key| ebbtide::Write::Put { key: key.clone(), record: record("v", 100) };
        let batch = ebbtide::Batch::new(some.iter().map(put).collect()).unwrap();
        assert!(past.commit(batch, at(0)).await.unwrap().is_applied());
    }
    let found = store.get_many(&keys, at(0)).await.unwrap();
    assert!(found.iter().all(Option::is_some));
    assert!(proxy.limited().2 > 0, "a part was left");
}

async fn an_endpoint_that_hangs_is_unavailable_within_the_time_of_a_login(_: &Site) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            kept.push(client);
        }
    });
    let store = open(&format!("dynamodb:hanging?endpoint={endpoint}")).await;
    let stopwatch = Stopwatch::start();
    let error = store.insert(key("a"), record("v", 100), at(0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(stopwatch.elapsed() < Duration::from_secs(6), "{:?}", stopwatch.elapsed());
}

async fn an_endpoint_that_refuses_connections_has_done_nothing(_: &Site) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let store = open(&format!("dynamodb:refusing?endpoint={endpoint}")).await;
    let batch = |name: &str| ebbtide::Write::Insert { key: key(name), record: record("v", 100) };
    let batch = ebbtide::Batch::new(vec![batch("a"), batch("b")]).unwrap();
    for error in [
        store.insert(key("a"), record("v", 100), at(0)).await.unwrap_err(),
        store.commit(batch, at(0)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.to_string().contains("may have happened"), "{error}");
    }
}

fn index(name: &str) -> Key {
    Key::new(Kind::ProbeIndex, &Scope::Global, &[name.into()], &[]).unwrap()
}

async fn an_index_record_stays_while_its_record_may_be_live_by_another_clock(site: &Site) {
    const DAY: u64 = 86_400_000;
    let target =
        |index: &Key, _: &Record| Key::new(Kind::Probe, &Scope::Global, &index.partition(), &[]).ok();
    let store = site.open().await.reconciling(Kind::ProbeIndex, target);
    for name in ["one", "none"] {
        assert!(store.insert(index(name), record("v", 90 * DAY), at(0)).await.unwrap().is_applied());
    }
    assert!(store.insert(key("one"), record("v", DAY), at(0)).await.unwrap().is_applied());
    let budget = Budget { kinds: Kind::PROBES.to_vec(), ..Budget::default() };
    // 23 hours after the end of the record, by a clock that may be ahead.
    let swept = store.sweep_all(at(DAY + 23 * 3_600_000), &budget).await.unwrap();
    assert_eq!(swept.total(), 1, "the one whose record is absent");
    assert!(store.get(&index("one"), at(0)).await.unwrap().is_some());
    assert!(store.get(&index("none"), at(0)).await.unwrap().is_none());
}

/// The issue of a `FAKETIME=+23h ebbtide sweep`: it removed live grants, and a seen proof was fresh.
async fn a_sweep_by_a_clock_that_is_hours_ahead_removes_nothing(site: &Site) {
    let url = format!("{}&sweep=delete", site.url().await);
    let now = SystemClock.now();
    let store = Arc::new(open(&url).await);
    let hour = Duration::from_secs(3_600);
    let seen = Record::new("seen", now.checked_add(hour).unwrap(), &SystemRng);
    assert!(store.insert(key("proof"), seen, now).await.unwrap().is_applied());
    let ahead = ManualClocks::at(now.checked_add(23 * hour).unwrap());
    let timed = Timed::open(Arc::clone(&store) as Arc<dyn Admin>, Arc::new(ahead)).await.unwrap();
    let error = timed.sweep(&Budget::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!timed.write_mark().await.unwrap(), "a wrong clock leaves no mark");
    assert!(store.get(&key("proof"), now).await.unwrap().is_some());
}

async fn nodes_that_are_idle_or_open_scan_nothing(site: &Site) {
    let (proxy, _, _) = site.proxied().await;
    let url = site.url_through(&proxy).await;
    let keyring = Keyring::generate(&SystemRng, SystemClock.now());
    // The first opening of all notes the keyring.
    drop(Ebbtide::builder(&url).keyring(keyring.clone()).open().await.unwrap());
    let first = proxy.counts();
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Ebbtide::builder(&url).keyring(keyring.clone()).open().await.unwrap());
    }
    let opening = proxy.counts();
    // Twenty rounds are a minute of a server.
    for _ in 0..20 {
        for (number, node) in nodes.iter().enumerate() {
            node.report_keyring(&[u8::try_from(number).unwrap(); 8]).await.unwrap();
            node.stores().policies(&Scope::Global).reload().await.unwrap();
            node.stores().checkpoint_audit().await.unwrap();
        }
    }
    let idle = proxy.counts();
    println!("a new store: {first:?}; opening two nodes: {opening:?}; a minute of them: {idle:?}");
    for counts in [first, opening, idle] {
        assert!(!counts.contains_key("Scan") && counts.contains_key("GetItem"), "{counts:?}");
    }
}

/// A table of version 0.1 has no note of a keyring, and its records have no tags.
async fn rows_of_an_earlier_version_are_accepted_after_an_operator_has_looked(site: &Site) {
    for looks in [true, false] {
        let (proxy, _, _) = site.proxied().await;
        let url = site.url_through(&proxy).await;
        let before = Ebbtide::builder(&url).without_keyring().open().await.unwrap().at(&Scope::Global);
        // Without the keyring nothing is authenticated, sealed or audited, as in that version.
        let bucket = before.attributes().bucket("alice", "door").unwrap();
        bucket.set("open", serde_json::json!(true)).await.unwrap();
        let keyring = Keyring::generate(&SystemRng, SystemClock.now());
        let node = || Ebbtide::builder(&url).keyring(keyring.clone());
        if looks {
            drop(node().looking_for_untagged().open().await.unwrap());
            assert!(proxy.counts().contains_key("Scan"));
        }
        let server = node().open().await.unwrap();
        assert!(!proxy.counts().contains_key("Scan"), "a server does not look");
        let bucket = server.at(&Scope::Global).attributes().bucket("alice", "door").unwrap();
        let read = bucket.get("open").await;
        assert_eq!(
            read.map(|found| found.is_some()).map_err(|error| error.kind()),
            if looks { Ok(true) } else { Err(ErrorKind::Corrupt) }
        );
    }
}
