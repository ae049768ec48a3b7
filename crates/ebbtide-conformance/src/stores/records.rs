//! Records of frameworks, one case for each row of the contract.

use std::time::Duration;

use super::rig::{StoreRig, secs};
use ebbtide::Secret;
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Version;
use ebbtide::model::time::{Clock as _, Timestamp};
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::records::{
    Acquire, AcquireOutcome, BatchOutcome, ConsumeOutcome, DeleteOutcome, GetOutcome, Increment,
    IncrementOutcome, PutOutcome, PutRecord, RecordAddress, RecordCondition, RecordValue, RecordWrite,
    Records, Refusal, TouchOutcome, TouchRecord, WriteAnswer,
};
use ebbtide::stores::shared::life::RecordTtl;
use serde_json::{Value, json};

pub(super) const C: &str = "sessions";

/// Contenders of a race.
const CONTENDERS: usize = 64;

pub(super) fn records(rig: &StoreRig) -> Records {
    rig.stores.records(&rig.scope)
}

pub(super) fn at(id: &str) -> RecordAddress {
    RecordAddress::id(C, id)
}

pub(super) fn by(key: &str) -> RecordAddress {
    RecordAddress::key(C, key)
}

pub(super) fn record(id: &str, value: Value) -> PutRecord {
    PutRecord::new(C, id, value).life(secs(100))
}

async fn put(records: &Records, put: &PutRecord) -> PutOutcome {
    records.put(put).await.expect("put")
}

/// Writes, and returns version, end, and whether it was created.
pub(super) async fn stored(records: &Records, request: &PutRecord) -> (Version, Timestamp, bool) {
    match put(records, request).await {
        PutOutcome::Stored { version, expires_at, created, .. } => (version, expires_at, created),
        refused => panic!("{refused:?}"),
    }
}

async fn value(records: &Records, address: &RecordAddress) -> Option<Value> {
    let found = records.get(address).await.expect("get").found();
    found.map(|found| found.value.to_json().expect("JSON").expect("written as JSON"))
}

pub(super) async fn a_record_is_put_and_read(rig: StoreRig) {
    let records = records(&rig);
    let (version, expires_at, created) = stored(&records, &record("a", json!({"user": "alice"}))).await;
    assert!(created);
    assert_eq!(expires_at.since(rig.clock.now()), Duration::from_secs(100));
    let GetOutcome::Found(found) = records.get(&at("a")).await.expect("get") else { panic!("it is live") };
    assert_eq!((found.version, found.expires_at, found.consumed_at), (version, expires_at, None));
    assert_eq!(found.id.as_str(), Some("a"));
    let (second, _, created) = stored(&records, &record("a", json!(null))).await;
    assert!(!created && second != version);
    assert_eq!(value(&records, &at("a")).await, Some(json!(null)));
    let bytes = PutRecord::new(C, "b", RecordValue::from_bytes(&b"\x00\xff"[..]));
    let (_, end, _) = stored(&records, &bytes).await;
    assert!(end.is_never(), "without a life and a policy there is no end");
    let found = records.get(&at("b")).await.expect("get").found().expect("it is live");
    assert_eq!((found.value.as_bytes().as_ref(), found.value.is_json()), (&b"\x00\xff"[..], false));
    let many = [at("b"), at("none"), at("a"), by("none"), at("a")];
    let many = records.get_many(&many).await.expect("get many");
    let ids: Vec<_> = many.iter().map(|found| found.as_ref().and_then(|found| found.id.as_str())).collect();
    assert_eq!(ids, [Some("b"), None, Some("a"), None, Some("a")]);
}

pub(super) async fn a_record_ends_at_the_instant(rig: StoreRig) {
    let records = records(&rig);
    let (_, end, _) = stored(&records, &record("a", json!(1))).await;
    rig.go_to(end, 1);
    assert!(value(&records, &at("a")).await.is_some());
    rig.go_to(end, 0);
    for sweep in [false, true] {
        if sweep {
            rig.sweep().await;
        }
        assert_eq!(records.get(&at("a")).await.expect("get"), GetOutcome::Unknown);
        assert!(records.take(&at("a")).await.expect("take").is_none());
        assert_eq!(records.consume(&at("a")).await.expect("consume"), ConsumeOutcome::Unknown);
        let touch = TouchRecord::new(at("a"), secs(5));
        assert_eq!(records.touch(&touch).await.expect("touch"), TouchOutcome::Unknown);
        let deleted = records.delete(&at("a"), RecordCondition::Any).await.expect("delete");
        assert_eq!(deleted, DeleteOutcome::Absent);
        let present = record("a", json!(2)).only_if(RecordCondition::Present);
        assert_eq!(put(&records, &present).await, PutOutcome::Conflict);
    }
    let absent = record("a", json!(3)).only_if(RecordCondition::Absent);
    assert!(stored(&records, &absent).await.2, "an expired record is absent");
}

pub(super) async fn a_put_depends_on_what_is_there(rig: StoreRig) {
    let records = records(&rig);
    let only = |condition| record("a", json!(1)).only_if(condition);
    assert_eq!(put(&records, &only(RecordCondition::Present)).await, PutOutcome::Conflict);
    let (version, ..) = stored(&records, &only(RecordCondition::Absent)).await;
    assert_eq!(put(&records, &only(RecordCondition::Absent)).await, PutOutcome::Conflict);
    let (next, _, created) = stored(&records, &only(RecordCondition::Version(version))).await;
    assert!(!created);
    assert_eq!(put(&records, &only(RecordCondition::Version(version))).await, PutOutcome::Conflict);
    assert!(!stored(&records, &only(RecordCondition::Present)).await.2);
    assert_eq!(put(&records, &only(RecordCondition::Version(next))).await, PutOutcome::Conflict);
}

pub(super) async fn a_life_is_given_kept_or_past(rig: StoreRig) {
    let records = records(&rig);
    let (_, end, _) = stored(&records, &record("a", json!(1))).await;
    rig.pass(10);
    let keep = PutRecord::new(C, "a", json!(2)).life(RecordTtl::Keep);
    assert_eq!(stored(&records, &keep).await.1, end);
    assert_eq!(value(&records, &at("a")).await, Some(json!(2)));
    let until = Timestamp::from_millis(end.as_millis() + 5).expect("a time");
    let later = PutRecord::new(C, "a", json!(3)).life(RecordTtl::Until(until));
    assert_eq!(stored(&records, &later).await.1, until);
    let past = PutRecord::new(C, "a", json!(4)).life(RecordTtl::Until(rig.clock.now()));
    assert_eq!(put(&records, &past).await, PutOutcome::Expired);
    assert_eq!(value(&records, &at("a")).await, Some(json!(3)), "nothing is written");
    assert!(stored(&records, &PutRecord::new(C, "a", json!(5))).await.1.is_never());
}

pub(super) async fn a_record_is_taken_once(rig: StoreRig) {
    let records = records(&rig);
    for linked in [false, true] {
        let mut request = record("a", json!(7));
        if linked {
            request = request.group("g").keys(["k"]);
        }
        stored(&records, &request).await;
        let taken = rig.together(CONTENDERS, |rig, index| async move {
            let address = if linked && index % 2 == 0 { by("k") } else { at("a") };
            self::records(&rig).take(&address).await.expect("take").is_some()
        });
        assert_eq!(taken.await.into_iter().filter(|taken| *taken).count(), 1);
        assert_eq!(records.get(&at("a")).await.expect("get"), GetOutcome::Unknown);
        assert_eq!(records.get(&by("k")).await.expect("get"), GetOutcome::Unknown);
    }
}

pub(super) async fn a_record_is_consumed_once(rig: StoreRig) {
    let records = records(&rig);
    let (version, end, _) = stored(&records, &record("a", json!(7)).group("g").keys(["k"])).await;
    let consumed = rig.together(CONTENDERS, |rig, index| async move {
        let address = if index % 2 == 0 { by("k") } else { at("a") };
        self::records(&rig).consume(&address).await.expect("consume")
    });
    let consumed = consumed.await;
    let won: Vec<_> =
        consumed.iter().filter(|outcome| matches!(outcome, ConsumeOutcome::Consumed(_))).collect();
    assert_eq!(won.len(), 1);
    let found = records.get(&at("a")).await.expect("get").found().expect("it stays readable");
    assert_eq!((found.consumed_at, found.expires_at), (Some(rig.clock.now()), end));
    assert_ne!(found.version, version);
    for outcome in consumed.iter().filter(|outcome| !matches!(outcome, ConsumeOutcome::Consumed(_))) {
        let used = ConsumeOutcome::Used {
            consumed_at: rig.clock.now(),
            version: found.version,
            group: Some("g".to_owned()),
        };
        assert_eq!(*outcome, used);
    }
    assert!(value(&records, &by("k")).await.is_some(), "its second keys go on leading to it");
    stored(&records, &record("a", json!(8))).await;
    let again = records.consume(&at("a")).await.expect("consume");
    assert!(matches!(again, ConsumeOutcome::Consumed(_)), "another write can be consumed again");
}

pub(super) async fn one_of_many_inserts_wins(rig: StoreRig) {
    for linked in [false, true] {
        let won = rig.together(CONTENDERS, |rig, index| async move {
            let id = if linked { "linked" } else { "plain" };
            let mut request = record(id, json!(index)).only_if(RecordCondition::Absent);
            if linked {
                request = request.group("g").keys(["k"]);
            }
            matches!(put(&records(&rig), &request).await, PutOutcome::Stored { .. })
        });
        assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1);
    }
}

pub(super) async fn a_touch_moves_the_end_of_record_and_keys(rig: StoreRig) {
    let records = records(&rig);
    stored(&records, &record("a", json!(1))).await;
    stored(&records, &record("b", json!(2)).keys(["k"]).group("g")).await;
    rig.pass(99);
    for address in [at("a"), by("k")] {
        let touched = records.touch(&TouchRecord::new(address, secs(100))).await.expect("touch");
        let TouchOutcome::Touched(touched) = touched else { panic!("it is live") };
        assert_eq!(touched.expires_at.since(rig.clock.now()), Duration::from_secs(100));
    }
    let touched = records.touch(&TouchRecord::new(at("b"), secs(100))).await.expect("touch");
    assert!(matches!(touched, TouchOutcome::Touched(_)), "linked, by its id");
    rig.pass(99);
    rig.sweep().await;
    assert_eq!(value(&records, &at("a")).await, Some(json!(1)));
    assert_eq!(value(&records, &by("k")).await, Some(json!(2)));
    rig.pass(1);
    assert_eq!(value(&records, &by("k")).await, None);
    let unknown = records.touch(&TouchRecord::new(at("a"), secs(1))).await.expect("touch");
    assert_eq!(unknown, TouchOutcome::Unknown, "a touch never revives");
    stored(&records, &record("a", json!(1))).await;
    let endless = records.touch(&TouchRecord::new(at("a"), RecordTtl::Never)).await.expect("touch");
    assert!(matches!(endless, TouchOutcome::Touched(record) if record.expires_at.is_never()));
}

pub(super) async fn a_delete_says_whether_there_was_one(rig: StoreRig) {
    let records = records(&rig);
    let delete =
        async |address: RecordAddress, condition| records.delete(&address, condition).await.expect("delete");
    assert_eq!(delete(at("a"), RecordCondition::Any).await, DeleteOutcome::Absent);
    for keys in [&[][..], &["k"]] {
        let (version, ..) = stored(&records, &record("a", json!(1)).keys(keys.iter().copied())).await;
        let (newer, ..) = stored(&records, &record("a", json!(1)).keys(keys.iter().copied())).await;
        assert_eq!(delete(at("a"), RecordCondition::Version(version)).await, DeleteOutcome::Conflict);
        assert_eq!(delete(at("a"), RecordCondition::Version(newer)).await, DeleteOutcome::Deleted);
        stored(&records, &record("a", json!(1)).keys(keys.iter().copied())).await;
        assert_eq!(delete(at("a"), RecordCondition::Any).await, DeleteOutcome::Deleted);
        assert_eq!(delete(at("a"), RecordCondition::Any).await, DeleteOutcome::Absent);
    }
    assert!(rig.contents().await.iter().all(|(key, _)| key.kind() != Kind::RecordKey), "no entry is left");
}

pub(super) async fn a_second_key_is_unique(rig: StoreRig) {
    let records = records(&rig);
    stored(&records, &record("a", json!("a")).keys(["mail", "name"])).await;
    assert_eq!(value(&records, &by("mail")).await, Some(json!("a")));
    assert_eq!(put(&records, &record("b", json!("b")).keys(["mail"])).await, PutOutcome::Conflict);
    assert_eq!(records.get(&at("b")).await.expect("get"), GetOutcome::Unknown, "nothing is written");
    stored(&records, &record("a", json!("a2")).keys(["name", "phone"])).await;
    assert_eq!(value(&records, &by("mail")).await, None, "the record no longer lists it");
    assert_eq!(value(&records, &by("phone")).await, Some(json!("a2")));
    stored(&records, &record("b", json!("b")).keys(["mail"])).await;
    assert_eq!(value(&records, &by("mail")).await, Some(json!("b")));
    // A write without keys leaves entries that lead to nothing, and are free.
    stored(&records, &record("a", json!("a3"))).await;
    assert_eq!(value(&records, &by("phone")).await, None);
    stored(&records, &record("b", json!("b")).keys(["phone", "name"])).await;
    rig.pass(100);
    stored(&records, &record("c", json!("c")).keys(["phone"])).await;
    assert_eq!(value(&records, &by("phone")).await, Some(json!("c")), "the key of an expired record is free");
    let won = rig.together(CONTENDERS, |rig, index| async move {
        let request = record(&format!("r{index}"), json!(index)).keys(["contended"]);
        matches!(put(&self::records(&rig), &request).await, PutOutcome::Stored { .. })
    });
    assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1);
}

pub(super) async fn a_retained_record_is_only_read(rig: StoreRig) {
    let records = records(&rig);
    let (version, end, _) = stored(&records, &record("a", json!(1)).retain(secs(50)).keys(["k"])).await;
    rig.go_to(end, 0);
    rig.sweep().await;
    for address in [at("a"), by("k")] {
        let GetOutcome::Expired(found) = records.get(&address).await.expect("get") else {
            panic!("retained")
        };
        assert_eq!((found.version, found.expires_at), (version, end));
        assert_eq!(found.value.to_json().expect("JSON"), Some(json!(1)));
        assert!(records.take(&address).await.expect("take").is_none());
        assert_eq!(records.consume(&address).await.expect("consume"), ConsumeOutcome::Unknown);
        let touch = TouchRecord::new(address.clone(), secs(1));
        assert_eq!(records.touch(&touch).await.expect("touch"), TouchOutcome::Unknown);
        let deleted = records.delete(&address, RecordCondition::Any).await.expect("delete");
        assert_eq!(deleted, DeleteOutcome::Absent);
        assert_eq!(records.get_many(std::slice::from_ref(&address)).await.expect("get many"), [None]);
        let same = record("a", json!(2)).only_if(RecordCondition::Version(version));
        assert_eq!(put(&records, &same).await, PutOutcome::Conflict);
        assert!(
            matches!(records.get(&address).await.expect("get"), GetOutcome::Expired(_)),
            "it is left alone"
        );
    }
    assert!(records.list(C, None, 10).await.expect("list").items.is_empty());
    let anew = record("a", json!(3)).only_if(RecordCondition::Absent);
    assert!(stored(&records, &anew).await.2, "it is absent to a write");
    assert_eq!(value(&records, &at("a")).await, Some(json!(3)));
    stored(&records, &record("b", json!(1)).retain(secs(50))).await;
    rig.pass(150);
    assert_eq!(records.get(&at("b")).await.expect("get"), GetOutcome::Unknown, "the retention ends too");
}

pub(super) async fn a_revoked_group_is_gone(rig: StoreRig) {
    let records = records(&rig);
    stored(&records, &record("a", json!(1)).group("g").keys(["k"])).await;
    stored(&records, &record("b", json!(2)).group("g").retain(secs(100))).await;
    stored(&records, &record("c", json!(3)).group("other")).await;
    let context = AuditContext::new("root", "a test").expect("a context");
    let end = records.revoke_group(C, "g", Some(&context)).await.expect("revoke");
    assert_eq!(Records::GROUP_CAP, Duration::from_secs(3_653 * 86_400), "as long as epochs are kept");
    assert_eq!(end.since(rig.clock.now()), Records::GROUP_CAP + Duration::from_secs(86_400));
    for address in [at("a"), by("k"), at("b")] {
        assert_eq!(records.get(&address).await.expect("get"), GetOutcome::Unknown);
        assert!(records.take(&address).await.expect("take").is_none());
        assert_eq!(records.consume(&address).await.expect("consume"), ConsumeOutcome::Unknown);
        let touch = TouchRecord::new(address.clone(), secs(500));
        assert_eq!(records.touch(&touch).await.expect("touch"), TouchOutcome::Unknown);
        let deleted = records.delete(&address, RecordCondition::Any).await.expect("delete");
        assert_eq!(deleted, DeleteOutcome::Absent);
    }
    assert_eq!(put(&records, &record("a", json!(4)).group("g")).await, PutOutcome::Revoked);
    let listed = records.list(C, None, 10).await.expect("list").items;
    assert_eq!(listed.iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), [Some("c")]);
    assert_eq!(records.get_many(&[at("a"), at("c")]).await.expect("get many").iter().flatten().count(), 1);
    let absent = record("a", json!(5)).only_if(RecordCondition::Absent);
    assert!(stored(&records, &absent).await.2, "without the group the id is free");
    rig.pass(99);
    assert_eq!(records.get(&at("b")).await.expect("get"), GetOutcome::Unknown);
    rig.pass(2);
    assert_eq!(records.get(&at("b")).await.expect("get"), GetOutcome::Unknown, "retained, and revoked");
    let log = rig.stores.audit(&rig.scope).list(None, 10).await.expect("audit").items;
    assert_eq!(log.len(), 1, "one entry, without the name of the group");
    let [collection, digest] = log[0].target.as_slice() else { panic!("a collection and a digest") };
    assert!(log[0].kind == Some(Kind::RecordGroup) && collection == C && digest.len() == 43, "{digest}");
    let long = record("long", json!(1)).life(RecordTtl::Never).group("other");
    let (_, end, _) = stored(&records, &long).await;
    assert_eq!(end.since(rig.clock.now()), Records::GROUP_CAP, "nothing with a group lives longer");
}

pub(super) async fn a_revoked_group_refuses_a_write_in_flight(rig: StoreRig) {
    // The write has read that the group is not revoked; then it is.
    let revoking = records(&rig);
    stored(&revoking, &record("there", json!(0)).group("h")).await;
    let revoke = async move {
        revoking.revoke_group(C, "g", None).await.expect("revoke");
        revoking.revoke_group(C, "h", None).await.expect("revoke");
    };
    let overtaken = rig.meanwhile(Kind::RecordGroup, revoke);
    let outcome = put(&records(&overtaken), &record("a", json!(1)).group("g")).await;
    assert_eq!(outcome, PutOutcome::Revoked);
    let records = records(&rig);
    assert_eq!(records.get(&at("a")).await.expect("get"), GetOutcome::Unknown);
    assert!(records.take(&at("there")).await.expect("take").is_none());
}

pub(super) async fn a_counter_is_exact_and_bounded(rig: StoreRig) {
    let records = records(&rig);
    let add = || Increment::new("sign-ins", "alice").life(secs(60));
    let outcome = records.increment(&add()).await.expect("increment");
    let end = rig.clock.now().checked_add(Duration::from_secs(60)).expect("a time");
    assert_eq!(outcome, IncrementOutcome::Counted { count: 1, expires_at: end });
    rig.pass(30);
    let counts = rig.together(CONTENDERS, |rig, _| async move {
        let add = Increment::new("sign-ins", "alice").life(secs(60));
        match self::records(&rig).increment(&add).await.expect("increment") {
            IncrementOutcome::Counted { count, .. } => count,
            other => panic!("{other:?}"),
        }
    });
    let mut counts = counts.await;
    counts.sort_unstable();
    assert_eq!(counts, (2..=65).collect::<Vec<_>>());
    let outcome = records.increment(&add().limit(65)).await.expect("increment");
    assert_eq!(
        outcome,
        IncrementOutcome::Exceeded { count: 65, expires_at: Some(end) },
        "its end is its first"
    );
    rig.go_to(end, 0);
    let counted = rig.together(CONTENDERS, |rig, _| async move {
        let add = Increment::new("sign-ins", "alice").life(secs(60)).limit(10);
        matches!(
            self::records(&rig).increment(&add).await.expect("increment"),
            IncrementOutcome::Counted { .. }
        )
    });
    assert_eq!(counted.await.into_iter().filter(|counted| *counted).count(), 10, "a limit is never passed");
    let outcome = records.increment(&add().by(-4)).await.expect("increment");
    assert!(matches!(outcome, IncrementOutcome::Counted { count: 6, .. }));
    assert_eq!(value(&records, &RecordAddress::id("sign-ins", "alice")).await, None, "a kind of its own");
}

pub(super) async fn a_lease_has_one_holder(rig: StoreRig) {
    let leases = rig.together(CONTENDERS, |rig, _| async move {
        match records(&rig).acquire(&Acquire::new(C, "job", secs(10))).await.expect("acquire") {
            AcquireOutcome::Acquired { lease, .. } => Some(lease),
            _ => None,
        }
    });
    let held: Vec<Secret> = leases.await.into_iter().flatten().collect();
    assert_eq!(held.len(), 1);
    let records = records(&rig);
    assert!(!records.release(C, "job", &Secret::new("another")).await.expect("release"));
    assert!(!records.release(C, "other", &held[0]).await.expect("release"));
    assert!(records.release(C, "job", &held[0]).await.expect("release"));
    assert!(!records.release(C, "job", &held[0]).await.expect("release"));
    let acquire = Acquire::new(C, "job", secs(10));
    let AcquireOutcome::Acquired { lease, expires_at } = records.acquire(&acquire).await.expect("acquire")
    else {
        panic!("it is free")
    };
    rig.go_to(expires_at, 1);
    assert_eq!(records.acquire(&acquire).await.expect("acquire"), AcquireOutcome::Held);
    rig.go_to(expires_at, 0);
    assert!(!records.release(C, "job", &lease).await.expect("release"), "it has ended");
    assert!(matches!(records.acquire(&acquire).await.expect("acquire"), AcquireOutcome::Acquired { .. }));
}

pub(super) async fn a_batch_of_records_is_all_or_nothing(rig: StoreRig) {
    let records = records(&rig);
    let (version, ..) = stored(&records, &record("a", json!(1))).await;
    stored(&records, &record("gone", json!(1)).keys(["k"])).await;
    let delete = |id: &str, condition| RecordWrite::Delete { collection: C.into(), id: id.into(), condition };
    let check = |id: &str, condition| RecordWrite::Check { collection: C.into(), id: id.into(), condition };
    let writes = [
        RecordWrite::Put(record("b", json!(2)).only_if(RecordCondition::Absent)),
        check("a", RecordCondition::Version(version)),
        check("none", RecordCondition::Absent),
        delete("gone", RecordCondition::Present),
        delete("never", RecordCondition::Any),
    ];
    let BatchOutcome::Applied(answers) = records.batch(&writes).await.expect("batch") else {
        panic!("it holds")
    };
    assert!(matches!(answers[0], WriteAnswer::Stored { created: true, .. }));
    assert_eq!(answers[3..], [WriteAnswer::Deleted(true), WriteAnswer::Deleted(false)]);
    assert_eq!(value(&records, &by("k")).await, None);
    let before = rig.contents().await;
    for (index, refused) in [
        (
            0,
            [
                RecordWrite::Put(record("b", json!(3)).only_if(RecordCondition::Absent)),
                delete("a", RecordCondition::Any),
            ],
        ),
        (1, [RecordWrite::Put(record("c", json!(3))), check("a", RecordCondition::Absent)]),
        (1, [RecordWrite::Put(record("c", json!(3))), delete("gone", RecordCondition::Present)]),
        (1, [delete("a", RecordCondition::Any), check("b", RecordCondition::Version(version))]),
    ] {
        let outcome = records.batch(&refused).await.expect("batch");
        assert_eq!(outcome, BatchOutcome::Refused { index, refusal: Refusal::Conflict });
        assert!(rig.contents().await == before, "nothing is written");
    }
    // Of batches that depend on what the others write, one wins.
    let won = rig.together(CONTENDERS, |rig, index| async move {
        let name = ["x", "y"][index % 2];
        let other = ["y", "x"][index % 2];
        let writes = [
            RecordWrite::Put(record(name, json!(index)).only_if(RecordCondition::Absent)),
            RecordWrite::Check { collection: C.into(), id: other.into(), condition: RecordCondition::Absent },
        ];
        matches!(self::records(&rig).batch(&writes).await.expect("batch"), BatchOutcome::Applied(_))
    });
    assert_eq!(won.await.into_iter().filter(|won| *won).count(), 1);
}

pub(super) async fn records_of_scopes_and_collections_are_apart(rig: StoreRig) {
    let (here, there) = (records(&rig), records(&rig.elsewhere()));
    stored(&here, &record("a", json!("here")).keys(["k"]).group("g")).await;
    stored(&there, &record("a", json!("there")).keys(["k"]).group("g")).await;
    let other = PutRecord::new("other", "a", json!("other")).keys(["k"]).group("g").life(secs(100));
    stored(&here, &other).await;
    here.revoke_group(C, "g", None).await.expect("revoke");
    assert_eq!(value(&here, &at("a")).await, None);
    assert_eq!(value(&there, &by("k")).await, Some(json!("there")));
    assert_eq!(value(&here, &RecordAddress::key("other", "k")).await, Some(json!("other")));
    let listed = here.list("other", None, 10).await.expect("list").items;
    assert_eq!(listed.len(), 1);
    let add = |records: Records| async move {
        records.increment(&Increment::new(C, "n")).await.expect("increment")
    };
    assert!(matches!(add(here).await, IncrementOutcome::Counted { count: 1, .. }));
    assert!(matches!(add(there).await, IncrementOutcome::Counted { count: 1, .. }));
}

pub(super) async fn ids_are_found_through_a_rotation_of_the_ring(rig: StoreRig) {
    let rng = ebbtide::SystemRng;
    let mut ring = rig.keyring().clone();
    let new = ring.add(&rng, rig.clock.now()).expect("add");
    let standby = rig.with_keyring(ring.clone());
    ring.activate(new).expect("activate");
    let rotated = rig.with_keyring(ring);
    for (number, (one, other)) in [(&standby, &rotated), (&rotated, &standby)].into_iter().enumerate() {
        let id = format!("id-{number}");
        let key = format!("key-{number}");
        stored(&records(one), &record(&id, json!(number)).keys([key.as_str()]).group("g")).await;
        assert_eq!(value(&records(other), &at(&id)).await, Some(json!(number)));
        assert_eq!(value(&records(other), &by(&key)).await, Some(json!(number)));
        assert!(!stored(&records(other), &record(&id, json!("again")).keys([key.as_str()])).await.2);
        let acquired = records(one).acquire(&Acquire::new(C, "l", secs(5))).await.expect("acquire");
        assert_eq!(matches!(acquired, AcquireOutcome::Acquired { .. }), number == 0);
        let counted = records(one).increment(&Increment::new(C, "n")).await.expect("increment");
        let count = i64::try_from(number).expect("small") + 1;
        assert!(matches!(counted, IncrementOutcome::Counted { count: counted, .. } if counted == count));
    }
    records(&rotated).revoke_group(C, "g", None).await.expect("revoke");
    let refused = put(&records(&standby), &record("late", json!(1)).group("g")).await;
    assert_eq!(refused, PutOutcome::Revoked);
}
