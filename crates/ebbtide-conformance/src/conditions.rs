//! Conditions of writes and their outcomes.

use super::Rig;
use ebbtide::model::key::{Key, Part};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::rng::Rng;
use ebbtide::model::scope::Scope;
use ebbtide::model::write::{Batch, Commit, Write};

pub(super) async fn get_of_what_was_never_written_is_none(rig: Rig) {
    assert_eq!(rig.get(&rig.key("a"), 0).await, None);
    assert_eq!(rig.take(&rig.key("a"), 0).await, None);
}

pub(super) async fn put_writes_over_anything(rig: Rig) {
    let key = rig.key("a");
    let first = rig.stored(&key, "first", 100).await;
    assert_eq!(rig.get(&key, 0).await, Some(first));
    let second = rig.stored(&key, "second", 50).await;
    assert_eq!(rig.get(&key, 0).await, Some(second));
}

pub(super) async fn insert_writes_where_nothing_is(rig: Rig) {
    let (key, record) = (rig.key("a"), rig.record("v", 100));
    assert!(rig.applied(Write::Insert { key: key.clone(), record: record.clone() }, 0).await);
    assert_eq!(rig.get(&key, 0).await, Some(record));
}

pub(super) async fn insert_is_refused_over_a_live_record(rig: Rig) {
    let key = rig.key("a");
    let first = rig.stored(&key, "first", 100).await;
    assert!(!rig.applied(Write::Insert { key: key.clone(), record: rig.record("second", 200) }, 0).await);
    assert_eq!(rig.get(&key, 0).await, Some(first), "a refused insert changes nothing");
}

pub(super) async fn replace_needs_the_live_version(rig: Rig) {
    let key = rig.key("a");
    let first = rig.record("first", 100);
    let second = rig.record("second", 100);
    let replace = |expected: &Record, record: &Record| Write::Replace {
        key: key.clone(),
        expected: expected.version,
        record: record.clone(),
    };
    assert!(!rig.applied(replace(&first, &second), 0).await, "nothing is there");
    assert_eq!(rig.get(&key, 0).await, None);
    assert!(rig.applied(Write::Put { key: key.clone(), record: first.clone() }, 0).await);
    assert!(!rig.applied(replace(&second, &second), 0).await, "another version is there");
    assert_eq!(rig.get(&key, 0).await, Some(first.clone()));
    assert!(rig.applied(replace(&first, &second), 0).await);
    assert_eq!(rig.get(&key, 0).await, Some(second.clone()));
    assert!(!rig.applied(replace(&first, &rig.record("third", 100)), 0).await, "the old version is gone");
}

pub(super) async fn delete_has_no_condition(rig: Rig) {
    let key = rig.key("a");
    assert!(rig.applied(Write::Delete { key: key.clone() }, 0).await, "also where nothing is");
    rig.stored(&key, "v", 100).await;
    assert!(rig.applied(Write::Delete { key: key.clone() }, 0).await);
    assert_eq!(rig.get(&key, 0).await, None);
}

pub(super) async fn remove_needs_the_live_version(rig: Rig) {
    let key = rig.key("a");
    let other = rig.record("other", 100);
    let remove = |record: &Record| Write::Remove { key: key.clone(), expected: record.version };
    assert!(!rig.applied(remove(&other), 0).await, "nothing is there");
    let record = rig.stored(&key, "v", 100).await;
    assert!(!rig.applied(remove(&other), 0).await, "another version is there");
    assert_eq!(rig.get(&key, 0).await, Some(record.clone()));
    assert!(rig.applied(remove(&record), 0).await);
    assert_eq!(rig.get(&key, 0).await, None);
    assert!(!rig.applied(remove(&record), 0).await, "it is removed once");
}

pub(super) async fn check_holds_for_the_live_version_alone(rig: Rig) {
    let key = rig.key("a");
    let other = rig.record("other", 100);
    let check = |record: &Record| Write::Check { key: key.clone(), expected: record.version };
    assert!(!rig.applied(check(&other), 0).await, "nothing is there");
    let record = rig.stored(&key, "v", 100).await;
    assert!(!rig.applied(check(&other), 0).await, "another version is there");
    assert!(rig.applied(check(&record), 0).await);
    assert_eq!(rig.get(&key, 0).await, Some(record), "a check changes nothing");
}

pub(super) async fn absent_holds_where_nothing_is_live(rig: Rig) {
    let key = rig.key("a");
    let absent = || Write::Absent { key: key.clone() };
    assert!(rig.applied(absent(), 0).await);
    assert_eq!(rig.get(&key, 0).await, None, "asking for absence writes nothing");
    let record = rig.stored(&key, "v", 100).await;
    assert!(!rig.applied(absent(), 0).await);
    assert_eq!(rig.get(&key, 0).await, Some(record.clone()));
    assert_eq!(rig.take(&key, 0).await, Some(record));
    assert!(rig.applied(absent(), 0).await);
    assert!(rig.applied(Write::Insert { key: key.clone(), record: rig.record("w", 100) }, 0).await);
}

pub(super) async fn take_returns_the_record_once(rig: Rig) {
    let key = rig.key("a");
    let record = rig.stored(&key, "v", 100).await;
    assert_eq!(rig.take(&key, 0).await, Some(record));
    assert_eq!(rig.take(&key, 0).await, None);
    assert_eq!(rig.get(&key, 0).await, None);
}

pub(super) async fn a_batch_is_all_or_nothing(rig: Rig) {
    let (held, fresh, gone) = (rig.key("held"), rig.key("fresh"), rig.key("gone"));
    let record = rig.stored(&held, "v", 100).await;
    let going = rig.stored(&gone, "v", 100).await;
    let batch = |expected: &Record| {
        vec![
            Write::Insert { key: fresh.clone(), record: rig.record("new", 100) },
            Write::Delete { key: gone.clone() },
            Write::Check { key: held.clone(), expected: expected.version },
        ]
    };
    assert_eq!(rig.commit(batch(&going), 0).await, Commit::Refused { index: 2 });
    assert_eq!(rig.get(&fresh, 0).await, None);
    assert_eq!(rig.get(&gone, 0).await, Some(going));
    assert_eq!(rig.commit(batch(&record), 0).await, Commit::Applied);
    assert!(rig.get(&fresh, 0).await.is_some());
    assert_eq!(rig.get(&gone, 0).await, None);
}

pub(super) async fn the_first_refused_write_is_named(rig: Rig) {
    // Refusals follow the batch's order, not the order of the keys: an engine may lock in another order.
    let names = ["d", "b", "c", "a"];
    for name in ["b", "a"] {
        rig.stored(&rig.key(name), "v", 100).await;
    }
    let inserts = names.map(|name| Write::Insert { key: rig.key(name), record: rig.record("w", 100) });
    assert_eq!(rig.commit(inserts.to_vec(), 0).await, Commit::Refused { index: 1 });
    let mut backwards = inserts.to_vec();
    backwards.reverse();
    assert_eq!(rig.commit(backwards, 0).await, Commit::Refused { index: 0 });
}

pub(super) async fn a_batch_holds_a_hundred_writes(rig: Rig) {
    let keys: Vec<_> = (0..Batch::MAX_WRITES).map(|n| rig.key(&format!("k{n}"))).collect();
    let insert = |key: &Key| Write::Insert { key: key.clone(), record: rig.record("v", 100) };
    let writes: Vec<_> = keys.iter().map(insert).collect();
    assert_eq!(rig.commit(writes, 0).await, Commit::Applied);
    for key in &keys {
        assert!(rig.get(key, 0).await.is_some());
    }
    assert!(rig.applied(Write::Delete { key: keys[0].clone() }, 0).await);
    let again: Vec<_> = keys.iter().map(insert).collect();
    assert_eq!(rig.commit(again, 0).await, Commit::Refused { index: 1 });
    assert_eq!(rig.get(&keys[0], 0).await, None);
}

pub(super) async fn each_of_several_batches_is_judged_by_itself(rig: Rig) {
    assert_eq!(rig.commit_each(Vec::new(), 0).await, []);
    let [a, b, c, gone] = ["a", "b", "c", "gone"].map(|name| rig.key(name));
    let old = rig.stored(&b, "old", 1_000).await;
    rig.stored(&gone, "old", 100).await;
    // Against the order of the keys, to show that the answers come in the order of the calls.
    let insert = |key: &Key| Write::Insert { key: key.clone(), record: rig.record("new", 1_000) };
    let commits = rig.commit_each(vec![insert(&gone), insert(&c), insert(&b), insert(&a)], 100).await;
    let (applied, refused) = (Commit::Applied, Commit::Refused { index: 0 });
    assert_eq!(commits, [applied, applied, refused, applied]);
    for key in [&a, &c, &gone] {
        assert_eq!(rig.get(key, 100).await.expect("it was written").value, "new");
    }
    assert_eq!(rig.get(&b, 100).await, Some(old), "a refused write changes nothing");
    // The same key twice in one call: one of them wins.
    let twice = rig.key("twice");
    let commits = rig.commit_each(vec![insert(&twice), insert(&twice)], 0).await;
    assert_eq!(commits.iter().filter(|commit| commit.is_applied()).count(), 1);
}

pub(super) async fn a_recreated_record_never_matches_an_old_version(rig: Rig) {
    let key = rig.key("a");
    let old = rig.stored(&key, "same", 100).await;
    assert!(rig.applied(Write::Delete { key: key.clone() }, 0).await);
    let new = rig.stored(&key, "same", 100).await;
    let replace = Write::Replace { key: key.clone(), expected: old.version, record: rig.record("w", 100) };
    assert!(!rig.applied(replace, 0).await);
    assert!(!rig.applied(Write::Remove { key: key.clone(), expected: old.version }, 0).await);
    assert!(!rig.applied(Write::Check { key: key.clone(), expected: old.version }, 0).await);
    assert_eq!(rig.get(&key, 0).await, Some(new));
}

pub(super) async fn values_of_any_bytes_come_back(rig: Rig) {
    let mut largest = vec![0; Record::MAX_VALUE_BYTES];
    rig.rng.fill(&mut largest);
    let every_byte = (0..=u8::MAX).collect::<Vec<_>>();
    for (name, value) in [("none", Vec::new()), ("every", every_byte), ("largest", largest)] {
        let key = rig.key(name);
        let record = Record::new(value, rig.at(100), rig.rng.as_ref() as &dyn Rng);
        assert!(rig.applied(Write::Insert { key: key.clone(), record: record.clone() }, 0).await);
        assert!(rig.get(&key, 0).await.as_ref() == Some(&record), "{name}");
        assert!(rig.take(&key, 0).await == Some(record), "{name}");
    }
}

pub(super) async fn keys_at_their_bounds_are_kept_apart(rig: Rig) {
    // Escaped, the zero bytes take twice their length: these keys have the maximum size.
    let zeros = [0; 490];
    let ones = [0xFF; 900];
    let text = "é".repeat(400);
    let long_name = "x".repeat(128);
    let scopes = [
        rig.scope.clone(),
        Scope::custom(["ebbtide-verify", &long_name, &long_name, &long_name[..16]])
            .expect("within the bound"),
    ];
    let parts: [Part<'_>; 6] = [
        (&zeros).into(),
        (&ones).into(),
        (&text as &str).into(),
        0.into(),
        u64::MAX.into(),
        (&[0u8; 1]).into(),
    ];
    let mut keys = Vec::new();
    for scope in &scopes {
        for partition in &parts {
            for sort in &parts {
                let key =
                    Key::new(Kind::Probe, scope, std::slice::from_ref(partition), std::slice::from_ref(sort));
                keys.push(key.expect("within the bounds"));
            }
        }
    }
    let mut records = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let record = rig.record(&index.to_string(), 100);
        let insert = Write::Insert { key: key.clone(), record: record.clone() };
        assert!(rig.applied(insert, 0).await, "two keys are one");
        records.push(record);
    }
    for (key, record) in keys.iter().zip(records) {
        assert_eq!(rig.take(key, 0).await, Some(record));
    }
}
