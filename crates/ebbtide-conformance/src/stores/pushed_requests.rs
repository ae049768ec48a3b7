//! Pushed requests are taken once, by the client that pushed them.

use serde_json::json;

use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::{Clock as _, Timestamp};
use ebbtide::stores::Field;
use ebbtide::stores::pushed_requests::{Push, PushOutcome, PushedRequests, Take, TakeOutcome};
use ebbtide::stores::shared::payload::Payload;

fn push() -> Push {
    Push::new("app", json!({"scope": "read"}))
}

async fn put(rig: &StoreRig, push: Push) -> Option<(Secret, Timestamp)> {
    match rig.stores.pushed_requests(&rig.scope).put(push).await.expect("put") {
        PushOutcome::Pushed { request_uri, expires_at } => Some((request_uri, expires_at)),
        _ => None,
    }
}

async fn take(rig: &StoreRig, uri: &Secret, client_id: &str) -> TakeOutcome {
    rig.stores.pushed_requests(&rig.scope).take(Take::new(uri, client_id)).await.expect("take")
}

fn taken() -> TakeOutcome {
    TakeOutcome::Taken { client_id: "app".to_owned(), params: Payload::new(json!({"scope": "read"})) }
}

pub(super) async fn a_request_is_taken_once_by_its_client(rig: StoreRig) {
    let (uri, _) = put(&rig, push()).await.expect("kept");
    assert!(uri.expose().starts_with(PushedRequests::URI_PREFIX));
    assert_eq!(take(&rig, &uri, "evil").await, TakeOutcome::Mismatch(Field::ClientId));
    assert_eq!(take(&rig, &uri, "app").await, taken(), "another client's take burns nothing");
    assert_eq!(take(&rig, &uri, "app").await, TakeOutcome::Used);
    for garbage in ["", "urn:ietf:params:oauth:request_uri:x", &"x".repeat(5_000)] {
        assert_eq!(take(&rig, &Secret::new(garbage), "app").await, TakeOutcome::Unknown);
    }
}

pub(super) async fn a_request_ends_at_the_instant(rig: StoreRig) {
    for (ttl, seconds) in [(None, 90), (Some(secs(600)), 600)] {
        let began = rig.clock.now();
        let push = || ttl.map_or_else(push, |ttl| push().ttl(ttl));
        let (early, _) = put(&rig, push()).await.expect("kept");
        let (late, expires_at) = put(&rig, push()).await.expect("kept");
        assert_eq!(expires_at.since(began).as_secs(), seconds);
        rig.go_to(expires_at, 1);
        assert_eq!(take(&rig, &early, "app").await, taken());
        rig.go_to(expires_at, 0);
        assert_eq!(take(&rig, &late, "app").await, TakeOutcome::Expired);
        rig.pass(24 * 3600 - 1);
        rig.sweep().await;
        assert_eq!(take(&rig, &late, "app").await, TakeOutcome::Expired, "remembered for a day");
        assert_eq!(take(&rig, &early, "app").await, TakeOutcome::Used);
        rig.pass(1);
        assert_eq!(take(&rig, &late, "app").await, TakeOutcome::Unknown, "and then forgotten");
    }
    let error = rig.stores.pushed_requests(&rig.scope).put(push().ttl(secs(601))).await.expect_err("long");
    assert!(error.message().contains("600"), "{error}");
}

pub(super) async fn a_uri_of_ones_own_is_used_once(rig: StoreRig) {
    let own = || push().request_uri(Secret::new("https://app.example/request/1"));
    let (uri, _) = put(&rig, own()).await.expect("kept");
    assert_eq!(put(&rig, own()).await, None);
    assert_eq!(take(&rig, &uri, "app").await, taken());
    assert_eq!(put(&rig, own()).await, None, "nor while it is remembered");
    let long = push().request_uri(Secret::new("x".repeat(1_025)));
    assert!(rig.stores.pushed_requests(&rig.scope).put(long).await.is_err());
}

pub(super) async fn one_of_many_takes_wins(rig: StoreRig) {
    for _ in 0..6 {
        let (uri, _) = put(&rig, push()).await.expect("kept");
        let answers = rig.together(16, |rig, index| {
            let uri = uri.clone();
            async move { take(&rig, &uri, if index == 3 { "evil" } else { "app" }).await }
        });
        let answers = answers.await;
        let count = |wanted: &TakeOutcome| answers.iter().filter(|answer| *answer == wanted).count();
        assert_eq!((count(&taken()), count(&TakeOutcome::Used)), (1, 14));
    }
}

pub(super) async fn a_take_that_was_overtaken_finds_it_used(rig: StoreRig) {
    let (uri, _) = put(&rig, push()).await.expect("kept");
    let (other, theirs) = (rig.clone(), uri.clone());
    let overtaken = rig.meanwhile(Kind::PushedRequest, async move {
        assert_eq!(take(&other, &theirs, "app").await, taken());
    });
    assert_eq!(take(&overtaken, &uri, "app").await, TakeOutcome::Used);
}

pub(super) async fn requests_of_another_scope_are_unknown(rig: StoreRig) {
    let (uri, _) = put(&rig, push()).await.expect("kept");
    let other = rig.elsewhere();
    assert_eq!(take(&other, &uri, "app").await, TakeOutcome::Unknown);
    assert_eq!(take(&rig, &uri, "app").await, taken());
}
