//! Faults that are put in on purpose, each of them caught.

use super::retirement::newer_version_fails;
use super::simulated::run;
use super::*;

fn is_caught(fault: PlantedFault) -> bool {
    (0..400).any(|seed| {
        let outcome = std::panic::catch_unwind(|| run(seed, Some(fault)));
        !matches!(outcome, Ok(Ok(_)))
    })
}

#[test]
fn faults_of_syncs_recovery_and_retirement_are_caught_by_seeded_runs() {
    for fault in [
        PlantedFault::SyncSkipped,
        PlantedFault::AcknowledgedBeforeSync,
        PlantedFault::DirectoryNotSynced,
        PlantedFault::ContinueInCutSegment,
        PlantedFault::TombstoneDropped,
        PlantedFault::UnlinkBeforeCheckpoint,
    ] {
        assert!(is_caught(fault), "{fault:?} was not caught");
    }
}

#[test]
fn a_checkpoint_that_does_not_wait_for_open_groups_loses_the_older_version() {
    assert_eq!(newer_version_fails(Some(PlantedFault::CheckpointDoesNotWait)), None);
}

/// Inserts a key, and asks again before its group is durable. Answers whether somebody was told of what a crash took back.
fn refused_for_what_is_lost(fault: Option<PlantedFault>) -> bool {
    (0..40).any(|seed| {
        let mut rig = Rig::new(seed, fault);
        let insert = |value: &str| Write::Insert { key: key(1), record: rig.record(value, DAY) };
        let (first, second) = (insert("first"), insert("second"));
        let refused = {
            let mut first = Box::pin(rig.store.write(first, at(0)));
            let mut second = Box::pin(rig.store.write(second, at(0)));
            let mut get = Box::pin(async { rig.store.get(&key(1), at(0)).await });
            assert!(poll(&mut first).is_pending());
            let refused = poll(&mut second).is_ready();
            assert!(poll(&mut get).is_pending(), "a read waits as well");
            refused
        };
        rig.crash().unwrap();
        refused && rig.get(1, 1).is_none()
    })
}

#[test]
fn a_refusal_waits_for_what_it_rests_on() {
    assert!(!refused_for_what_is_lost(None));
    assert!(refused_for_what_is_lost(Some(PlantedFault::RefusalDoesNotWait)), "the fault is caught");
}

/// A record moves from the log to the cold store between a read of the cold store and the look at the index. Answers how
/// many of two inserts won.
fn inserts_that_win(fault: Option<PlantedFault>) -> usize {
    let rig = Rig::new(1, fault);
    // The kind has cold records, so that an insert reads the cold store.
    rig.put(9, "beside", DAY, 0);
    rig.retire(1);
    let insert = |value: &str| Write::Insert { key: key(1), record: rig.record(value, DAY) };
    let mut late = Box::pin(rig.store.write(insert("late"), at(2)));
    assert!(poll(&mut late).is_pending());
    assert!(rig.store.step_pools(), "it has read the cold store, and found nothing");
    // Another insert wins, and its record leaves the log for the cold store.
    let early = rig.commit(insert("early"), 2);
    rig.retire(3);
    let late = rig.drive(late).unwrap().is_applied();
    usize::from(early) + usize::from(late)
}

#[test]
fn a_cold_read_counts_only_if_no_record_has_moved_since() {
    assert_eq!(inserts_that_win(None), 1);
    assert_eq!(inserts_that_win(Some(PlantedFault::EpochNotCompared)), 2, "the fault is caught");
}
