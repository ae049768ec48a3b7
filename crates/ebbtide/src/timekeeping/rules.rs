//! The rules of the time contract, each as a test.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::model::error::ErrorKind;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;

const START: u64 = 1_800_000_000_000;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const MINUTE: Duration = secs(60);
const HOUR: Duration = secs(3_600);
const DAY: Duration = secs(86_400);

fn start() -> Timestamp {
    Timestamp::from_millis(START).unwrap()
}

fn after(duration: Duration) -> Timestamp {
    start().checked_add(duration).unwrap()
}

struct Node {
    clocks: ManualClocks,
    time: TimeSource,
}

impl Node {
    fn new() -> Self {
        let clocks = ManualClocks::at(start());
        let time = TimeSource::new(Arc::new(clocks.clone()), EngineClock::None, None);
        time.now().unwrap();
        Self { clocks, time }
    }

    fn shared() -> Self {
        let clocks = ManualClocks::at(start());
        let time = TimeSource::new(Arc::new(clocks.clone()), EngineClock::Shared, None);
        let node = Self { clocks, time };
        assert_eq!(node.time.now().unwrap_err().kind(), ErrorKind::Unavailable, "not compared yet");
        assert!(node.engine(start()));
        node.time.now().unwrap();
        node
    }

    /// The same store opened by a new process.
    fn reopened(&self, engine: EngineClock) -> Self {
        let mark = self.time.mark().map(|mark| Mark::decode(&mark.encode()).unwrap());
        self.reopened_with(mark, engine)
    }

    fn reopened_with(&self, mark: Option<Mark>, engine: EngineClock) -> Self {
        let clocks = self.clocks.clone();
        Self { time: TimeSource::new(Arc::new(clocks.clone()), engine, mark), clocks }
    }

    fn rebooted(&self, off: Duration) -> Self {
        let mark = self.time.mark();
        self.clocks.reboot();
        self.clocks.step_wall(off);
        self.reopened_with(mark, EngineClock::None)
    }

    fn engine(&self, at: Timestamp) -> bool {
        self.time.hear_engine(self.time.ask_engine(), at, Duration::ZERO)
    }

    fn now(&self) -> Now {
        self.time.now().unwrap()
    }

    fn state(&self) -> ClockState {
        self.time.status().state
    }

    /// Lets time pass second by second, with a call in each.
    fn run(&self, duration: Duration) {
        for _ in 0..duration.as_secs() {
            self.clocks.advance(secs(1));
            let _ = self.time.now();
        }
    }
}

#[test]
fn normal_running_is_one_instant() {
    let node = Node::new();
    node.clocks.advance(secs(5));
    assert_eq!(node.now(), Now::exact(after(secs(5))));
    assert_eq!(node.state(), ClockState::Normal);
    assert_eq!(node.time.sweep_until().unwrap(), after(secs(5)));
}

#[test]
fn a_wall_that_is_set_back_stops_no_expiry_and_stops_sweeps() {
    let node = Node::new();
    node.clocks.step_wall_back(HOUR);
    node.clocks.advance(secs(6));
    assert_eq!(node.now(), Now::exact(after(secs(6))));
    assert_eq!(node.state(), ClockState::Behind);
    assert_eq!(node.time.sweep_until().unwrap_err().kind(), ErrorKind::Unavailable);
    let again = node.reopened(EngineClock::None);
    node.clocks.advance(secs(1));
    assert_eq!(again.now(), Now::exact(after(secs(7))), "also across a restart");
}

#[test]
fn a_wall_that_leaps_is_a_doubt_and_a_wide_one_closes_the_gate() {
    let node = Node::new();
    node.clocks.step_wall(secs(100));
    assert_eq!(node.now(), Now::unconfirmed(start(), after(secs(100))));
    assert!(node.time.sweep_until().is_err());
    assert!(node.now().end(Ttl::from_secs(1).unwrap()).is_err());
    node.clocks.step_wall(HOUR);
    let error = node.time.now().unwrap_err();
    assert!(error.message().contains("clock accept"), "{error}");
    assert_eq!(node.state(), ClockState::NotReady);
    node.clocks.step_wall_back(HOUR + secs(100));
    assert_eq!(node.now(), Now::exact(start()), "the difference is gone");
}

#[test]
fn two_seconds_are_no_doubt_and_are_slewed() {
    let node = Node::new();
    node.clocks.step_wall(secs(2));
    assert_eq!(node.now(), Now::exact(start()));
    node.run(secs(100));
    let own = node.now().latest();
    assert!(
        own <= after(Duration::from_millis(100_050)) && own > after(Duration::from_millis(100_045)),
        "{own}"
    );
    node.run(secs(4_000));
    assert!(node.now().latest() >= after(Duration::from_millis(4_101_900)));
}

#[test]
fn a_difference_that_stays_the_same_for_ten_seconds_is_adopted_with_a_hold() {
    let node = Node::new();
    node.clocks.step_wall(MINUTE * 10);
    assert!(node.time.now().is_err(), "wider than 5 minutes");
    node.run(secs(9));
    assert!(node.time.now().is_err());
    node.run(secs(1));
    assert_eq!(node.now(), Now::held(after(secs(10)), after(MINUTE * 10 + secs(10))));
    assert_eq!(node.time.sweep_until().unwrap(), after(secs(10)));
    let events = node.time.take_events();
    assert!(events.iter().any(|event| matches!(event, Event::Adopted { voucher: Voucher::Nobody, .. })));
    node.run(DAY);
    assert_eq!(node.now(), Now::exact(after(DAY + MINUTE * 10 + secs(10))));
}

#[test]
fn unvouched_adoptions_come_to_fifteen_minutes_a_day() {
    let node = Node::new();
    node.clocks.step_wall(MINUTE * 10);
    node.run(secs(11));
    assert!(node.now().is_confirmed());
    node.clocks.step_wall(MINUTE * 6);
    node.run(MINUTE);
    assert!(node.time.now().is_err(), "16 minutes are too many");
    let again = node.reopened(EngineClock::None);
    again.run(MINUTE);
    assert!(again.time.now().is_err(), "also for another process");
    again.run(DAY);
    assert!(again.now().is_confirmed(), "a day later");
}

#[test]
fn a_difference_that_moves_is_not_adopted() {
    let node = Node::new();
    node.clocks.step_wall(secs(60));
    for _ in 0..60 {
        node.run(secs(1));
        node.clocks.step_wall(secs(1));
    }
    assert!(!node.now().is_confirmed());
}

#[test]
fn the_kernel_vouches_for_31_days_with_a_hold_of_15_minutes() {
    let node = Node::new();
    node.clocks.set_synchronized(true);
    node.clocks.step_wall(DAY * 30);
    assert!(node.time.now().is_err(), "it was synchronized before the step");
    node.run(secs(2));
    assert!(node.time.now().is_err());
    node.clocks.set_synchronized(true);
    node.run(secs(1));
    assert_eq!(node.now(), Now::held(after(secs(3)), after(DAY * 30 + secs(3))));
    node.run(secs(15 * 60 - 2));
    assert!(!node.now().is_exact());
    node.run(secs(3));
    assert!(node.now().is_exact());

    node.clocks.step_wall(DAY * 32);
    node.clocks.set_synchronized(true);
    node.run(MINUTE);
    assert!(node.time.now().is_err(), "more than 31 days");
    let accepted = node.time.accept().unwrap();
    assert_eq!(accepted.fence, None);
    assert!(node.now().is_exact());
}

#[test]
fn a_restart_goes_on_by_the_boot_clock_and_keeps_the_hold() {
    let node = Node::new();
    node.clocks.step_wall(MINUTE);
    node.run(secs(11));
    let held = node.now();
    assert!(held.is_confirmed() && !held.is_exact());
    let again = node.reopened(EngineClock::None);
    assert_eq!(again.now(), held);
    node.clocks.advance(HOUR * 12);
    assert!(!again.now().is_exact());
    let third = again.reopened(EngineClock::None);
    node.clocks.advance(HOUR * 12);
    assert!(third.now().is_exact());
}

#[test]
fn after_a_reboot_the_wall_is_believed_and_earliest_runs_on() {
    let node = Node::new();
    let node = node.rebooted(HOUR * 60);
    assert_eq!(node.now(), Now::held(start(), after(HOUR * 60)), "a weekend: it serves at once");
    assert_eq!(node.state(), ClockState::Held);
    node.run(HOUR);
    assert_eq!(node.now(), Now::held(after(HOUR), after(HOUR * 61)));
    node.clocks.set_synchronized(true);
    node.run(MINUTE * 14);
    assert!(!node.now().is_exact());
    node.run(MINUTE * 2);
    assert!(node.now().is_exact(), "15 minutes after the kernel vouched");

    let node = node.rebooted(secs(5));
    node.now();
    node.run(secs(86_400 - 1));
    assert!(!node.now().is_exact());
    node.run(secs(2));
    assert!(node.now().is_exact(), "a day, unvouched");
}

#[test]
fn after_a_reboot_a_wall_behind_the_mark_waits_and_one_far_ahead_needs_an_operator() {
    let node = Node::new();
    node.clocks.step_wall_back(HOUR);
    let node = node.rebooted(Duration::ZERO);
    assert!(node.time.now().unwrap_err().message().contains("1 h 0 min behind"));
    assert_eq!(node.time.mark(), None, "nothing is written meanwhile");
    node.clocks.step_wall(HOUR);
    assert!(node.now().is_confirmed());

    let node = node.rebooted(DAY * 32);
    assert!(node.time.now().is_err());
    assert_eq!(node.time.accept().unwrap().fence, None);
    assert!(node.now().is_exact());
}

#[test]
fn a_wall_that_falls_behind_in_a_hold_stops_everything_and_accept_sets_a_fence() {
    let node = Node::new();
    let node = node.rebooted(HOUR * 5);
    node.run(secs(10));
    node.clocks.step_wall_back(HOUR * 5);
    assert!(node.time.now().unwrap_err().message().contains("fence"));
    node.run(DAY * 2);
    assert!(node.time.now().is_err(), "the hold does not end by itself");
    let accepted = node.time.accept().unwrap();
    assert_eq!(accepted.fence, Some(after(DAY * 2 + secs(10))));
    assert_eq!(node.now(), Now::exact(after(DAY * 2 + secs(10))));
}

#[test]
fn a_pause_with_a_synchronized_engine_is_over_at_the_next_comparison() {
    let node = Node::shared();
    node.clocks.step_wall(MINUTE * 10);
    assert!(node.time.now().is_err());
    assert!(node.time.wants_engine());
    assert!(node.engine(after(MINUTE * 10)));
    assert_eq!(node.now(), Now::exact(after(MINUTE * 10)));
    assert!(node.now().end(Ttl::from_secs(1).unwrap()).is_ok());
    assert!(!node.time.wants_engine());
}

#[test]
fn an_engine_that_disagrees_bounds_both_ends() {
    let node = Node::shared();
    node.clocks.step_wall(HOUR * 23);
    assert!(node.time.now().is_err());
    node.engine(start());
    assert_eq!(node.now(), Now::unconfirmed(start(), start()), "the wall is wrong, own time is not");
    assert!(node.time.sweep_until().is_err());
    node.clocks.step_wall_back(HOUR * 23);
    node.engine(after(secs(100)));
    assert_eq!(node.now(), Now::unconfirmed(start(), after(secs(100))));
    node.engine(after(Duration::ZERO));
    assert!(node.now().is_exact());
    node.run(secs(100));
    node.engine(after(secs(50)));
    assert_eq!(node.now(), Now::unconfirmed(after(secs(50)), after(secs(100))));
}

#[test]
fn a_shared_mark_is_neither_written_nor_believed_beyond_the_engines_clock() {
    let node = Node::shared();
    node.clocks.advance(secs(100));
    assert!(node.engine(after(secs(99))));
    assert_eq!(node.time.mark().unwrap().own(), after(secs(99)));
    node.clocks.advance(secs(31));
    assert_eq!(node.time.mark(), None, "not without a comparison");

    let ahead = Mark::from_timestamp(after(HOUR * 23));
    let other = node.reopened_with(Some(ahead), EngineClock::Shared);
    assert!(other.engine(after(secs(131))));
    assert_eq!(other.now(), Now::exact(after(secs(131))));
}

#[test]
fn a_node_with_a_wrong_wall_does_not_open_on_a_shared_engine() {
    let node = Node::shared();
    node.clocks.step_wall(HOUR * 23);
    let other = node.reopened_with(None, EngineClock::Shared);
    other.engine(start());
    assert!(other.time.now().unwrap_err().message().contains("ahead of the engine's clock"));
    assert!(other.time.sweep_until().is_err());
    assert_eq!(other.time.mark(), None);
    assert!(other.time.accept().is_err());
}

#[test]
fn a_sweep_of_a_shared_engine_keeps_ten_seconds_away() {
    let node = Node::shared();
    assert_eq!(node.time.sweep_until().unwrap().as_millis(), START - 10_000);
    node.clocks.advance(secs(31));
    assert!(node.time.sweep_until().is_err(), "the comparison is too old");
}

#[test]
fn a_doubt_voids_leases() {
    let node = Node::new();
    let lease = node.time.lease(secs(2));
    assert!(node.time.holds(&lease));
    node.clocks.advance(secs(1));
    assert!(node.time.holds(&lease));
    node.clocks.step_wall(secs(3));
    assert!(!node.time.holds(&lease));
    node.clocks.step_wall_back(secs(3));
    assert!(!node.time.holds(&lease), "the doubt is over, and so is the lease");
    let lease = node.time.lease(secs(2));
    node.clocks.advance(secs(2));
    assert!(!node.time.holds(&lease));
}

#[test]
fn a_commit_that_returns_after_the_end_that_it_wrote_is_unavailable() {
    let node = Node::new();
    assert!(node.time.check_written(after(secs(1))).is_ok());
    node.clocks.advance(secs(1));
    assert_eq!(node.time.check_written(after(secs(1))).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_synchronization_from_before_a_step_does_not_shorten_the_hold() {
    let node = Node::new();
    node.clocks.set_synchronized(true);
    node.clocks.step_wall(MINUTE * 10);
    node.run(secs(11));
    assert!(node.now().is_confirmed());
    node.run(MINUTE * 20);
    assert!(!node.now().is_exact());
    node.clocks.set_synchronized(true);
    node.run(MINUTE * 15 + secs(1));
    assert!(node.now().is_exact());
}

#[test]
fn a_wall_that_reaches_the_mark_by_waiting_needs_a_fence_and_one_that_is_set_does_not() {
    let fence = |node: &Node| {
        node.time.take_events().into_iter().find_map(|event| match event {
            Event::Opened { fence, .. } => Some(fence),
            _ => None,
        })
    };
    let waiting = || {
        let node = Node::new();
        node.clocks.step_wall_back(MINUTE);
        let node = node.rebooted(Duration::ZERO);
        node.run(secs(50));
        assert!(node.time.now().is_err());
        node
    };
    let node = waiting();
    node.run(secs(10));
    assert_eq!(fence(&node), Some(Some(start())));
    let node = waiting();
    node.clocks.step_wall(MINUTE);
    assert!(node.now().is_confirmed());
    assert_eq!(fence(&node), Some(None));
}
