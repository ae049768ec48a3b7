//! Attributes end on time, and are extended only within bounds.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::attributes::{bucket, get, set, swap};
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::rng::SystemRng;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::{Clock, Timestamp};
use ebbtide::model::ttl::{TtlPolicies, TtlPolicy};
use ebbtide::stores::Stores;
use ebbtide::stores::attributes::{Bucket, ChangeOutcome, Draft, SwapOutcome};
use ebbtide::stores::shared::extension::{ExtendOutcome, Extension};

pub(super) fn by(seconds: i64) -> Extension {
    Extension::by(secs(seconds), "root", "a good reason").expect("good words")
}

pub(super) async fn extend(bucket: &Bucket, name: &str, extension: &Extension) -> ExtendOutcome {
    bucket.extend(name, extension).await.expect("extend")
}

pub(super) async fn an_attribute_ends_at_the_instant(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    for round in ["unswept", "swept"] {
        let stamp = set(&bucket, "a", Draft::new(json!(1)).ttl(secs(10))).await;
        rig.go_to(stamp.expires_at, 1);
        assert!(get(&bucket, "a").await.is_some());
        rig.go_to(stamp.expires_at, 0);
        assert!(get(&bucket, "a").await.is_none(), "{round}");
        if round == "swept" {
            rig.pass(1);
            assert_eq!(rig.sweep().await.total(), 1);
        }
        assert_eq!(swap(&bucket, "a", &json!(1), json!(2)).await, None);
        let replaced = bucket.replace("a", stamp.version, json!(2)).await.expect("replace");
        assert_eq!(replaced, ChangeOutcome::Refused);
        assert!(!bucket.delete("a").await.expect("delete"));
        assert!(!bucket.remove_if("a", stamp.version).await.expect("remove"));
        assert!(bucket.take("a").await.expect("take").is_none());
        assert!(bucket.list(None, 10).await.expect("list").items.is_empty());
        assert_eq!(bucket.delete_bucket().await.expect("delete"), 0);
        let inserted = bucket.insert("a", json!(3)).await.expect("insert");
        assert!(matches!(inserted, ChangeOutcome::Applied(_)));
        assert!(bucket.delete("a").await.expect("delete"));
    }
}

pub(super) async fn a_swap_keeps_the_life_unless_told_otherwise(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let time = Timestamp::from_millis(77).expect("a good time");
    let first = set(&bucket, "a", Draft::new(json!(1)).sliding_ttl(secs(100), secs(150))).await;
    rig.pass(5);
    let kept = swap(&bucket, "a", &json!(1), Draft::new(json!(2)).timestamp(time)).await.expect("swap");
    assert_eq!(kept.expires_at, first.expires_at);
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!((read.slides, read.timestamp, read.version), (true, Some(time), kept.version));
    assert_eq!(read.cap_at.map(|cap| cap.since(first.expires_at)), Some(Duration::from_secs(50)));
    let now = rig.clock.now();
    let anew = swap(&bucket, "a", &json!(2), Draft::new(json!(3)).ttl(secs(7))).await.expect("swap");
    assert_eq!(anew.expires_at.since(now), Duration::from_secs(7));
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!((read.slides, read.cap_at, read.timestamp), (false, None, None));
    rig.go_to(anew.expires_at, 0);
    assert!(matches!(
        bucket.compare_and_swap("a", &json!(3), json!(4)).await.expect("swap"),
        SwapOutcome::Conflict { current: None }
    ));
}

pub(super) async fn a_read_renews_what_slides(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let first = set(&bucket, "a", Draft::new(json!(1)).sliding_ttl(secs(100), secs(1_000))).await;
    set(&bucket, "still", Draft::new(json!(1)).ttl(secs(100))).await;
    for _ in 0..5 {
        rig.pass(99);
        let now = rig.clock.now();
        let read = get(&bucket, "a").await.expect("it is read in time");
        assert_eq!(read.expires_at.since(now), Duration::from_secs(100));
        assert_ne!(read.version, first.version);
        let replaced = bucket.replace("a", first.version, json!(2)).await.expect("replace");
        assert_eq!(replaced, ChangeOutcome::Refused, "a renewal is a writing");
    }
    assert!(get(&bucket, "still").await.is_none(), "what does not slide is not renewed");
    bucket.list(None, 10).await.expect("list");
    rig.pass(100);
    assert!(get(&bucket, "a").await.is_none(), "a listing renews nothing, and nothing is revived");
}

pub(super) async fn a_read_never_renews_past_the_cap(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let began = rig.clock.now();
    set(&bucket, "a", Draft::new(json!(1)).sliding_ttl(secs(100), secs(250))).await;
    rig.pass(80);
    assert!(get(&bucket, "a").await.is_some());
    rig.pass(90);
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!(read.expires_at.since(began), Duration::from_secs(250), "170 + 100, but 250 at the most");
    assert_eq!(read.cap_at, Some(read.expires_at));
    rig.go_to(read.expires_at, 1);
    assert_eq!(get(&bucket, "a").await.expect("there").expires_at, read.expires_at);
    rig.go_to(read.expires_at, 0);
    assert!(get(&bucket, "a").await.is_none());
}

pub(super) async fn a_read_renews_only_where_it_is_worth_it(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let first = set(&bucket, "a", Draft::new(json!(1)).sliding_ttl(secs(100), secs(1_000))).await;
    rig.pass(9);
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!((read.version, read.expires_at), (first.version, first.expires_at), "nothing was written");
    rig.pass(1);
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!(read.expires_at.since(first.expires_at), Duration::from_secs(10));
}

pub(super) async fn readers_beside_a_writer_lose_none_of_its_writes(rig: StoreRig) {
    let draft = |number: u64| Draft::new(json!(number));
    set(&bucket(&rig, "alice", "b"), "a", draft(0).sliding_ttl(secs(2_000), secs(100_000))).await;
    let counted = rig.together(20, |rig, index| async move {
        let bucket = bucket(&rig, "alice", "b");
        let mut swapped = 0;
        for _ in 0..20 {
            rig.pass(3);
            let read = get(&bucket, "a").await.expect("it is read often enough").data;
            let number = read.as_u64().expect("it counts");
            if index < 4 && swap(&bucket, "a", &read, draft(number + 1)).await.is_some() {
                swapped += 1;
            }
        }
        swapped
    });
    let swapped: u64 = counted.await.into_iter().sum();
    assert_eq!(get(&bucket(&rig, "alice", "b"), "a").await.expect("there").data, json!(swapped));
}

pub(super) async fn an_extension_is_longer_and_never_past_the_cap(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let began = rig.clock.now();
    let first = set(&bucket, "a", Draft::new(json!(1)).ttl(secs(100)).cap(secs(300))).await;
    rig.pass(50);
    let ExtendOutcome::Extended { expires_at, was, version } = extend(&bucket, "a", &by(100)).await else {
        panic!("100 more is within the cap");
    };
    assert_eq!((expires_at.since(began), was), (Duration::from_secs(200), first.expires_at));
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!((read.expires_at, read.version, read.data), (expires_at, version, json!(1)));
    let cap_at = read.cap_at.expect("it has a cap");
    assert_eq!(extend(&bucket, "a", &by(101)).await, ExtendOutcome::BeyondCap { expires_at, cap_at });
    for shorter in [
        Extension::until(expires_at, "root", "no longer"),
        Extension::until(was, "root", "shorter"),
        Extension::from_now(secs(10), "root", "shorter"),
    ] {
        let answer = extend(&bucket, "a", &shorter.expect("good words")).await;
        assert_eq!(answer, ExtendOutcome::NotLonger { expires_at });
    }
    assert_eq!(get(&bucket, "a").await.expect("there").expires_at, expires_at, "nothing was changed");
    let to_the_cap = Extension::until(cap_at, "root", "as long as may be").expect("good words");
    assert!(extend(&bucket, "a", &to_the_cap).await.is_extended());
    set(&bucket, "b", json!(1)).await;
    let never = ExtendOutcome::NotLonger { expires_at: Timestamp::NEVER };
    assert_eq!(extend(&bucket, "b", &by(1)).await, never);
    for (actor, reason) in [("", "why"), ("who", ""), ("who\n", "why")] {
        assert!(Extension::by(secs(1), actor, reason).is_err());
    }
}

pub(super) async fn an_extension_never_revives(rig: StoreRig) {
    let bucket = bucket(&rig, "alice", "b");
    let stamp = set(&bucket, "a", Draft::new(json!(1)).ttl(secs(100))).await;
    rig.go_to(stamp.expires_at, 0);
    assert_eq!(extend(&bucket, "a", &by(100)).await, ExtendOutcome::Unknown);
    assert_eq!(extend(&bucket, "none", &by(100)).await, ExtendOutcome::Unknown);
    assert!(get(&bucket, "a").await.is_none());
}

/// Bucket with a policy for attributes in the rig's scope, on the rig's backend and clock.
fn with_policy(rig: &StoreRig, policy: TtlPolicy) -> Bucket {
    let mut policies = TtlPolicies::default();
    policies.set(Kind::Attribute, Scope::Global, policy).expect("a good policy");
    let builder = Stores::builder_for_tests(Arc::clone(&rig.backend))
        .keyring(rig.keyring().clone())
        .clock(rig.clock.clone())
        .rng(SystemRng);
    let stores = builder.policies(policies).build();
    stores.attributes(&rig.scope).bucket("alice", "b").expect("good names")
}

pub(super) async fn an_extension_keeps_within_the_policy(rig: StoreRig) {
    let bucket = with_policy(&rig, TtlPolicy::temporary());
    let began = rig.clock.now();
    set(&bucket, "a", json!(1)).await;
    rig.pass(600);
    let beyond = extend(&bucket, "a", &by(24 * 3600)).await;
    let ExtendOutcome::BeyondCap { cap_at, .. } = beyond else { panic!("a day is the longest: {beyond:?}") };
    assert_eq!(cap_at.since(began), Duration::from_secs(24 * 3600), "from when it was set");
    assert!(
        extend(&bucket, "a", &Extension::until(cap_at, "root", "why").expect("good")).await.is_extended()
    );
    let advisory = with_policy(&rig, TtlPolicy { enforce: false, ..TtlPolicy::temporary() });
    assert!(extend(&advisory, "a", &by(24 * 3600)).await.is_extended(), "a policy that is not enforced");
}

pub(super) async fn a_policy_bounds_what_is_set(rig: StoreRig) {
    let bucket = with_policy(&rig, TtlPolicy::temporary());
    let now = rig.clock.now();
    assert_eq!(set(&bucket, "a", json!(1)).await.expires_at.since(now), Duration::from_secs(3600));
    for seconds in [59, 86_401] {
        let refused = bucket.set("a", Draft::new(json!(2)).ttl(secs(seconds))).await.expect_err("outside");
        assert!(refused.message().contains("60 s to 86400 s"), "{refused}");
    }
    let sliding = Draft::new(json!(3)).sliding_ttl(secs(80_000), secs(200_000));
    set(&bucket, "a", sliding).await;
    rig.pass(70_000);
    let read = get(&bucket, "a").await.expect("there");
    assert_eq!(read.expires_at.since(now), Duration::from_secs(86_400), "the policy's longest is a cap too");
}
