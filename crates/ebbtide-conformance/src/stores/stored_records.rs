//! Records of frameworks as they are stored and listed.

use serde_json::json;

use super::records::{C, at, by, record, records, stored};
use super::rig::{StoreRig, secs};
use ebbtide::ErrorKind;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::records::{
    Acquire, GetOutcome, Increment, PutOutcome, PutRecord, RecordCondition, TouchOutcome, TouchRecord,
};
use ebbtide::stores::shared::life::RecordTtl;

pub(super) async fn nothing_of_a_record_is_stored_in_clear(rig: StoreRig) {
    let secret = "correct-horse-battery-staple";
    let records = records(&rig);
    let request = record(secret, json!({"token": secret})).keys([secret]).group(secret);
    stored(&records, &request).await;
    let _ = records.increment(&Increment::new(C, secret)).await.expect("increment");
    let _ = records.acquire(&Acquire::new(C, secret, secs(5))).await.expect("acquire");
    records.revoke_group(C, secret, None).await.expect("revoke");
    for (key, stored) in rig.contents().await {
        for bytes in [key.as_bytes(), &stored.value] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{}", key.kind());
        }
    }
}

pub(super) async fn a_listing_has_ids_and_no_values(rig: StoreRig) {
    let records = records(&rig);
    for n in 0..25 {
        stored(&records, &record(&format!("id-{n}"), json!(n))).await;
    }
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = records.list(C, after.as_ref(), 10).await.expect("list");
        assert!(page.items.len() <= 10);
        ids.extend(page.items.into_iter().map(|item| item.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ids.sort_unstable();
    let mut all: Vec<_> =
        (0..25).map(|n| ebbtide::stores::records::RecordId::from(format!("id-{n}"))).collect();
    all.sort_unstable();
    assert_eq!(ids, all);
}

pub(super) async fn a_store_has_one_naming_key(rig: StoreRig) {
    stored(&records(&rig), &record("a", json!(1))).await;
    let stranger = ebbtide::Keyring::generate(&ebbtide::SystemRng, rig.clock.now());
    let error = records(&rig.with_keyring(stranger)).get(&at("a")).await.expect_err("another naming key");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("named with the key"), "{error}");
}

pub(super) async fn a_record_slides_up_to_its_cap(rig: StoreRig) {
    let records = records(&rig);
    let sliding = PutRecord::new(C, "s", json!(1)).life(secs(10)).sliding(secs(25)).keys(["k"]).group("g");
    let (first, _, _) = stored(&records, &sliding).await;
    rig.pass_millis(999);
    let read = records.get(&at("s")).await.expect("get").found().expect("live");
    assert_eq!(read.version, first, "not every read is worth a write");
    rig.pass_millis(1);
    for _ in 0..3 {
        rig.pass(8);
        let Some(read) = records.get(&by("k")).await.expect("get").found() else { break };
        let left = read.expires_at.since(rig.clock.now());
        assert!(read.slides && left <= secs(10).duration() && Some(read.expires_at) <= read.cap_at);
    }
    assert_eq!(records.get(&at("s")).await.expect("get"), GetOutcome::Unknown, "25 seconds are over");
    let capped = PutRecord::new(C, "c", json!(1)).life(secs(10)).cap(secs(12));
    stored(&records, &capped).await;
    rig.pass(9);
    let touched = records.touch(&TouchRecord::new(at("c"), secs(10))).await.expect("touch");
    assert!(matches!(touched, TouchOutcome::Touched(found) if Some(found.expires_at) == found.cap_at));
    rig.pass(3);
    assert_eq!(records.get(&at("c")).await.expect("get"), GetOutcome::Unknown);
}

pub(super) async fn puts_together_are_answered_each_by_itself(rig: StoreRig) {
    let records = records(&rig);
    let new = |id: &str| record(id, json!(id)).only_if(RecordCondition::Absent);
    let (_, end, _) = stored(&records, &record("retained", json!(0)).life(secs(50)).retain(secs(500))).await;
    rig.go_to(end, 0);
    stored(&records, &record("taken", json!(0))).await;
    let puts = [
        new("a"),
        new("taken"),
        new("b"),
        record("taken too", json!(0)),
        new(""),
        new("short").life(secs(1)),
        new("past").life(RecordTtl::Until(rig.clock.now())),
        new("retained"),
        new("c").keys(["k"]),
        new("d"),
    ];
    let stored: Vec<_> = records
        .put_each(&puts)
        .await
        .into_iter()
        .map(|answer| match answer {
            Ok(PutOutcome::Stored { created, .. }) => format!("created {created}"),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("{:?}", error.kind()),
        })
        .collect();
    let invalid = format!("{:?}", ErrorKind::Invalid);
    let made = "created true";
    let expected = [made, "Conflict", made, made, &invalid, made, "Expired", made, made, made];
    assert_eq!(stored, expected);
    let there = ["a", "b", "taken too", "short", "retained", "c", "d"].map(at);
    assert!(records.get_many(&there).await.expect("get many").iter().all(Option::is_some));
    assert!(records.get(&by("k")).await.expect("get").found().is_some());
    assert!(records.put_each(&[]).await.is_empty());
    // Contenders with the same ids, in one order and the other: each id has one winner.
    let won = rig.together(16, |rig, index| async move {
        let mut ids: Vec<_> = (0..16).map(|id| format!("race {id}")).collect();
        if index % 2 == 1 {
            ids.reverse();
        }
        let puts: Vec<_> =
            ids.iter().map(|id| record(id, json!(index)).only_if(RecordCondition::Absent)).collect();
        let answers = super::records::records(&rig).put_each(&puts).await;
        answers.into_iter().filter(|answer| matches!(answer, Ok(PutOutcome::Stored { .. }))).count()
    });
    assert_eq!(won.await.into_iter().sum::<usize>(), 16);
}
