//! Requests whose time is an interval: no answer permits wrongly for any true time in it.

use std::sync::Arc;
use std::time::Duration;

use super::Rig;
use ebbtide::model::error::{ErrorKind, Result};
use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::model::time::ManualClock;
use ebbtide::model::write::{Batch, Commit, Write};
use ebbtide::timekeeping::{EngineClock, ManualClocks, Now, TimeSource, Timed};
use ebbtide::{Budget, Timestamp};

/// Ends of the interval; records of these cases end before, in and after it.
const EARLIEST: u64 = 1_000;
const LATEST: u64 = 2_000;
const BEFORE: u64 = 900;
const WITHIN: u64 = 1_500;
const AFTER: u64 = 2_100;

/// The handle over the store, and the interval of a request: in doubt, or held.
struct Handle {
    rig: Rig,
    timed: Timed,
    now: Now,
}

impl Handle {
    fn new(rig: Rig, now: fn(Timestamp, Timestamp) -> Now) -> Self {
        let clock = ManualClock::at(rig.at(EARLIEST));
        let timed = Timed::new(Arc::clone(&rig.backend), Arc::new(TimeSource::of_clock(clock)));
        let now = now(rig.at(EARLIEST), rig.at(LATEST));
        Self { rig, timed, now }
    }

    async fn stored(&self, name: &str, expires: u64) -> Key {
        let key = self.rig.key(name);
        self.rig.stored(&key, "v", expires).await;
        key
    }

    async fn get(&self, key: &Key) -> Result<bool> {
        Ok(self.timed.get(key, self.now).await?.is_some())
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        self.timed.commit(Batch::try_from(write)?, self.now).await
    }

    async fn insert(&self, key: &Key, expires: u64) -> Result<Commit> {
        self.commit(Write::Insert { key: key.clone(), record: self.rig.record("new", expires) }).await
    }
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T>, what: &str) {
    assert_eq!(answer.expect_err(what).kind(), ErrorKind::Unavailable, "{what}");
}

pub(super) async fn in_doubt_only_what_both_ends_agree_on_is_answered(rig: Rig) {
    let handle = Handle::new(rig, Now::unconfirmed);
    let before = handle.stored("before", BEFORE).await;
    let within = handle.stored("within", WITHIN).await;
    let after = handle.stored("after", AFTER).await;
    assert!(!handle.get(&before).await.expect("it has ended"));
    assert!(handle.get(&after).await.expect("it is live"));
    assert_unavailable(handle.get(&within).await, "get");
    assert_unavailable(handle.timed.take(&within, handle.now).await, "take");
    assert_unavailable(handle.timed.get_many(&[after, within], handle.now).await, "get of many");
}

pub(super) async fn in_doubt_nothing_gets_a_new_end(rig: Rig) {
    let handle = Handle::new(rig, Now::unconfirmed);
    let key = handle.rig.key("new");
    assert_unavailable(handle.insert(&key, AFTER).await, "insert");
    let put = Write::Put { key: key.clone(), record: handle.rig.record("new", AFTER) };
    assert_unavailable(handle.commit(put).await, "put");
    assert_eq!(handle.rig.get(&key, 0).await, None);
}

pub(super) async fn in_doubt_evidence_still_blocks(rig: Rig) {
    let handle = Handle::new(rig, Now::unconfirmed);
    let seen = handle.stored("seen", AFTER).await;
    let absent = handle.commit(Write::Absent { key: seen }).await.expect("it is there at both ends");
    assert!(!absent.is_applied());
    let unknown = handle.stored("unknown", WITHIN).await;
    assert_unavailable(handle.commit(Write::Absent { key: unknown }).await, "it may have ended");
}

pub(super) async fn in_doubt_a_version_is_judged_by_its_own_end(rig: Rig) {
    let handle = Handle::new(rig, Now::unconfirmed);
    for (name, expires, answer) in
        [("before", BEFORE, Some(false)), ("within", WITHIN, None), ("after", AFTER, Some(true))]
    {
        let key = handle.rig.key(name);
        let expected = handle.rig.stored(&key, "v", expires).await.version;
        let check = handle.commit(Write::Check { key, expected }).await;
        assert_eq!(check.as_ref().ok().map(|commit| commit.is_applied()), answer, "{name}: {check:?}");
    }
}

pub(super) async fn in_a_hold_presence_is_judged_at_the_later_end(rig: Rig) {
    let handle = Handle::new(rig, Now::held);
    let within = handle.stored("within", WITHIN).await;
    let after = handle.stored("after", AFTER).await;
    assert!(!handle.get(&within).await.expect("it has ended"));
    assert!(handle.get(&after).await.expect("it is live"));
    assert!(handle.timed.take(&within, handle.now).await.expect("it has ended").is_none());
}

pub(super) async fn in_a_hold_absence_must_be_certain(rig: Rig) {
    let handle = Handle::new(rig, Now::held);
    let before = handle.stored("before", BEFORE).await;
    let within = handle.stored("within", WITHIN).await;
    assert_unavailable(handle.insert(&within, AFTER).await, "insert over what may be live");
    assert_unavailable(handle.commit(Write::Absent { key: within }).await, "absence of what may be live");
    assert!(handle.insert(&before, AFTER).await.expect("it ended before").is_applied());
    assert!(handle.insert(&handle.rig.key("new"), AFTER).await.expect("nothing was there").is_applied());
}

pub(super) async fn in_a_hold_a_take_is_still_won_once(rig: Rig) {
    let handle = Arc::new(Handle::new(rig, Now::held));
    let key = handle.stored("taken", AFTER).await;
    let taken = handle.rig.together(16, |_, _| {
        let (handle, key) = (Arc::clone(&handle), key.clone());
        async move { handle.timed.take(&key, handle.now).await }
    });
    let won = taken.await.into_iter().filter(|taken| matches!(taken, Ok(Some(_)))).count();
    assert_eq!(won, 1);
}

pub(super) async fn what_has_ended_is_never_written(rig: Rig) {
    for now in [Now::held, Now::unconfirmed] {
        let handle = Handle::new(rig.clone(), now);
        let key = handle.rig.key("late");
        let error = handle.insert(&key, BEFORE).await.expect_err("its window is past");
        assert_eq!(error.kind(), ErrorKind::Expired);
        assert_eq!(handle.rig.get(&key, 0).await, None);
    }
}

pub(super) async fn a_sweep_by_a_clock_in_doubt_removes_nothing(rig: Rig) {
    let key = rig.key("live");
    rig.stored(&key, "v", 60_000).await;
    let clocks = ManualClocks::at(rig.at(EARLIEST));
    let time = TimeSource::new(Arc::new(clocks.clone()), EngineClock::None, None);
    let timed = Timed::new(Arc::clone(&rig.backend), Arc::new(time));
    timed.now().expect("it is known");
    let budget = Budget::everything(Kind::PROBES);
    for step in [Duration::from_secs(3), Duration::from_secs(120), Duration::from_secs(23 * 3_600)] {
        clocks.step_wall(step);
        assert_unavailable(timed.sweep(&budget).await, "a clock ahead");
        clocks.step_wall_back(2 * step);
        assert_unavailable(timed.sweep(&budget).await, "a clock behind");
        clocks.step_wall(step);
    }
    assert!(rig.get(&key, EARLIEST).await.is_some());
    timed.sweep(&budget).await.expect("the clock is right again");
    assert!(rig.get(&key, EARLIEST).await.is_some());
}
