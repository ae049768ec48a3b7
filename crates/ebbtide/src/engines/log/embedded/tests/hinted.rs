//! Opening by hints.

use super::*;
use crate::ErrorKind;
use crate::engines::log::disk::Disk as _;
use crate::engines::log::group::HEADER;
use crate::engines::log::hint;
use crate::engines::log::segment::Segment;

const KEYS: u64 = 40;

/// A store of several full segments with hints: records, replaced ones, deletes.
fn filled(seed: u64) -> Rig {
    let rig = Rig::new(seed, None);
    for round in 0..3 {
        for number in 0..KEYS {
            if number % 3 <= round {
                rig.put(number, &format!("{number}-{round}"), DAY, round);
            }
        }
        assert!(rig.commit(Write::Delete { key: key(3 * round) }, round));
    }
    rig.leave_segment(10).unwrap();
    rig.store.core.write_hints();
    rig
}

fn hints(rig: &Rig) -> Vec<String> {
    let names = rig.disk.list().unwrap();
    names.into_iter().filter(|name| hint::number(name).is_some()).collect()
}

/// Flips a bit of a file, where it has been written: a hint is not synced.
fn flip(rig: &Rig, name: &str, at: usize) {
    rig.disk.damage(name, |bytes| bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x40));
}

fn answers(rig: &Rig) -> (Vec<Option<String>>, Vec<String>, Option<Timestamp>) {
    let records = (0..KEYS).map(|number| rig.get(number, 20)).collect();
    (records, rig.list(20), rig.drive(rig.store.clock_mark()).unwrap())
}

#[test]
fn a_store_that_is_opened_by_hints_answers_as_by_its_log() {
    for seed in [2, 3] {
        let mut rig = filled(seed);
        let expected = answers(&rig);
        assert!(hints(&rig).len() > 5, "{:?}", hints(&rig));
        rig.disk.kill();
        rig.store = rig.open().unwrap();
        assert!(rig.store.core.hints().unread.len() > 5, "it was opened by hints");
        assert_eq!(answers(&rig), expected);
        rig.store.core.read_hinted();
        assert!(!rig.store.core.log.is_poisoned());
        // New records replace those of the hints, also after the next opening.
        rig.put(7, "later", DAY, 21);
        assert!(rig.commit(Write::Delete { key: key(8) }, 21));
        rig.disk.kill();
        rig.store = rig.open().unwrap();
        assert_eq!((rig.get(7, 22).as_deref(), rig.get(8, 22)), (Some("later"), None));
        rig.retire(23);
        assert!(hints(&rig).is_empty(), "a hint goes with its segment");
        assert_eq!((rig.get(7, 24).as_deref(), rig.get(8, 24)), (Some("later"), None));
    }
}

#[test]
fn a_short_segment_has_a_hint_once_a_long_one_is_behind_it() {
    let disk = SimDisk::new(2);
    let mut short = Options { hint_from: SEGMENT, ..options(2, None) };
    short.settings.first_len = SEGMENT / 2;
    let mut rig = Rig { store: open(&disk, &short).unwrap(), disk, fault: None, seed: 2, mask: u64::MAX };
    rig.put(0, "first", DAY, 0);
    rig.leave_segment(1).unwrap();
    rig.store.core.write_hints();
    assert!(hints(&rig).is_empty(), "a short store needs none");
    for number in 1..KEYS {
        for round in 0..3 {
            rig.put(number, &format!("{number}-{round}"), DAY, 2);
        }
    }
    rig.leave_segment(10).unwrap();
    rig.store.core.write_hints();
    let written = hints(&rig);
    assert_eq!(hint::number(&written[0]), Some(1), "{written:?}");
    rig.disk.kill();
    rig.store = rig.open().unwrap();
    assert_eq!(rig.store.core.hints().unread.len(), written.len(), "all of them were used");
    assert_eq!((rig.get(0, 20).as_deref(), rig.get(7, 20).as_deref()), (Some("first"), Some("7-2")));
}

#[test]
fn a_damaged_or_lost_hint_changes_no_answer() {
    for seed in [2, 3] {
        let mut rig = filled(seed);
        let expected = answers(&rig);
        let second = hints(&rig)[1].clone();
        let len = usize::try_from(rig.disk.open(&second).unwrap().len().unwrap()).unwrap();
        for at in (0..len).step_by(13) {
            flip(&rig, &second, at);
            rig.disk.kill();
            rig.store = rig.open().unwrap();
            assert_eq!(answers(&rig), expected, "byte {at}");
            flip(&rig, &second, at);
        }
        rig.disk.unlink(&second).unwrap();
        rig.store = rig.open().unwrap();
        assert_eq!(rig.store.core.hints().unread.len(), 1, "up to the one that is lost");
        assert_eq!(answers(&rig), expected);
    }
}

#[test]
fn damage_of_a_segment_with_a_hint_is_never_absent_and_closes_the_store() {
    let mut rig = filled(2);
    let segment = hint::number(&hints(&rig)[2]).unwrap();
    rig.disk.damage(&Segment::name(segment), |bytes| bytes[HEADER + 60] ^= 1);
    rig.disk.kill();
    rig.store = rig.open().unwrap();
    for number in 0..KEYS {
        let insert = Write::Insert { key: key(number), record: rig.record("again", DAY) };
        // The others that were deleted were put again.
        let is_free = number == 6;
        match rig.drive(rig.store.write(insert, at(20))) {
            Ok(commit) => assert_eq!(commit.is_applied(), is_free, "{number}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
    rig.store.core.read_hinted();
    assert!(rig.store.core.log.is_poisoned());
    rig.disk.kill();
    let error = rig.open().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(&Segment::name(segment)), "{error}");
}
