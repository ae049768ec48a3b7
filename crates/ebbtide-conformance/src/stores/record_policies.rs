//! Policies of collections, and writes that keep what a record has.

use std::time::Duration;

use serde_json::json;

use super::approvals::context;
use super::policies::node;
use super::records::{C, at, by, record, records, stored};
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Version;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::{Clock as _, Timestamp};
use ebbtide::model::ttl::{PolicyTarget, TtlPolicies, TtlPolicy};
use ebbtide::stores::audit::Action;
use ebbtide::stores::records::{
    Acquire, AcquireOutcome, BatchOutcome, Increment, IncrementOutcome, Modification, PutRecord,
    RecordCondition, RecordValue, RecordWrite, Records, Refusal, TouchOutcome, TouchRecord, WriteAnswer,
};
use ebbtide::stores::shared::belongings::Parent;
use ebbtide::stores::shared::life::RecordTtl;

/// An hour by default, ten minutes to a day, enforced.
fn hour() -> TtlPolicy {
    TtlPolicy { default: Some(secs(3_600)), min: secs(600), max: secs(86_400), enforce: true }
}

async fn set(rig: &StoreRig, kind: Kind, collection: Option<&str>, scope: &Scope, policy: TtlPolicy) {
    let target = PolicyTarget::new(kind, collection);
    let set = rig.stores.policies(&Scope::Global).set(target, scope, policy, &context()).await;
    set.expect("set");
}

/// TTL in seconds of an end; none if there is none.
fn left(rig: &StoreRig, end: Timestamp) -> Option<u64> {
    (!end.is_never()).then(|| end.since(rig.clock.now()).as_secs())
}

pub(super) async fn a_policy_of_a_collection_bounds_its_records(rig: StoreRig) {
    set(&rig, Kind::Record, Some(C), &rig.scope, hour()).await;
    let records = records(&rig);
    let put = |life: RecordTtl| PutRecord::new(C, "a", json!(1)).life(life);
    let (_, end, _) = stored(&records, &put(RecordTtl::Default)).await;
    assert_eq!(left(&rig, end), Some(3_600), "the default");
    for bad in [599, 86_401] {
        let until = rig.clock.now().checked_add(Duration::from_secs(bad)).expect("in range");
        let bad = i64::try_from(bad).expect("small");
        for life in [RecordTtl::For(secs(bad)), RecordTtl::Until(until)] {
            let refused = records.put(&put(life)).await.expect_err("out of bounds");
            assert!(refused.message().contains("600 s to 86400 s"), "{refused}");
            assert!(records.touch(&TouchRecord::new(at("a"), life)).await.is_err());
            assert!(records.batch(&[RecordWrite::Put(put(life))]).await.is_err());
        }
    }
    let touched = records.touch(&TouchRecord::new(at("a"), RecordTtl::For(secs(700)))).await.expect("touch");
    assert!(matches!(touched, TouchOutcome::Touched(found) if left(&rig, found.expires_at) == Some(700)));
    let touched = records.touch(&TouchRecord::new(at("a"), RecordTtl::Never)).await.expect("touch");
    let TouchOutcome::Touched(found) = touched else { panic!("it is live") };
    assert_eq!(left(&rig, found.expires_at), Some(86_400), "no end is the longest");
    rig.pass_millis(1_000);
    let (_, end, _) = stored(&records, &put(RecordTtl::Keep)).await;
    assert_eq!(end, found.expires_at, "a kept end stays");
    let batch = records.batch(&[RecordWrite::Put(PutRecord::new(C, "b", json!(1)))]).await.expect("batch");
    let BatchOutcome::Applied(answers) = batch else { panic!("{batch:?}") };
    let WriteAnswer::Stored { expires_at, .. } = answers[0] else { panic!("{answers:?}") };
    assert_eq!(left(&rig, expires_at), Some(3_600));
    let number = records.increment_text(C, &"n".into(), 1).await;
    assert!(number.is_ok());
    let counted = records.get(&at("n")).await.expect("get").found().expect("live");
    assert_eq!(left(&rig, counted.expires_at), Some(3_600));
    let other = PutRecord::new("other", "a", json!(1));
    let (_, end, _) = stored(&records, &other).await;
    assert!(end.is_never(), "another collection has no policy");
    let (_, end, _) = stored(&rig.stores.records(&Scope::Global), &put(RecordTtl::Default)).await;
    assert!(end.is_never(), "another scope has no policy");
}

pub(super) async fn counters_and_leases_of_a_collection_have_policies(rig: StoreRig) {
    let records = records(&rig);
    for kind in [Kind::Counter, Kind::Lease] {
        set(&rig, kind, Some(C), &rig.scope, hour()).await;
    }
    let count = async |records: &Records, increment: Increment| records.increment(&increment).await;
    let counted = count(&records, Increment::new(C, "n")).await.expect("increment");
    let IncrementOutcome::Counted { expires_at, .. } = counted else { panic!("{counted:?}") };
    assert_eq!(left(&rig, expires_at), Some(3_600));
    assert!(count(&records, Increment::new(C, "m").life(secs(10))).await.is_err());
    assert!(count(&records, Increment::new("other", "m").life(secs(10))).await.is_ok());
    let acquired = records.acquire(&Acquire::new(C, "l", RecordTtl::Default)).await.expect("acquire");
    assert!(
        matches!(acquired, AcquireOutcome::Acquired { expires_at, .. } if left(&rig, expires_at) == Some(3_600))
    );
    assert!(records.acquire(&Acquire::new(C, "m", secs(10))).await.is_err());
    let (_, end, _) = stored(&records, &PutRecord::new(C, "r", json!(1))).await;
    assert!(end.is_never(), "records are another kind");
    let policies = rig.stores.policies(&Scope::Global);
    let none = TtlPolicy { default: None, ..hour() };
    let leases = PolicyTarget::new(Kind::Lease, Some(C));
    assert!(policies.set(leases, &rig.scope, none, &context()).await.is_err(), "30 s are refused");
    let codes = PolicyTarget::new(Kind::Code, Some(C));
    assert!(policies.set(codes, &rig.scope, hour(), &context()).await.is_err(), "codes have no collections");
}

pub(super) async fn the_nearest_scope_and_then_the_collection_decides(rig: StoreRig) {
    let day = TtlPolicy { default: Some(secs(86_400)), ..hour() };
    let minutes = TtlPolicy { default: Some(secs(600)), ..hour() };
    let other = node(&rig, TtlPolicies::default());
    let reload = async || other.policies(&Scope::Global).reload().await.expect("reload");
    let life = async |collection: &str| {
        let mut ends = Vec::new();
        for stores in [&rig.stores, &other] {
            let put = PutRecord::new(collection, "a", json!(1));
            let (_, end, _) = stored(&stores.records(&rig.scope), &put).await;
            ends.push(left(&rig, end));
        }
        assert_eq!(ends[0], ends[1], "both nodes agree");
        ends[0]
    };
    set(&rig, Kind::Record, Some(C), &Scope::Global, minutes).await;
    reload().await;
    assert_eq!((life(C).await, life("other").await), (Some(600), None));
    set(&rig, Kind::Record, None, &rig.scope, day).await;
    reload().await;
    assert_eq!((life(C).await, life("other").await), (Some(86_400), Some(86_400)), "the scope is nearer");
    set(&rig, Kind::Record, Some(C), &rig.scope, hour()).await;
    reload().await;
    assert_eq!((life(C).await, life("other").await), (Some(3_600), Some(86_400)));
    let policies = rig.stores.policies(&Scope::Global);
    assert_eq!(policies.list().await.expect("list").len(), 3);
    let target = PolicyTarget::new(Kind::Record, Some(C));
    let found = policies.in_force(target, &rig.scope).await.expect("in force").expect("one");
    assert_eq!(
        (found.scope, found.collection.as_deref(), found.policy),
        (rig.scope.clone(), Some(C), hour())
    );
    assert_eq!(found.stored.map(|stored| stored.version), Some(1));
    let strict = TtlPolicy { max: secs(3_600), ..hour() };
    let simulated = policies.simulate(target, &rig.scope, strict).await.expect("simulate");
    assert_eq!((simulated.live, simulated.too_long), (1, 0), "the other collection is not counted");
    let removed = policies.unset(target, &rig.scope, &context()).await.expect("unset");
    assert_eq!(removed, Some(hour()));
    reload().await;
    assert_eq!(life(C).await, Some(86_400));
    let mut entries = rig.stores.audit(&rig.scope).list(None, 100).await.expect("list").items;
    entries.retain(|entry| entry.action == Action::Policy);
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[1].target, [C], "the entry names the collection");
}

pub(super) async fn a_change_of_the_value_keeps_group_and_keys(rig: StoreRig) {
    let records = records(&rig);
    let (version, end, _) = stored(&records, &record("a", json!(1)).keys(["k"]).group("g")).await;
    let change =
        |life: RecordTtl| PutRecord::new(C, "a", RecordValue::from_bytes("2")).life(life).inheriting();
    rig.pass_millis(10);
    let (second, kept, created) = stored(&records, &change(RecordTtl::Keep)).await;
    assert!(kept == end && !created && second != version);
    let found = records.get(&by("k")).await.expect("get").found().expect("by its key");
    assert_eq!((found.value.as_bytes().as_ref(), found.group.as_deref()), (&b"2"[..], Some("g")));
    let (_, moved, _) = stored(&records, &change(RecordTtl::For(secs(500)))).await;
    assert_eq!(left(&rig, moved), Some(500));
    assert_eq!(records.get(&by("k")).await.expect("get").found().map(|found| found.expires_at), Some(moved));
    let put =
        |_: Option<&_>| Ok(Modification::Put { value: RecordValue::from_bytes("3"), life: RecordTtl::Keep });
    records.modify(C, &"a".into(), put).await.expect("modify");
    assert!(records.get(&by("k")).await.expect("get").found().is_some_and(|found| found.group.is_some()));
    let own = change(RecordTtl::Keep).group("h");
    assert!(records.put(&own).await.is_err(), "it has a group already");
    records.revoke_group(C, "g", None).await.expect("revoke");
    let (_, end, created) = stored(&records, &change(RecordTtl::Keep)).await;
    assert!(created && end.is_never(), "a revoked record is absent");
    assert_eq!(records.get(&by("k")).await.expect("get").found(), None);
    // A consumed record stays consumed.
    stored(&records, &record("c", json!(1))).await;
    let _ = records.consume(&at("c")).await.expect("consume");
    records.modify(C, &"c".into(), put).await.expect("modify");
    let found = records.get(&at("c")).await.expect("get").found().expect("live");
    assert!(found.consumed_at.is_some() && found.value.as_bytes().as_ref() == b"3");
}

pub(super) async fn a_change_against_a_revocation_leaves_nothing(rig: StoreRig) {
    let records = records(&rig);
    let (version, ..) = stored(&records, &record("a", json!(1)).group("g")).await;
    let outcomes = rig.together(16, |rig, index| async move {
        let records = super::records::records(&rig);
        if index == 8 {
            records.revoke_group(C, "g", None).await.expect("revoke");
            return;
        }
        let change = PutRecord::new(C, "a", json!(index)).life(RecordTtl::Keep).inheriting();
        let batch = [RecordWrite::Put(change.only_if(present(version)))];
        let _ = records.batch(&batch).await.expect("batch");
    });
    outcomes.await;
    assert_eq!(records.get(&at("a")).await.expect("get").found(), None);
    let put = record("a", json!(1)).group("g");
    let refused = records.batch(&[RecordWrite::Put(put)]).await.expect("batch");
    assert_eq!(refused, BatchOutcome::Refused { index: 0, refusal: Refusal::Revoked });
}

pub(super) async fn a_record_goes_with_what_it_belongs_to(rig: StoreRig) {
    let records = records(&rig);
    let of = |owner: &str| Parent::Owner(owner.to_owned());
    stored(&records, &record("a", json!(1)).keys(["k"]).belongs_to(of("bob"))).await;
    stored(&records, &record("b", json!(1)).belongs_to(of("bob"))).await;
    stored(&records, &record("c", json!(1)).belongs_to(of("bob"))).await;
    stored(&records, &record("c", json!(2))).await;
    stored(&records, &PutRecord::new(C, "a", json!(3)).life(RecordTtl::Keep).inheriting()).await;
    let belongings = rig.stores.belongings(&rig.scope);
    let mut listed: Vec<_> =
        belongings.list(&of("bob")).await.expect("list").into_iter().map(|b| b.names).collect();
    listed.sort_unstable();
    assert_eq!(listed, [[C, "a"], [C, "b"]]);
    super::owners::delete(&rig, "bob").await;
    assert_eq!(records.get(&at("a")).await.expect("get").found(), None);
    assert_eq!(records.get(&by("k")).await.expect("get").found(), None);
    assert_eq!(records.get(&at("b")).await.expect("get").found(), None);
    assert!(records.get(&at("c")).await.expect("get").found().is_some(), "it no longer belonged to them");
    let left = rig.contents().await;
    assert!(!left.iter().any(|(key, _)| key.kind() == Kind::RecordKey), "its entry is gone");
}

pub(super) async fn writing_against_deleting_leaves_no_record(rig: StoreRig) {
    let bob = || Parent::Owner("bob".to_owned());
    for n in 0..8 {
        stored(&records(&rig), &record(&format!("r{n}"), json!(1)).belongs_to(bob())).await;
    }
    let race = rig.together(16, |rig, index| async move {
        if index == 8 {
            super::owners::delete(&rig, "bob").await;
            return;
        }
        let records = records(&rig);
        let id = format!("r{}", index % 8);
        let change = PutRecord::new(C, id.as_str(), json!(index)).life(RecordTtl::Keep).inheriting();
        let _ = records.put(&change.only_if(RecordCondition::Present)).await.expect("put");
    });
    race.await;
    for n in 0..8 {
        let found = records(&rig).get(&at(&format!("r{n}"))).await.expect("get").found();
        assert_eq!(found, None, "a change of the value brings nothing back");
    }
}

fn present(version: Version) -> RecordCondition {
    RecordCondition::Version(version)
}
