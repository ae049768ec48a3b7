//! The engine's own deletion: by an attribute, an hour and more after the expiry, and invisible.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use ebbtide::Admin as _;
use ebbtide::{Backend, BackendExt, Batch, Clock, Kind, Record, SystemClock, SystemRng, Timestamp, Write};

use crate::site::{Site, at, key, record};

crate::trials! {
    every_item_carries_its_ttl
    the_engine_deletes_what_expired_more_than_an_hour_ago
    a_sweep_leaves_to_the_engine_what_is_the_engines
    the_engines_clock_is_near_ours
}

/// Every item of the store with that prefix, as the engine has it: expiry and TTL, by sort key.
async fn stored(site: &Site, url: &str) -> Vec<(u64, Option<u64>)> {
    let client = site.client();
    let table = url.trim_start_matches("dynamodb:").split('?').next().unwrap();
    let prefix = url.rsplit("prefix=").next().unwrap().replace("%20", " ");
    let mut items = Vec::new();
    let mut start = None;
    loop {
        let scan = client.scan().table_name(table).consistent_read(true);
        let page = scan.set_exclusive_start_key(start).send().await.unwrap();
        items.extend(page.items.unwrap_or_default());
        start = page.last_evaluated_key;
        if start.is_none() {
            break;
        }
    }
    let number = |value: &AttributeValue| value.as_n().unwrap().parse::<u64>().unwrap();
    let ours = items.iter().filter(|item| {
        item["pk"].as_b().unwrap().as_ref().windows(prefix.len()).any(|window| window == prefix.as_bytes())
    });
    let mut stored: Vec<_> = ours.map(|item| (number(&item["exp"]), item.get("ttl").map(number))).collect();
    stored.sort_unstable();
    stored
}

async fn every_item_carries_its_ttl(site: &Site) {
    let url = site.url().await;
    let store = crate::site::open(&url).await;
    let mut expected = Vec::new();
    // By one write and by a transaction, on the second, after it and before it, and without an end.
    for (index, expires) in [0, 1, 999, 1_000, 1_001, 86_400_000].into_iter().enumerate() {
        let record = record("v", expires);
        let millis = record.expires_at.as_millis();
        expected.push((millis, Some(millis.div_ceil(1_000) + 3_600)));
        let write = Write::Insert { key: key(&index.to_string()), record };
        let none = Write::Absent { key: key("none") };
        let writes = if index % 2 == 0 { vec![write] } else { vec![write, none] };
        assert!(store.commit(Batch::new(writes).unwrap(), at(0)).await.unwrap().is_applied());
    }
    let endless = Record::new("v", Timestamp::NEVER, &SystemRng);
    assert!(store.put(key("endless"), endless.clone(), at(0)).await.unwrap().is_applied());
    expected.push((i64::MAX.unsigned_abs(), None));
    assert_eq!(stored(site, &url).await, expected);

    // A record that gets an end gets a TTL, and one that loses its end loses it.
    let ending = record("v", 5_000);
    assert!(
        store.replace(key("endless"), endless.version, ending.clone(), at(0)).await.unwrap().is_applied()
    );
    let seconds = ending.expires_at.as_millis() / 1_000 + 3_600;
    assert!(stored(site, &url).await.contains(&(ending.expires_at.as_millis(), Some(seconds))));
    let endless = Record { expires_at: Timestamp::NEVER, ..record("v", 0) };
    assert!(store.replace(key("endless"), ending.version, endless, at(0)).await.unwrap().is_applied());
    assert_eq!(stored(site, &url).await.last(), Some(&(i64::MAX.unsigned_abs(), None)));
}

/// Waits for the engine to delete one item, which an emulator does once a minute. Not listed for an endpoint that takes
/// days or deletes nothing.
async fn the_engine_deletes_what_expired_more_than_an_hour_ago(site: &Site) {
    let store = site.open().await;
    let now = SystemClock.now().as_millis();
    let ago = |seconds: u64| Timestamp::from_millis(now - seconds * 1_000).unwrap();
    let ends = [("gone", ago(7_200)), ("buffered", ago(1_800)), ("endless", Timestamp::NEVER)];
    for (name, expires_at) in ends {
        let record = Record::new("v", expires_at, &SystemRng);
        assert!(store.put(key(name), record, ago(10_000)).await.unwrap().is_applied());
    }
    // At the first instant of all nothing has expired: what is not there then was deleted.
    let is_stored = async |name: &str| store.get(&key(name), Timestamp::ZERO).await.unwrap().is_some();
    let before = store.get(&key("gone"), SystemClock.now()).await.unwrap();
    for _ in 0..200 {
        if !is_stored("gone").await {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!is_stored("gone").await, "the engine has not deleted what expired");
    assert_eq!(
        store.get(&key("gone"), SystemClock.now()).await.unwrap(),
        before,
        "nobody sees the difference"
    );
    assert!(is_stored("buffered").await, "what expired within the hour is kept, for clocks that are behind");
    assert!(is_stored("endless").await);
}

async fn a_sweep_leaves_to_the_engine_what_is_the_engines(site: &Site) {
    let url = site.url().await;
    let budget = ebbtide::Budget { kinds: Kind::PROBES.to_vec(), ..Default::default() };
    for (sweep, removed) in [("ttl", 0), ("delete", 1)] {
        let store = crate::site::open(&format!("{url}&sweep={sweep}")).await;
        assert!(store.put(key("a"), record("v", 10), at(0)).await.unwrap().is_applied());
        let swept = store.sweep_all(at(11), &budget).await.unwrap();
        assert_eq!(swept.total(), removed, "{sweep}");
        assert_eq!(store.get(&key("a"), at(0)).await.unwrap().is_some(), removed == 0, "{sweep}");
    }
}

async fn the_engines_clock_is_near_ours(site: &Site) {
    let store = site.open().await;
    let engine = store.engine_clock().await.unwrap().expect("the engine says what time it is");
    let ours = SystemClock.now();
    let apart = engine.since(ours).max(ours.since(engine));
    assert!(apart < Duration::from_secs(30), "{apart:?} apart");
}
