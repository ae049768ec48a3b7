//! Retirement: older copies never come back, at whatever step a crash comes.

use super::*;
use crate::backend::Budget;

/// The newer state of a key that has an older, longer copy in the cold store.
#[derive(Clone, Copy, Debug)]
enum Newer {
    Short,
    ShortThenLonger,
    Deleted,
    Taken,
    Replaced,
    Swept,
}

const ALL: [Newer; 6] =
    [Newer::Short, Newer::ShortThenLonger, Newer::Deleted, Newer::Taken, Newer::Replaced, Newer::Swept];

/// Writes a long-lived record, retires it, and makes it newer. Windows of other widths hold other records.
fn prepared(newer: Newer, fault: Option<PlantedFault>) -> (Rig, Option<String>) {
    let rig = Rig::new(7, fault);
    rig.put(1, "old", 30 * DAY, 0);
    rig.put(2, "beside", DAY / 2, 0);
    rig.put(3, "far", 3_000 * DAY, 0);
    rig.retire(1);
    assert_eq!(rig.get(1, 2).as_deref(), Some("old"));
    let expected = match newer {
        Newer::Short | Newer::Swept => {
            rig.put(1, "short", SECOND, 3);
            None
        }
        Newer::ShortThenLonger => {
            rig.put(1, "short", SECOND, 3);
            rig.put(1, "longer", 90 * DAY, 4);
            Some("longer".to_owned())
        }
        Newer::Deleted => {
            assert!(rig.commit(Write::Delete { key: key(1) }, 3));
            None
        }
        Newer::Taken => {
            assert!(rig.drive(rig.store.take(&key(1), at(3))).unwrap().is_some());
            None
        }
        Newer::Replaced => {
            let old = rig.drive(rig.store.get(&key(1), at(3))).unwrap().unwrap();
            let record = rig.record("replaced", DAY / 3);
            assert!(rig.commit(Write::Replace { key: key(1), expected: old.version, record }, 3));
            Some("replaced".to_owned())
        }
    };
    if matches!(newer, Newer::Swept) {
        let swept = rig.store.core.sweep(at(2 * SECOND), &Budget::everything(&[Kind::Probe])).unwrap();
        assert_eq!(swept.total(), 1);
    }
    (rig, expected)
}

fn check(rig: &Rig, expected: Option<&String>, when: &str) {
    let now = 3 * SECOND;
    assert_eq!(rig.get(1, now).as_ref(), expected, "{when}");
    assert_eq!(rig.get(2, now).as_deref(), Some("beside"), "{when}");
    assert_eq!(rig.get(3, now).as_deref(), Some("far"), "{when}");
    let mut listed = rig.list(now);
    listed.sort();
    let mut all: Vec<String> =
        expected.into_iter().cloned().chain(["beside".to_owned(), "far".to_owned()]).collect();
    all.sort();
    assert_eq!(listed, all, "{when}");
}

#[test]
fn an_older_copy_does_not_come_back_when_the_newer_one_retires() {
    for newer in ALL {
        let (mut rig, expected) = prepared(newer, None);
        check(&rig, expected.as_ref(), "before");
        rig.retire(3 * SECOND);
        check(&rig, expected.as_ref(), &format!("{newer:?}, retired"));
        rig.crash().unwrap();
        check(&rig, expected.as_ref(), &format!("{newer:?}, reopened"));
    }
}

#[test]
fn a_crash_at_any_call_of_a_retirement_changes_no_answer() {
    for newer in ALL {
        for call in 0..40 {
            for repeated in [false, true] {
                let (mut rig, expected) = prepared(newer, None);
                rig.disk.stop_at(rig.disk.calls() + call);
                let stopped = rig.try_retire(3 * SECOND).is_err();
                rig.disk.behave();
                rig.crash().unwrap_or_else(|error| panic!("{newer:?}, call {call}: {error}"));
                let when = format!("{newer:?}, crash at call {call}, repeated {repeated}");
                check(&rig, expected.as_ref(), &when);
                if repeated {
                    // The first attempt's records in the cold store are masked when the record changes after all.
                    rig.put(1, "again", 4 * SECOND, 3 * SECOND);
                    rig.retire(5 * SECOND);
                    rig.crash().unwrap();
                    assert_eq!(rig.get(1, 5 * SECOND), None, "{when}");
                }
                rig.retire(6 * SECOND);
                check_late(&rig, if repeated { None } else { expected.as_ref() }, &when);
                if !stopped && call > 30 {
                    break;
                }
            }
        }
    }
}

fn check_late(rig: &Rig, expected: Option<&String>, when: &str) {
    assert_eq!(rig.get(1, 6 * SECOND).as_ref(), expected, "{when}, later");
    assert_eq!(rig.get(2, 6 * SECOND).as_deref(), Some("beside"), "{when}, later");
}

#[test]
fn a_failing_call_of_a_retirement_changes_no_answer() {
    use crate::engines::log::disk::sim::DiskFault;
    for newer in ALL {
        for call in 0..30 {
            for fault in [DiskFault::Io, DiskFault::NoSpace] {
                let (mut rig, expected) = prepared(newer, None);
                rig.disk.plan(rig.disk.calls() + call, fault, false);
                let _ = rig.try_retire(3 * SECOND);
                rig.disk.behave();
                let when = format!("{newer:?}, {fault:?} at call {call}");
                if rig.store.core.log.is_poisoned() {
                    rig.crash().unwrap_or_else(|error| panic!("{when}: {error}"));
                }
                check(&rig, expected.as_ref(), &when);
                rig.retire(3 * SECOND);
                check(&rig, expected.as_ref(), &when);
                rig.crash().unwrap_or_else(|error| panic!("{when}: {error}"));
                check(&rig, expected.as_ref(), &when);
            }
        }
    }
}

#[test]
fn a_crashed_retirement_leaves_copies_that_a_later_delete_masks() {
    for call in 0..30 {
        let mut rig = Rig::new(call, None);
        rig.put(1, "old", 30 * DAY, 0);
        rig.disk.stop_at(rig.disk.calls() + call);
        let _ = rig.try_retire(1);
        rig.disk.behave();
        rig.crash().unwrap();
        assert!(rig.commit(Write::Delete { key: key(1) }, 2));
        rig.retire(3);
        assert_eq!(rig.get(1, 4), None, "call {call}");
        rig.crash().unwrap();
        assert_eq!(rig.get(1, 4), None, "call {call}");
        assert!(rig.list(4).is_empty());
    }
}

/// A newer version in a group that is still open when the older one retires, and whose sync then fails.
pub(super) fn newer_version_fails(fault: Option<PlantedFault>) -> Option<String> {
    let mut rig = Rig::new(5, fault);
    rig.put(1, "old", 30 * DAY, 0);
    let log = Arc::clone(&rig.store.core.log);
    log.prepare_next().unwrap();
    assert!(log.roll());
    rig.put(2, "beside", DAY, 1);
    let record = rig.record("new", DAY);
    let mut newer = Box::pin(rig.store.write(Write::Put { key: key(1), record }, at(2)));
    assert!(poll(&mut newer).is_pending());
    assert!(rig.store.step_pools(), "it has read the older version");
    assert!(poll(&mut newer).is_pending());
    // Retirement runs as far as it can before the group is written.
    let mut retiring = Box::pin(rig.store.retire_oldest(at(3)));
    let retired = poll(&mut retiring);
    assert_eq!(retired.is_ready(), fault == Some(PlantedFault::CheckpointDoesNotWait));
    rig.disk.plan(rig.disk.calls() + 1, crate::engines::log::disk::sim::DiskFault::Io, false);
    assert!(log.write_next().is_err());
    assert!(matches!(poll(&mut newer), Poll::Ready(Err(_))), "nobody was told that it is there");
    if retired.is_pending() {
        assert!(matches!(poll(&mut retiring), Poll::Ready(Err(_))));
    }
    drop((newer, retiring));
    rig.disk.behave();
    // The page of the newer version is on the disk in some crashes: look at one where it is not.
    for seed in 0.. {
        let disk = rig.disk.fork();
        disk.reseed(seed);
        disk.crash();
        let store = open(&disk, &options(seed, None)).unwrap();
        let rig = Rig { disk, fault: None, seed, mask: u64::MAX, store };
        let found = rig.get(1, 4);
        if found.as_deref() != Some("new") {
            return found;
        }
    }
    rig.crash().unwrap();
    None
}

#[test]
fn an_older_version_is_kept_until_the_newer_one_is_durable() {
    assert_eq!(newer_version_fails(None).as_deref(), Some("old"));
}

#[test]
fn windows_that_have_passed_are_dropped_and_a_sweep_counts_what_it_removes() {
    let rig = Rig::new(1, None);
    for number in 0..20 {
        rig.put(number, "v", if number < 8 { 10 * SECOND } else { DAY + number }, 0);
    }
    rig.retire(1);
    rig.put(0, "newer", 5 * DAY, 2);
    let budget = Budget { records: 3, ..Budget::everything(&[Kind::Probe]) };
    let sweep = |until: u64, budget: &Budget| rig.store.core.sweep(at(until), budget).unwrap();
    let first = sweep(11 * SECOND, &budget);
    assert_eq!((first.total(), first.more), (3, true));
    assert_eq!(
        sweep(11 * SECOND, &Budget::everything(&[Kind::Probe])).total(),
        4,
        "one was newer in the log"
    );
    assert_eq!(sweep(11 * SECOND, &Budget::everything(&[Kind::Probe])).total(), 0);
    let stats = rig.store.core.count_stats(at(11 * SECOND)).unwrap();
    assert_eq!((stats[&Kind::Probe].live, stats[&Kind::Probe].expired), (13, 0));
    assert_eq!(sweep(40 * DAY, &Budget::everything(&[Kind::Probe])).total(), 13);
    assert!(rig.store.core.cold.windows(Kind::Probe).is_empty());
    assert!(rig.list(0).is_empty());
}

#[test]
fn damage_that_a_retirement_meets_closes_the_store_and_is_named_by_the_next_opening() {
    use crate::engines::log::{frame, group, segment::Segment};

    let rig = Rig::new(1, None);
    rig.put(1, "one", DAY, 0);
    rig.leave_segment(1).unwrap();
    // A byte of the key in the first frame of the first group.
    rig.disk.damage(&Segment::name(1), |bytes| bytes[group::HEADER + frame::HEAD + 4] ^= 1);
    let error = rig.drive(rig.store.retire_oldest(at(2))).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
    assert!(rig.store.info().has_failed);
    let again = open(&rig.disk.fork(), &options(1, None)).err().expect("the store is damaged");
    assert!(again.message().contains(&Segment::name(1)), "{again}");
}

#[test]
fn a_store_that_is_being_closed_breaks_off_sweeps_and_retirements() {
    let mut rig = Rig::new(1, None);
    for number in 0..20 {
        rig.put(number, "v", 10 * SECOND, 0);
    }
    rig.retire(1);
    rig.put(30, "late", 300 * DAY, 2);
    rig.leave_segment(2).unwrap();
    grow_old(&mut rig);
    let is_closing = |rig: &Rig, value| {
        rig.store.core.is_closing.store(value, Ordering::Relaxed);
    };
    let sweep = |rig: &Rig| rig.store.core.sweep(at(DAY), &Budget::everything(&[Kind::Probe])).unwrap();
    is_closing(&rig, true);
    let swept = sweep(&rig);
    assert_eq!((swept.total(), swept.more), (0, true));
    rig.drive(rig.store.core.maintain()).unwrap();
    assert_eq!(rig.store.core.cold.len(), 20, "nothing was dropped, and nothing retired");
    is_closing(&rig, false);
    assert_eq!(sweep(&rig).total(), 20);
    rig.drive(rig.store.core.maintain()).unwrap();
    assert_eq!(rig.store.core.cold.len(), 1);
}

/// Looks after the store a few times, and does the work of its threads: a segment is prepared, and a seal written.
fn maintain(rig: &Rig) {
    for _ in 0..4 {
        rig.drive(rig.store.core.maintain()).unwrap();
        rig.step();
        rig.store.core.log.seal().unwrap();
    }
}

/// Every segment is old enough from here on.
fn grow_old(rig: &mut Rig) {
    Arc::get_mut(&mut rig.store.core).expect("nobody else has it").options.horizon = Duration::ZERO;
}

#[test]
fn a_store_that_nobody_writes_to_retires_by_the_horizon_and_then_rests() {
    let mut rig = Rig::new(2, None);
    rig.put(1, "one", 30 * DAY, 0);
    maintain(&rig);
    assert_eq!(rig.store.core.cold.len(), 0, "it is not old enough");
    grow_old(&mut rig);
    maintain(&rig);
    assert_eq!((rig.store.core.cold.len(), rig.get(1, 1).as_deref()), (1, Some("one")));
    let state = |rig: &Rig| {
        let segments = rig.store.core.log.segments_up_to(u32::MAX);
        (segments.iter().map(|segment| segment.id).collect::<Vec<_>>(), rig.store.core.log.acknowledged())
    };
    let rests = state(&rig);
    maintain(&rig);
    assert_eq!(state(&rig), rests, "a segment without frames stays");
    // A restart closes the segment that was written to. Nobody hands in the time, and nobody writes.
    rig.put(2, "two", 30 * DAY, 2);
    rig.drive(rig.store.set_clock_mark(at(3))).unwrap();
    rig.crash().unwrap();
    maintain(&rig);
    assert_eq!(rig.store.core.cold.len(), 1, "its time begins anew");
    grow_old(&mut rig);
    maintain(&rig);
    assert_eq!((rig.store.core.cold.len(), rig.get(2, 4).as_deref()), (2, Some("two")));
}

#[test]
fn segments_that_are_filled_together_retire_together() {
    let mut rig = Rig::new(2, None);
    for number in 0..20 {
        rig.put(number, &"x".repeat(6_000), 30 * DAY, 0);
    }
    grow_old(&mut rig);
    rig.drive(rig.store.core.maintain()).unwrap();
    let left = rig.store.core.log.segments_up_to(u32::MAX).len();
    assert!(left <= 2, "{left} segments are left: the one that is written to, and the one that is ready");
}
