//! A disk that is almost full.

use super::*;
use crate::ErrorKind;

fn try_write(rig: &Rig, write: Write) -> Result<Commit> {
    rig.drive(rig.store.write(write, at(1)))
}

#[test]
fn a_disk_that_is_almost_full_refuses_new_records_and_lets_others_end() {
    let rig = Rig::new(1, None);
    for number in 0..4 {
        rig.put(number, "old", DAY, 0);
    }
    // Two are cold, so that a put without a condition cannot tell whether it adds.
    rig.retire(1);
    rig.put(4, "old", DAY, 1);
    rig.disk.set_free(1 << 20);
    rig.store.core.measure_space();
    let record = |value: &str| rig.record(value, DAY);
    let insert = |number: u64| Write::Insert { key: key(number), record: record("new") };
    let put = |number: u64| Write::Put { key: key(number), record: record("new") };
    for refused in [insert(9), put(9)] {
        let error = try_write(&rig, refused).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("almost full"), "{error}");
    }
    assert!(!try_write(&rig, insert(0)).unwrap().is_applied(), "a refusal is still an answer");
    for number in [0, 4] {
        assert!(try_write(&rig, put(number)).unwrap().is_applied(), "what is there can be replaced");
    }
    assert!(try_write(&rig, Write::Delete { key: key(1) }).unwrap().is_applied());
    assert!(rig.drive(rig.store.take(&key(2), at(1))).unwrap().is_some());
    // A delete with its audit entry, in one commit; and the same with something new.
    let entry = |number: u64| {
        let key = Key::new(Kind::Audit, &Scope::Global, &["a".into()], &[number.into()]).unwrap();
        Write::Insert { key, record: record("entry") }
    };
    let audited = Batch::new(vec![Write::Delete { key: key(3) }, entry(1)]).unwrap();
    assert!(rig.drive(rig.store.commit(audited, at(1))).unwrap().is_applied());
    let mixed = Batch::new(vec![Write::Delete { key: key(4) }, entry(2), insert(9)]).unwrap();
    assert!(rig.drive(rig.store.commit(mixed, at(1))).is_err());
    assert_eq!((rig.get(3, 1), rig.get(4, 1).as_deref()), (None, Some("new")), "all of it or nothing");
    assert_eq!(rig.drive(rig.store.warnings()).unwrap().len(), 1);
    // Space comes back without a restart.
    rig.disk.set_free(1 << 40);
    rig.store.core.measure_space();
    assert!(try_write(&rig, insert(9)).unwrap().is_applied());
    assert!(rig.drive(rig.store.warnings()).unwrap().is_empty());
}

#[test]
fn adds_are_refused_before_a_segment_that_reaches_into_the_reserve_is_used() {
    let rig = Rig::new(1, None);
    rig.put(1, "old", DAY, 0);
    while rig.store.core.log.prepare_next().unwrap() {}
    assert!(rig.store.core.log.roll(), "the segment that was ready is used");
    rig.disk.set_free(rig.store.core.options.reserve_bytes + u64::from(SEGMENT) - 1);
    rig.store.core.measure_space();
    assert!(rig.drive(rig.store.warnings()).unwrap().is_empty());
    // No maintenance looks at the disk meanwhile.
    assert!(rig.store.core.log.prepare_next().unwrap());
    assert_eq!(rig.drive(rig.store.warnings()).unwrap().len(), 1);
}

#[test]
fn a_retirement_leaves_the_reserve_alone() {
    let rig = Rig::new(1, None);
    rig.put(1, "old", DAY, 0);
    rig.disk.set_free(1 << 20);
    rig.store.core.measure_space();
    assert_eq!(rig.try_retire(1).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(rig.get(1, 1).as_deref(), Some("old"));
    assert!(rig.commit(Write::Delete { key: key(1) }, 1), "the reserve is for this");
    rig.disk.set_free(1 << 40);
    rig.store.core.measure_space();
    assert!(rig.try_retire(1).unwrap());
}
