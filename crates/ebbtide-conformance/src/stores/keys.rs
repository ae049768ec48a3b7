//! Keys are added and retired; tokens stay valid until their key is retired.

use super::grants::{request, rotate, rotated};
use super::rig::StoreRig;
use ebbtide::keyring::Keyring;
use ebbtide::model::error::ErrorKind;
use ebbtide::model::rng::SeededRng;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{Holder, RotateOutcome};
use ebbtide::stores::shared::payload::Payload;

/// Three keyrings: one key, the same with a second and active one, and the second alone.
fn rings(rig: &StoreRig) -> [Keyring; 3] {
    let rng = SeededRng::new(7);
    let old = Keyring::generate(&rng, rig.clock.now());
    let mut both = old.clone();
    let id = both.add(&rng, rig.clock.now()).expect("there is room");
    both.activate(id).expect("it is in the ring");
    let mut new = both.clone();
    new.retire(old.active()).expect("it is not active");
    [old, both, new]
}

pub(super) async fn old_tokens_are_good_until_their_key_is_retired(rig: StoreRig) {
    let [old, both, new] = rings(&rig).map(|ring| rig.with_keyring(ring));
    let kept = old.stores.grants(&rig.scope).issue(request()).await.expect("issue");
    let left = old.stores.grants(&rig.scope).issue(request()).await.expect("issue");
    let next = rotated(&both, &kept.refresh_token).await;
    assert_eq!(rotate(&new, &left.refresh_token).await, RotateOutcome::Unknown, "its key is gone");
    let last = rotated(&new, &next.refresh_token).await;
    assert_eq!(last.data, next.data, "rotation moved the data to the new key too");
    assert_eq!(rotate(&old, &last.refresh_token).await, RotateOutcome::Unknown, "a node without the new key");
    rotated(&both, &left.refresh_token).await;
}

pub(super) async fn a_retry_gets_the_same_successor_across_a_change_of_keys(rig: StoreRig) {
    let [old, both, new] = rings(&rig).map(|ring| rig.with_keyring(ring));
    let issued = old.stores.grants(&rig.scope).issue(request()).await.expect("issue");
    let RotateOutcome::Rotated(first) = rotate(&old, &issued.refresh_token).await else {
        panic!("the token should rotate")
    };
    assert_eq!(rotate(&both, &issued.refresh_token).await, RotateOutcome::Retried(first.clone()));
    assert_eq!(rotate(&new, &issued.refresh_token).await, RotateOutcome::Unknown);
    rotated(&both, &first.refresh_token).await;
}

pub(super) async fn tokens_of_another_ring_are_unknown(rig: StoreRig) {
    let issued = rig.stores.grants(&rig.scope).issue(request()).await.expect("issue");
    let other = rig.with_keyring(Keyring::generate(&SeededRng::new(8), rig.clock.now()));
    let before = rig.contents().await;
    assert_eq!(rotate(&other, &issued.refresh_token).await, RotateOutcome::Unknown);
    assert_eq!(other.stores.grants(&rig.scope).revoke(&issued.refresh_token, None).await.expect("revoke"), 0);
    assert_eq!(rig.contents().await, before);
}

/// A value that cannot be opened is an error: neither "unknown" nor "without data".
pub(super) async fn what_is_sealed_under_a_retired_key_is_a_fault(rig: StoreRig) {
    let [old, _, new] = rings(&rig).map(|ring| rig.with_keyring(ring));
    let request = CodeRequest::new("app", "ada", "https://a").data(Payload::new("x"));
    let code = old.stores.codes(&rig.scope).issue(request).await.expect("issue").code;
    let presented = Redeem::new(code, "app").redirect_uri("https://a");
    let error = new.stores.codes(&rig.scope).redeem(presented.clone()).await.expect_err("its key is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "another node may have the key");
    let answer = old.stores.codes(&rig.scope).redeem(presented.clone()).await.expect("redeem");
    assert!(matches!(answer, RedeemOutcome::Redeemed(_)), "a fault burns nothing");
    let access = AccessRequest::alone("ada", "app").data(Payload::new("x"));
    let IssueOutcome::Issued(access) =
        old.stores.access_tokens(&rig.scope).issue(access).await.expect("issue")
    else {
        panic!("a token without a grant should be issued");
    };
    let tokens = new.stores.access_tokens(&rig.scope);
    assert_eq!(
        tokens.introspect(&access.access_token).await.expect_err("gone").kind(),
        ErrorKind::Unavailable
    );
}

pub(super) async fn a_record_under_a_retired_key_is_unavailable_and_not_lost(rig: StoreRig) {
    let [old, _, new] = rings(&rig).map(|ring| rig.with_keyring(ring));
    let issued = old.stores.grants(&rig.scope).issue(request()).await.expect("issue");
    let grants = new.stores.grants(&rig.scope);
    let listed = grants.list(Holder::Subject("ada"), None, 10).await;
    assert_eq!(listed.expect_err("nobody can tell who wrote it").kind(), ErrorKind::Unavailable);
    assert_eq!(grants.get(issued.grant_id).await.expect_err("the same").kind(), ErrorKind::Unavailable);
    let grants = old.stores.grants(&rig.scope);
    assert_eq!(grants.revoke(Holder::Subject("ada"), None).await.expect("revoke"), 1, "the key is back");
}
