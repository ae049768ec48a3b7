//! Records of frameworks as they are stored and listed.

use serde_json::json;

use super::records::{C, at, by, record, records, stored};
use super::rig::{StoreRig, secs};
use ebbtide::model::time::Clock as _;
use ebbtide::stores::records::{Acquire, GetOutcome, Increment, PutRecord, TouchOutcome, TouchRecord};

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
    assert_eq!(error.kind(), ebbtide::ErrorKind::Unavailable);
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
