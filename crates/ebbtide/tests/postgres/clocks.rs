//! Time: the node's alone decides, and one that is wrong is refused.

use std::time::Duration;

use ebbtide::ops::skew::{DEFAULT_BOUND, check_engine_clock};
use ebbtide::{BackendExt, Clock, ErrorKind, Kind, ManualClock, SystemClock, Timestamp, Write};

use crate::service::{at, cases, key, migrated, open, open_at, record, server, sql};

cases! {
    a_session_time_zone_changes_nothing
    a_clock_five_seconds_off_is_refused
    a_clock_that_is_right_is_accepted
    the_servers_clock_decides_nothing
    the_clock_mark_moves_forwards_with_commits_and_by_a_day_at_most
    an_operator_sets_the_clock_mark
}

async fn a_session_time_zone_changes_nothing() {
    let url = format!("{}&options=-c%20timezone%3DAmerica/New_York", migrated().await);
    let store = open_at(&url).await;
    // The night on which New York puts its clocks back, a minute at a time: 2026-11-01 05:00 to 07:00 UTC.
    let begin = 1_793_509_200_000;
    for minute in 0..120 {
        let now = begin + minute * 60_000;
        let (key, kept) = (key(&minute.to_string()), record("v", now + 60_000));
        assert!(store.insert(key.clone(), kept.clone(), at(now)).await.unwrap().is_applied());
        assert_eq!(store.get(&key, at(now + 59_999)).await.unwrap(), Some(kept));
        assert_eq!(store.get(&key, at(now + 60_000)).await.unwrap(), None);
    }
    let ours = SystemClock.now().as_millis();
    let theirs = store.engine_clock().await.unwrap().unwrap().as_millis();
    assert!(ours.abs_diff(theirs) < 60_000, "the engine's clock is in UTC whatever the session's zone");
}

async fn a_clock_five_seconds_off_is_refused() {
    let store = open().await;
    let now = SystemClock.now();
    let ahead = ManualClock::at(now.checked_add(Duration::from_secs(5)).unwrap());
    let behind = ManualClock::at(at(now.as_millis() - 5_000));
    for (clock, word) in [(ahead, "ahead"), (behind, "behind")] {
        let error = check_engine_clock(store.as_ref(), &clock, DEFAULT_BOUND).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains(word), "{error}");
    }
}

async fn a_clock_that_is_right_is_accepted() {
    let store = open().await;
    let difference = check_engine_clock(store.as_ref(), &SystemClock, DEFAULT_BOUND).await.unwrap();
    assert!(difference.unwrap().by < DEFAULT_BOUND);
}

async fn the_servers_clock_decides_nothing() {
    let store = open().await;
    // Decades before and after the server's own time, in both directions.
    for begin in [1_000, 4_102_444_800_000] {
        let key = key(&begin.to_string());
        assert!(store.insert(key.clone(), record("v", begin + 10), at(begin)).await.unwrap().is_applied());
        assert!(
            !store.insert(key.clone(), record("w", begin + 10), at(begin + 9)).await.unwrap().is_applied()
        );
        assert!(store.get(&key, at(begin + 9)).await.unwrap().is_some());
        assert!(
            store.insert(key.clone(), record("w", begin + 99), at(begin + 10)).await.unwrap().is_applied()
        );
        let batch = vec![Write::Absent { key: key.clone() }, Write::Delete { key: crate::service::key("x") }];
        let refused = store.commit(ebbtide::Batch::new(batch).unwrap(), at(begin + 98)).await.unwrap();
        assert!(!refused.is_applied());
    }
}

/// A key of a kind that moves the mark.
fn moving(name: &str) -> ebbtide::Key {
    ebbtide::Key::new(Kind::Session, &ebbtide::Scope::Global, &[name.into()], &[]).unwrap()
}

async fn the_clock_mark_moves_forwards_with_commits_and_by_a_day_at_most() {
    const DAY: u64 = 86_400_000;
    let store = open().await;
    assert_eq!(store.clock_mark().await.unwrap(), None);
    let begin = 1_800_000_000_000;
    let mut expected = None;
    for (now, mark) in [
        (begin, begin),
        (begin + DAY, begin + DAY),
        (begin, begin + DAY),
        // A leap from every other mark here, so that it is one whenever the engine comes to it.
        (begin + 9 * DAY, begin + DAY),
        (begin + 2 * DAY - 60_000, begin + 2 * DAY - 60_000),
    ] {
        let _ = store.delete(moving("a"), at(now)).await.unwrap();
        // It is moved beside the work: this waits for that. Only a failure takes a minute.
        for _ in 0..12_000 {
            expected = store.clock_mark().await.unwrap();
            if expected == Some(at(mark)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(expected, Some(at(mark)), "after a commit at {now}");
    }
    let _ = store.delete(key("probe"), Timestamp::MAX).await.unwrap();
    assert_eq!(store.clock_mark().await.unwrap(), expected, "the kit's records do not move it");
}

async fn an_operator_sets_the_clock_mark() {
    let url = migrated().await;
    let store = open_at(&url).await;
    for mark in [Timestamp::MAX, at(5)] {
        store.set_clock_mark(mark).await.unwrap();
        assert_eq!(open_at(&url).await.clock_mark().await.unwrap(), Some(mark));
    }
    // A value that no engine of ours writes is not taken for a time.
    let schema = crate::service::schema_of(&url);
    sql(&server(), &format!("UPDATE {schema}.meta SET value = -5 WHERE name = 'clock_mark'")).await;
    assert_eq!(store.clock_mark().await.unwrap_err().kind(), ErrorKind::Corrupt);
}
