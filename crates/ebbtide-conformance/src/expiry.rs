//! Expired is absent: one millisecond before, at, and after the instant.

use super::Rig;
use ebbtide::model::write::Write;

/// Expiry of the records in these cases, which look just before, at, and just after it.
const END: u64 = 1_000;

pub(super) async fn get_ends_at_the_instant(rig: Rig) {
    let key = rig.key("a");
    let record = rig.stored(&key, "v", END).await;
    assert_eq!(rig.get(&key, END - 1).await, Some(record));
    assert_eq!(rig.get(&key, END).await, None);
    assert_eq!(rig.get(&key, END + 1).await, None);
}

pub(super) async fn take_ends_at_the_instant(rig: Rig) {
    for (name, now, live) in [("before", END - 1, true), ("at", END, false), ("after", END + 1, false)] {
        let key = rig.key(name);
        rig.stored(&key, "v", END).await;
        assert_eq!(rig.take(&key, now).await.is_some(), live, "{name}");
    }
}

pub(super) async fn insert_takes_the_place_of_an_expired_record(rig: Rig) {
    for (name, now, applied) in [("before", END - 1, false), ("at", END, true), ("after", END + 1, true)] {
        let key = rig.key(name);
        let old = rig.stored(&key, "old", END).await;
        let new = rig.record("new", 2 * END);
        let insert = Write::Insert { key: key.clone(), record: new.clone() };
        assert_eq!(rig.applied(insert, now).await, applied, "{name}");
        assert_eq!(rig.get(&key, END - 1).await, Some(if applied { new } else { old }), "{name}");
    }
}

pub(super) async fn replace_never_revives(rig: Rig) {
    for (name, now, applied) in [("before", END - 1, true), ("at", END, false), ("after", END + 1, false)] {
        let key = rig.key(name);
        let old = rig.stored(&key, "old", END).await;
        let replace =
            Write::Replace { key: key.clone(), expected: old.version, record: rig.record("new", 2 * END) };
        assert_eq!(rig.applied(replace, now).await, applied, "{name}");
        assert_eq!(rig.get(&key, END).await.is_some(), applied, "{name}");
    }
}

pub(super) async fn remove_of_an_expired_record_is_refused(rig: Rig) {
    for (name, now, applied) in [("before", END - 1, true), ("at", END, false), ("after", END + 1, false)] {
        let key = rig.key(name);
        let old = rig.stored(&key, "old", END).await;
        let remove = Write::Remove { key: key.clone(), expected: old.version };
        assert_eq!(rig.applied(remove, now).await, applied, "{name}");
    }
}

pub(super) async fn check_of_an_expired_record_is_refused(rig: Rig) {
    let key = rig.key("a");
    let record = rig.stored(&key, "v", END).await;
    for (now, applied) in [(END - 1, true), (END, false), (END + 1, false)] {
        let check = Write::Check { key: key.clone(), expected: record.version };
        assert_eq!(rig.applied(check, now).await, applied, "{now}");
    }
}

pub(super) async fn absent_holds_from_the_instant(rig: Rig) {
    let key = rig.key("a");
    rig.stored(&key, "v", END).await;
    for (now, applied) in [(END - 1, false), (END, true), (END + 1, true)] {
        assert_eq!(rig.applied(Write::Absent { key: key.clone() }, now).await, applied, "{now}");
    }
}

pub(super) async fn scan_ends_at_the_instant(rig: Rig) {
    let sooner = rig.sorted_key("p", &["sooner".into()]);
    let later = rig.sorted_key("p", &["later".into()]);
    rig.stored(&sooner, "v", END).await;
    rig.stored(&later, "v", END + 1).await;
    let prefix = rig.partition("p", &[]);
    for (now, count) in [(END - 1, 2), (END, 1), (END + 1, 0)] {
        assert_eq!(rig.scan(&prefix, now).await.len(), count, "{now}");
    }
}

pub(super) async fn put_and_delete_ignore_what_is_expired(rig: Rig) {
    let (put, delete) = (rig.key("put"), rig.key("delete"));
    rig.stored(&put, "old", END).await;
    rig.stored(&delete, "old", END).await;
    let record = rig.record("new", 2 * END);
    assert!(rig.applied(Write::Put { key: put.clone(), record: record.clone() }, END).await);
    assert!(rig.applied(Write::Delete { key: delete.clone() }, END).await);
    assert_eq!(rig.get(&put, END).await, Some(record));
    assert_eq!(rig.get(&delete, 0).await, None, "a delete removes expired records too");
}

pub(super) async fn a_longer_life_counts_from_its_writing(rig: Rig) {
    let key = rig.key("a");
    let first = rig.stored(&key, "v", END).await;
    let longer = rig.record("v", 3 * END);
    let replace = Write::Replace { key: key.clone(), expected: first.version, record: longer.clone() };
    assert!(rig.applied(replace, END - 1).await);
    assert_eq!(rig.get(&key, 2 * END).await, Some(longer));
    assert_eq!(rig.get(&key, 3 * END).await, None);
}

pub(super) async fn a_shorter_life_counts_from_its_writing(rig: Rig) {
    let key = rig.key("a");
    let first = rig.stored(&key, "v", 3 * END).await;
    let shorter = rig.record("v", END);
    assert!(
        rig.applied(Write::Replace { key: key.clone(), expected: first.version, record: shorter }, 0).await
    );
    assert_eq!(rig.get(&key, END).await, None);
    let dead = Write::Put { key: key.clone(), record: rig.record("v", END) };
    assert!(rig.applied(dead, 2 * END).await, "a record may be written that has ended already");
    assert_eq!(rig.get(&key, 2 * END).await, None);
}

pub(super) async fn a_record_without_end_stays(rig: Rig) {
    let key = rig.key("a");
    let mut record = rig.record("v", END);
    record.expires_at = ebbtide::model::time::Timestamp::NEVER;
    assert!(rig.applied(Write::Insert { key: key.clone(), record: record.clone() }, 0).await);
    let last = ebbtide::model::time::Timestamp::MAX;
    assert_eq!(rig.backend.get(&key, last).await.expect("get"), Some(record.clone()));
    assert_eq!(rig.sweep(u64::from(u32::MAX)).await.total(), 0);
    assert_eq!(rig.get(&key, END).await, Some(record));
}
