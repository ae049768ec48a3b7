//! The simulated disk does what it says.

use std::collections::BTreeSet;

use super::*;
use crate::engines::log::disk::PAGE;

fn written(disk: &SimDisk, name: &str, pages: usize) -> Arc<dyn File> {
    let file = disk.create(name).unwrap();
    file.write_at(&vec![1; pages * PAGE], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    file
}

#[test]
fn synced_bytes_and_names_survive_every_crash() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = written(&disk, "a", 3);
        file.write_at(&[2; PAGE], PAGE as u64).unwrap();
        disk.crash();
        let bytes = disk.open("a").unwrap().read_all().unwrap();
        assert_eq!(bytes.len(), 3 * PAGE);
        assert!(bytes[..PAGE].iter().chain(&bytes[2 * PAGE..]).all(|byte| *byte == 1), "seed {seed}");
        assert!(file.sync_data().is_err(), "a handle does not survive");
    }
}

#[test]
fn unsynced_pages_are_kept_dropped_torn_and_damaged_and_names_are_lost() {
    let mut outcomes = BTreeSet::new();
    let mut fired = Fired::default();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = written(&disk, "a", 1);
        file.write_at(&[2; PAGE], 0).unwrap();
        disk.create("b").unwrap();
        disk.rename("a", "c").unwrap();
        disk.crash();
        outcomes.insert(disk.names());
        let one = disk.fired();
        fired.kept_pages += one.kept_pages;
        fired.dropped_pages += one.dropped_pages;
        fired.torn_pages += one.torn_pages;
        fired.damaged_pages += one.damaged_pages;
    }
    for count in [fired.kept_pages, fired.dropped_pages, fired.torn_pages, fired.damaged_pages] {
        assert!(count > 30, "{fired:?}");
    }
    assert_eq!(outcomes.len(), 8, "each of the three names may be old or new: {outcomes:?}");
}

#[test]
fn a_failed_sync_leaves_pages_that_are_read_and_never_written() {
    let mut dropped = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = written(&disk, "a", 1);
        file.write_at(&[2; PAGE], 0).unwrap();
        disk.plan(disk.calls(), DiskFault::Io, false);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(file.read_all().unwrap(), [2; PAGE]);
        disk.crash();
        dropped += usize::from(disk.open("a").unwrap().read_all().unwrap() == [1; PAGE]);
    }
    assert!(dropped > 10);
}

#[test]
fn a_killed_process_leaves_the_page_cache() {
    let disk = SimDisk::new(1);
    let file = written(&disk, "a", 1);
    file.write_at(&[2; PAGE], 0).unwrap();
    disk.kill();
    assert_eq!(disk.open("a").unwrap().read_all().unwrap(), [2; PAGE]);
}

#[test]
fn faults_meet_the_call_they_are_planned_for() {
    let disk = SimDisk::new(1);
    let file = written(&disk, "a", 1);
    disk.plan(disk.calls() + 1, DiskFault::NoSpace, true);
    file.write_at(&[2], 0).unwrap();
    assert_eq!(file.write_at(&[2], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(disk.create("b").is_err());
    assert!(disk.open("a").is_ok(), "a full disk can be read");
    disk.behave();
    disk.stop_at(disk.calls());
    assert!(disk.open("a").is_err());
}

#[test]
fn a_dropped_sync_answers_and_does_nothing() {
    let disk = SimDisk::new(3);
    let file = written(&disk, "a", 1);
    let odds = Odds { dropped_sync: 10_000, ..Odds::default() };
    disk.set_odds(odds);
    let mut lost = 0;
    for seed in 0..50 {
        let disk = disk.fork();
        disk.reseed(seed);
        let file = disk.open("a").unwrap();
        file.write_at(&[2; PAGE], 0).unwrap();
        file.sync_data().unwrap();
        disk.crash();
        lost += usize::from(disk.open("a").unwrap().read_all().unwrap() != [2; PAGE]);
    }
    assert!(lost > 10);
    drop(file);
}
