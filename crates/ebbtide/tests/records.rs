//! Records on the engines of one process.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::engines::memory::Memory;
use ebbtide::stores::Stores;
use ebbtide::stores::records::{
    IncrementTextOutcome, PutOutcome, PutRecord, RecordAddress, RecordId, RecordValue, Records,
    TouchCondition, TouchOutcome, TouchRecord,
};
use ebbtide::stores::shared::life::Life;
use ebbtide::{Clock as _, ManualClock, Timestamp, Ttl};
use serde_json::json;

fn memory() -> (Records, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000).unwrap());
    let stores = Stores::builder(Arc::new(Memory::default())).clock(clock.clone()).build();
    (stores.records(&ebbtide::Scope::Global), clock)
}

fn seconds(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

#[tokio::test]
async fn a_text_that_is_a_number_is_counted_and_keeps_its_end() {
    let (records, clock) = memory();
    let id = RecordId::from("hits");
    let add = |by| records.increment_text(Records::REDIS, &id, by);
    assert_eq!(add(1).await.unwrap(), IncrementTextOutcome::Counted(1));
    let put = PutRecord::new(Records::REDIS, "hits", RecordValue::from_bytes("41")).life(seconds(10));
    assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: false, .. }));
    assert_eq!(add(1).await.unwrap(), IncrementTextOutcome::Counted(42));
    let found = records.get(&RecordAddress::id(Records::REDIS, "hits")).await.unwrap().found().unwrap();
    assert_eq!(found.expires_at.since(clock.now()), Duration::from_secs(10));
    assert_eq!(found.value.as_bytes().as_ref(), b"42");
    assert_eq!(add(i64::MAX).await.unwrap(), IncrementTextOutcome::Overflow);
    let put = PutRecord::new(Records::REDIS, "hits", RecordValue::from_bytes("07"));
    assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { .. }));
    assert_eq!(add(1).await.unwrap(), IncrementTextOutcome::NotANumber);
}

#[tokio::test]
async fn additions_of_many_callers_to_a_text_add_up() {
    let (records, _) = memory();
    let tasks = (0..64).map(|_| {
        let records = records.clone();
        tokio::spawn(async move { records.increment_text("redis", &RecordId::from("n"), 1).await.unwrap() })
    });
    let mut counts = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        let IncrementTextOutcome::Counted(count) = task.await.unwrap() else { panic!("it is a number") };
        counts.push(count);
    }
    counts.sort_unstable();
    assert_eq!(counts, (1..=64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_scan_gives_every_record_once() {
    let (records, _) = memory();
    for n in 0..100 {
        let put = PutRecord::new("redis", format!("key-{n}"), json!(n));
        assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: true, .. }));
        let put = PutRecord::new("other", format!("key-{n}"), json!(n));
        assert!(matches!(records.put(&put).await.unwrap(), PutOutcome::Stored { created: true, .. }));
    }
    let (mut ids, mut cursor) = (Vec::new(), 0);
    loop {
        let page = records.scan("redis", cursor, 7).await.unwrap();
        ids.extend(page.items.into_iter().map(|item| item.id.as_str().unwrap().to_owned()));
        cursor = page.next;
        if cursor == 0 {
            break;
        }
    }
    ids.sort_unstable();
    let mut all: Vec<_> = (0..100).map(|n| format!("key-{n}")).collect();
    all.sort_unstable();
    assert_eq!(ids, all);
}

#[tokio::test]
async fn a_touch_may_depend_on_the_present_end() {
    let (records, _) = memory();
    let address = RecordAddress::id("redis", "a");
    let touch = |life: Life, only: TouchCondition| {
        let touch = TouchRecord::new(address.clone(), life).only_if(only);
        let records = &records;
        async move { matches!(records.touch(&touch).await.unwrap(), TouchOutcome::Touched(_)) }
    };
    assert!(!touch(seconds(1).into(), TouchCondition::Endless).await, "there is none");
    let _ = records.put(&PutRecord::new("redis", "a", json!(1))).await.unwrap();
    assert!(!touch(seconds(10).into(), TouchCondition::Ends).await);
    assert!(!touch(seconds(10).into(), TouchCondition::Later).await, "no end is later than any");
    assert!(touch(seconds(10).into(), TouchCondition::Endless).await);
    assert!(!touch(seconds(10).into(), TouchCondition::Later).await);
    assert!(touch(seconds(11).into(), TouchCondition::Later).await);
    assert!(touch(seconds(5).into(), TouchCondition::Sooner).await);
    let persist = records.touch(&TouchRecord::new(address.clone(), Life::Never)).await.unwrap();
    assert!(matches!(persist, TouchOutcome::Touched(record) if record.expires_at.is_never()));
}
