//! Records of frameworks as they are stored and listed.

use serde_json::json;

use super::records::{C, record, records, stored};
use super::rig::{StoreRig, secs};
use ebbtide::stores::records::{Acquire, Increment};

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
