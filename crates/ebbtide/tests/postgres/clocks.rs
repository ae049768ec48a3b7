//! Time: the node's alone decides, and one that is wrong is refused.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::timekeeping::{ClockState, Clocks as _, ManualClocks, SystemClocks, Timed};
use ebbtide::{BackendExt, Budget, Clock, ErrorKind, Kind, SystemClock, Timestamp, Write};

use crate::service::{at, cases, key, migrated, open, open_at, record, server, sql};

cases! {
    a_session_time_zone_changes_nothing
    a_clock_five_seconds_off_is_not_ready
    a_clock_that_is_right_serves
    a_leap_of_a_running_node_issues_and_sweeps_nothing
    the_servers_clock_decides_nothing
    the_mark_is_never_beyond_the_clock_of_the_engine
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

/// Clocks that show the time of this machine, moved by so many seconds, and stand still.
fn clocks(moved: i64) -> ManualClocks {
    let now = i64::try_from(SystemClocks::new().wall().as_millis()).unwrap();
    ManualClocks::at(at(u64::try_from(now + moved * 1_000).unwrap()))
}

/// A store with such clocks. They are read when the store has been made, which takes time on a loaded machine.
async fn timed(moved: i64) -> (Timed, ManualClocks) {
    let store = open().await;
    let clocks = clocks(moved);
    (Timed::open(store, Arc::new(clocks.clone())).await.unwrap(), clocks)
}

async fn a_clock_five_seconds_off_is_not_ready() {
    for (moved, word) in [(5, "ahead"), (-5, "behind")] {
        let (timed, _) = timed(moved).await;
        let error = timed.now().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains(word), "{error}");
        assert!(timed.sweep(&Budget::default()).await.is_err());
        assert!(!timed.write_mark().await.unwrap(), "a wrong clock leaves no mark");
    }
}

async fn a_clock_that_is_right_serves() {
    let (timed, _) = timed(0).await;
    assert!(timed.now().unwrap().is_exact());
    assert_eq!(timed.time().status().state, ClockState::Normal);
}

async fn a_leap_of_a_running_node_issues_and_sweeps_nothing() {
    let (timed, clocks) = timed(0).await;
    assert!(timed.now().unwrap().is_exact());
    for leap in [Duration::from_secs(60), Duration::from_secs(23 * 3_600)] {
        clocks.step_wall(leap);
        assert!(!timed.now().is_ok_and(ebbtide::timekeeping::Now::is_confirmed), "at once, without a timer");
        assert!(timed.sweep(&Budget::default()).await.is_err());
        clocks.step_wall_back(leap);
        timed.ask_engine().await.unwrap();
        assert!(timed.now().unwrap().is_confirmed(), "it recovers by itself");
    }
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

async fn the_mark_is_never_beyond_the_clock_of_the_engine() {
    let url = migrated().await;
    let opened = open_at(&url).await;
    // Within the two seconds that are no doubt, the node is ahead of the engine.
    let ahead = clocks(1);
    let timed = Timed::open(opened, Arc::new(ahead.clone())).await.unwrap();
    timed.ask_engine().await.unwrap();
    assert!(timed.write_mark().await.unwrap());
    let store = open_at(&url).await;
    let engine = store.engine_clock().await.unwrap().unwrap();
    let key = ebbtide::Key::new(Kind::System, &ebbtide::Scope::Global, &["clock".into()], &[]).unwrap();
    let record = store.get(&key, Timestamp::ZERO).await.unwrap().unwrap();
    let mark = ebbtide::timekeeping::Mark::decode(&record.value).unwrap();
    assert!(mark.own() <= engine, "{} is past {engine}", mark.own());
    let _ = store.delete(key, Timestamp::MAX).await.unwrap();
    assert_eq!(store.clock_mark().await.unwrap(), None, "no commit moves a mark of the engine");
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
