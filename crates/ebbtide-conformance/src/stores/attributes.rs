//! Attributes are stored as they were set, and separately.

use serde_json::{Value, json};

use super::approvals::context;
use super::rig::{StoreRig, secs};
use ebbtide::backend::Cursor;
use ebbtide::model::record::Version;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::Timestamp;
use ebbtide::stores::attributes::{Attribute, Bucket, ChangeOutcome, Draft, Stamp, SwapOutcome, presets};
use ebbtide::stores::audit::Action;

pub(super) fn bucket(rig: &StoreRig, owner: &str, name: &str) -> Bucket {
    rig.stores.attributes(&rig.scope).bucket(owner, name).expect("good names")
}

pub(super) async fn set(bucket: &Bucket, name: &str, value: impl Into<Draft>) -> Stamp {
    bucket.set(name, value).await.expect("set")
}

pub(super) async fn get(bucket: &Bucket, name: &str) -> Option<Attribute> {
    bucket.get(name).await.expect("get")
}

async fn data(bucket: &Bucket, name: &str) -> Option<Value> {
    get(bucket, name).await.map(|attribute| attribute.data)
}

pub(super) async fn swap(bucket: &Bucket, name: &str, old: &Value, new: impl Into<Draft>) -> Option<Stamp> {
    match bucket.compare_and_swap(name, old, new).await.expect("swap") {
        SwapOutcome::Swapped(stamp) => Some(stamp),
        SwapOutcome::Longer { .. } => panic!("this caller may lengthen"),
        _ => None,
    }
}

fn applied(change: ChangeOutcome) -> Option<Version> {
    match change {
        ChangeOutcome::Applied(stamp) => Some(stamp.version),
        ChangeOutcome::Longer { .. } => panic!("this caller may lengthen"),
        _ => None,
    }
}

async fn names(bucket: &Bucket) -> Vec<String> {
    let page = bucket.list(None, 100).await.expect("list");
    assert!(page.next.is_none(), "these are few");
    page.items.into_iter().map(|attribute| attribute.name).collect()
}

pub(super) async fn every_json_value_is_stored_and_read_back(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "values");
    let deep = (0..64).fold(json!(0), |inner, _| json!([inner]));
    let large = json!("x".repeat(Draft::MAX_JSON_BYTES - 2));
    let values = [
        json!(false),
        json!(0),
        json!(""),
        json!([]),
        json!({}),
        json!(null),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.1 + 0.2),
        json!(5e-324),
        json!(1.797_693_134_862_315_7e308),
        json!({"b": [1, {"a": "\u{0}\u{7}é\"\\"}], "": null}),
        deep,
        large,
    ];
    for (number, value) in values.iter().enumerate() {
        let name = format!("v{number}");
        let stamp = set(&bucket, &name, value.clone()).await;
        let read = get(&bucket, &name).await.expect("what was set is there");
        assert_eq!(read.data, *value);
        assert_eq!((read.version, read.expires_at), (stamp.version, Timestamp::NEVER));
        assert_eq!((read.timestamp, read.name.as_str()), (None, name.as_str()));
        assert!(swap(&bucket, &name, value, value.clone()).await.is_some(), "a value equals itself");
    }
    assert_eq!(data(&bucket, "never set").await, None);
    assert!(bucket.set("large", json!("x".repeat(Draft::MAX_JSON_BYTES))).await.is_err());
    assert!(bucket.set("", json!(1)).await.is_err(), "an attribute has a name");
}

pub(super) async fn setting_writes_over_and_keeps_no_life(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let time = Timestamp::from_millis(1_234).expect("a good time");
    set(&bucket, "a", Draft::new(json!(1)).timestamp(time).ttl(secs(10))).await;
    assert_eq!(get(&bucket, "a").await.expect("set").timestamp, Some(time));
    set(&bucket, "a", json!(2)).await;
    rig.pass(11);
    let read = get(&bucket, "a").await.expect("it was set again, without an end");
    assert_eq!((read.data, read.timestamp, read.expires_at), (json!(2), None, Timestamp::NEVER));
}

pub(super) async fn insert_and_replace_have_conditions(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let first = applied(bucket.insert("a", json!(1)).await.expect("insert")).expect("nothing was there");
    assert_eq!(applied(bucket.insert("a", json!(2)).await.expect("insert")), None);
    let second =
        applied(bucket.replace("a", first, json!(3)).await.expect("replace")).expect("the record is live");
    assert_eq!(applied(bucket.replace("a", first, json!(4)).await.expect("replace")), None);
    assert_eq!(data(&bucket, "a").await, Some(json!(3)));
    assert_eq!(applied(bucket.replace("none", second, json!(5)).await.expect("replace")), None);
    assert!(bucket.delete("a").await.expect("delete"));
    assert!(applied(bucket.insert("a", json!(3)).await.expect("insert")).is_some());
    assert_eq!(applied(bucket.replace("a", second, json!(6)).await.expect("replace")), None, "re-created");
}

pub(super) async fn only_the_caller_that_removed_it_is_told_so(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    for round in 0..6 {
        let stamp = set(&bucket, "a", json!({"round": round})).await;
        let removed = rig.together(24, |rig, index| async move {
            let bucket = self::bucket(&rig, "alice", "b");
            match index % 3 {
                0 => bucket.delete("a").await.expect("delete"),
                1 => bucket.remove_if("a", stamp.version).await.expect("remove"),
                _ => bucket.take("a").await.expect("take").is_some(),
            }
        });
        assert_eq!(removed.await.into_iter().filter(|removed| *removed).count(), 1);
        assert!(!bucket.delete("a").await.expect("delete"));
    }
    let stamp = set(&bucket, "a", json!(1)).await;
    let later = set(&bucket, "a", json!(1)).await;
    assert!(!bucket.remove_if("a", stamp.version).await.expect("remove"), "that version is gone");
    assert!(bucket.remove_if("a", later.version).await.expect("remove"));
    set(&bucket, "a", json!([7])).await;
    assert_eq!(bucket.take("a").await.expect("take").map(|taken| taken.data), Some(json!([7])));
}

pub(super) async fn a_swap_compares_json_and_not_text(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let old = Draft::from_json(r#"{"b": 1, "a": {"y": [1, 2], "x": null}}"#).expect("JSON");
    set(&bucket, "a", old).await;
    let reordered: Value = serde_json::from_str(r#"{"a":{"x":null,"y":[1,2]},"b":1}"#).expect("JSON");
    let other_array: Value = serde_json::from_str(r#"{"a":{"x":null,"y":[2,1]},"b":1}"#).expect("JSON");
    assert!(swap(&bucket, "a", &other_array, json!(0)).await.is_none(), "an array's order is a difference");
    assert!(swap(&bucket, "a", &reordered, json!(1)).await.is_some(), "an object's is none");
    assert!(swap(&bucket, "a", &json!(1.0), json!(0)).await.is_none(), "1 is not 1.0");
    assert!(swap(&bucket, "a", &json!("1"), json!(0)).await.is_none());
    assert!(swap(&bucket, "a", &json!(1), json!(1.0)).await.is_some());
    let exponent: Value = serde_json::from_str("1e0").expect("JSON");
    assert!(swap(&bucket, "a", &exponent, json!(null)).await.is_some(), "1.0 is 1e0");
    assert!(swap(&bucket, "a", &json!(false), json!(0)).await.is_none(), "null is not false");
    let SwapOutcome::Conflict { current } =
        bucket.compare_and_swap("a", &json!(9), json!(0)).await.expect("swap")
    else {
        panic!("null is not 9");
    };
    assert_eq!(current.expect("the record exists").data, json!(null));
    let absent = bucket.compare_and_swap("none", &json!(null), json!(0)).await.expect("swap");
    assert_eq!(absent, SwapOutcome::Conflict { current: None }, "an absent attribute is not null");
    assert_eq!(data(&bucket, "none").await, None);
}

pub(super) async fn a_counter_loses_no_increment(rig: StoreRig) {
    set(&bucket(&rig, "alice", "b"), "counter", json!(0)).await;
    let tasks = rig.together(16, |rig, _| async move {
        let bucket = bucket(&rig, "alice", "b");
        for _ in 0..10 {
            loop {
                let old = data(&bucket, "counter").await.expect("the counter is there");
                let new = json!(old.as_u64().expect("it counts") + 1);
                if swap(&bucket, "counter", &old, new).await.is_some() {
                    break;
                }
            }
        }
    });
    tasks.await;
    assert_eq!(data(&bucket(&rig, "alice", "b"), "counter").await, Some(json!(160)));
}

pub(super) async fn one_of_many_marks_a_token_used(rig: StoreRig) {
    let tokens = |rig: &StoreRig| {
        let attributes = rig.stores.attributes(&rig.scope);
        attributes.preset(&presets::SPA_REFRESH_TOKENS, None).expect("a shared bucket")
    };
    for round in 0..6 {
        let token = format!("digest-{round}");
        let issued = set(&tokens(&rig), &token, json!({"subject": "alice", "used": false})).await;
        let won = rig.together(16, |rig, index| {
            let (tokens, token) = (tokens(&rig), token.clone());
            async move {
                let old = data(&tokens, &token).await.expect("it was issued");
                if old["used"] == json!(true) {
                    return false;
                }
                let mut new = old.clone();
                new["used"] = json!(true);
                new["used_by"] = json!(index);
                swap(&tokens, &token, &old, new).await.is_some()
            }
        });
        assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1);
        let read = get(&tokens(&rig), &token).await.expect("it stays, as used");
        assert_eq!((&read.data["used"], read.expires_at), (&json!(true), issued.expires_at));
    }
}

pub(super) async fn names_with_separators_never_meet(rig: StoreRig) {
    let texts = ["a", "ab", "a:b", "a/b", "b", "b:a", "é%", "\u{10FFFF}"];
    for owner in texts {
        for name in texts {
            let bucket = bucket(&rig, owner, name);
            for attribute in texts {
                assert_eq!(data(&bucket, attribute).await, None, "{owner} {name} {attribute}");
                set(&bucket, attribute, json!([owner, name, attribute])).await;
            }
        }
    }
    for owner in texts {
        for name in texts {
            let page = bucket(&rig, owner, name).list(None, 100).await.expect("list");
            assert_eq!(page.items.len(), texts.len(), "{owner} {name}");
            assert!(page.items.iter().all(|item| item.data == json!([owner, name, item.name])));
        }
    }
}

pub(super) async fn a_bucket_is_deleted_alone(rig: StoreRig) {
    let others = ["ab", "a:b", "a/b", "A", "b"];
    for name in others.into_iter().chain(["a"]) {
        set(&bucket(&rig, "alice", name), "x", json!(name)).await;
        set(&bucket(&rig, "bob", name), "x", json!(name)).await;
    }
    for number in 0..150 {
        set(&bucket(&rig, "alice", "a"), &format!("n{number:03}"), json!(number)).await;
    }
    let step = bucket(&rig, "alice", "a").delete_bucket_step().await.expect("delete");
    assert!(step.removed > 0 && (step.more || step.removed == 151));
    let rest = bucket(&rig, "alice", "a").delete_bucket().await.expect("delete");
    assert_eq!(step.removed + rest, 151);
    assert_eq!(names(&bucket(&rig, "alice", "a")).await, Vec::<String>::new());
    assert_eq!(bucket(&rig, "alice", "a").delete_bucket().await.expect("delete"), 0);
    for name in others {
        assert_eq!(names(&bucket(&rig, "alice", name)).await, ["x"], "{name}");
    }
    assert_eq!(names(&bucket(&rig, "bob", "a")).await, ["x"]);
}

pub(super) async fn an_owner_is_deleted_alone(rig: StoreRig) {
    for owner in ["al", "alice", "alice:a", "alice2"] {
        for name in ["a", "b"] {
            set(&bucket(&rig, owner, name), "x", json!(1)).await;
        }
    }
    let attributes = rig.stores.attributes(&rig.scope);
    assert_eq!(attributes.delete_owner_audited("alice", &context()).await.expect("delete"), 2);
    let told = rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items;
    assert_eq!(told.iter().map(|entry| entry.action).collect::<Vec<_>>(), [Action::DeleteOwner; 2]);
    assert!(told.iter().all(|entry| entry.target == ["alice"]));
    assert_eq!(attributes.delete_owner("alice").await.expect("delete"), 0);
    assert!(!attributes.delete_owner_step("alice").await.expect("delete").more);
    for (owner, left) in [("al", 2), ("alice", 0), ("alice:a", 2), ("alice2", 2)] {
        let buckets = attributes.list_buckets(owner, None, 10).await.expect("list");
        assert_eq!(buckets.items.len(), left, "{owner}");
    }
}

pub(super) async fn pages_of_a_bucket_join_to_the_whole(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    for number in 0..25 {
        set(&bucket, &format!("n{number:02}"), json!(number)).await;
    }
    set(&bucket, "short", Draft::new(json!(0)).ttl(secs(1))).await;
    rig.pass(1);
    let mut after: Option<Cursor> = None;
    let mut met = Vec::new();
    loop {
        let page = bucket.list(after.as_ref(), 4).await.expect("list");
        assert!(page.items.len() <= 4);
        met.extend(page.items.into_iter().map(|attribute| attribute.data));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(met, (0..25).map(|number| json!(number)).collect::<Vec<_>>());
    for limit in [0, 1_001] {
        assert!(bucket.list(None, limit).await.is_err());
    }
}

pub(super) async fn buckets_are_listed_by_name(rig: StoreRig) {
    let attributes = rig.stores.attributes(&rig.scope);
    let mut expected = vec!["a", "ab", "a:b", "large", "z"];
    for name in &expected {
        set(&bucket(&rig, "alice", name), "x", json!(1)).await;
        set(&bucket(&rig, "alice", name), "y", json!(1)).await;
    }
    for number in 0..230 {
        set(&bucket(&rig, "alice", "large"), &format!("n{number}"), json!(number)).await;
    }
    set(&bucket(&rig, "alice", "over"), "x", Draft::new(json!(1)).ttl(secs(1))).await;
    set(&bucket(&rig, "bob", "bobs"), "x", json!(1)).await;
    rig.pass(1);
    expected.sort_unstable();
    for limit in [1, 2, 3, 100] {
        let mut after: Option<Cursor> = None;
        let mut met = Vec::new();
        loop {
            let page = attributes.list_buckets("alice", after.as_ref(), limit).await.expect("list");
            assert!(page.items.len() <= limit);
            met.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(met, expected, "{limit} at a time");
    }
    assert_eq!(attributes.list_buckets("carol", None, 10).await.expect("list").items, Vec::<String>::new());
    let strange = Cursor::from_bytes(*b"nonsense");
    assert!(attributes.list_buckets("alice", Some(&strange), 10).await.is_err());
}

pub(super) async fn changes_happen_together_or_not_at_all(rig: StoreRig) {
    let attributes = rig.stores.attributes(&rig.scope);
    let (clients, index) = (bucket(&rig, "alice", "clients"), bucket(&rig, "_oauth", "client_index"));
    let registered = rig.together(16, |rig, number| {
        let owner = format!("owner{number}");
        let changes = rig.stores.attributes(&rig.scope).changes();
        let changes = changes.insert(&bucket(&rig, "_oauth", "client_index"), "c1", json!(owner));
        let changes = changes.insert(&bucket(&rig, &owner, "clients"), "c1", json!({"owner": owner}));
        async move { changes.commit().await.expect("commit").is_applied() }
    });
    assert_eq!(registered.await.into_iter().filter(|applied| *applied).count(), 1);
    let owner = data(&index, "c1").await.expect("one was registered");
    let owner = owner.as_str().expect("a name");
    assert_eq!(data(&bucket(&rig, owner, "clients"), "c1").await, Some(json!({"owner": owner})));
    let stamp = set(&clients, "c2", json!(1)).await;
    let refused = attributes.changes().set(&clients, "c3", json!(1)).insert(&index, "c1", json!("again"));
    assert_eq!(refused.commit().await.expect("commit"), ebbtide::Commit::Refused { index: 1 });
    assert_eq!(data(&clients, "c3").await, None);
    let all = attributes.changes().check(&clients, "c2", stamp.version).delete(&index, "c1");
    assert!(all.commit().await.expect("commit").is_applied());
    let all = attributes.changes().remove_if(&clients, "c2", stamp.version);
    assert!(all.commit().await.expect("commit").is_applied());
    let stale = attributes.changes().replace(&clients, "c2", stamp.version, json!(2));
    assert!(!stale.commit().await.expect("commit").is_applied());
    assert_eq!((data(&index, "c1").await, data(&clients, "c2").await), (None, None));
}

pub(super) async fn changes_do_not_leave_the_scope(rig: StoreRig) {
    let elsewhere = Scope::tenant("other").expect("a good name");
    let there = rig.stores.attributes(&elsewhere).bucket("alice", "b").expect("good names");
    let changes = rig.stores.attributes(&rig.scope).changes();
    let changes = changes.set(&bucket(&rig, "alice", "b"), "a", json!(1)).set(&there, "a", json!(1));
    assert!(changes.commit().await.is_err());
    assert_eq!((data(&there, "a").await, data(&bucket(&rig, "alice", "b"), "a").await), (None, None));
    let bad = rig.stores.attributes(&rig.scope).changes().set(&bucket(&rig, "alice", "b"), "", json!(1));
    assert!(bad.commit().await.is_err());
}

pub(super) async fn scopes_do_not_share_attributes(rig: StoreRig) {
    let joined = Scope::tenant("acme:env:prod").expect("a good name");
    let nested = Scope::tenant_env("acme", "prod").expect("good names");
    let scopes = [rig.scope.clone(), joined, nested, Scope::Global];
    for scope in &scopes {
        let bucket = rig.stores.attributes(scope).bucket("alice", "b").expect("good names");
        assert_eq!(data(&bucket, "a").await, None, "{scope}");
        set(&bucket, "a", json!(scope.to_string())).await;
    }
    assert_eq!(rig.stores.attributes(&rig.scope).delete_owner("alice").await.expect("delete"), 1);
    for scope in &scopes[1..] {
        let bucket = rig.stores.attributes(scope).bucket("alice", "b").expect("good names");
        assert_eq!(data(&bucket, "a").await, Some(json!(scope.to_string())));
    }
}

pub(super) async fn presets_have_their_lives(rig: StoreRig) {
    let attributes = rig.stores.attributes(&rig.scope);
    for preset in presets::ALL {
        let owner = matches!(preset.holder, presets::Holder::EachOwner).then_some("alice");
        let bucket = attributes.preset(preset, owner).expect("a preset");
        let now = ebbtide::model::time::Clock::now(&rig.clock);
        let stamp = set(&bucket, "x", json!(1)).await;
        match preset.ttl().expect("a good TTL") {
            Some(ttl) => assert_eq!(stamp.expires_at.since(now), ttl.duration(), "{}", preset.bucket),
            None => assert_eq!(stamp.expires_at, Timestamp::NEVER, "{}", preset.bucket),
        }
        let own = set(&bucket, "y", Draft::new(json!(1)).ttl(secs(5))).await;
        assert_eq!(own.expires_at.since(now), secs(5).duration(), "a TTL of its own goes before");
        let wrong = if owner.is_some() { None } else { Some("alice") };
        assert!(attributes.preset(preset, wrong).is_err());
    }
    set(&attributes.system("app_settings").expect("a good name"), "maintenance", json!(false)).await;
    let settings = attributes.preset(&presets::APP_SETTINGS, None).expect("a preset");
    assert_eq!(data(&settings, "maintenance").await, Some(json!(false)));
}
