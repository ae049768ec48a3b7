//! Interleavings: each call is decided by the state at its write, not at its read.

use super::grants::{access_token, get, grace, is_active, is_revoked, issue, rotate, rotated};
use super::rig::StoreRig;
use ebbtide::model::kind::Kind;
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::codes::{CodeRequest, IssuedCode, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantId, GrantState, GrantTtls, RotateOutcome, Why};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::stores::provider_tokens::AttachOutcome;
use ebbtide::stores::shared::payload::Payload;

async fn revoke(rig: &StoreRig, id: GrantId) -> bool {
    rig.stores.grants(&rig.scope).revoke(id, None).await.expect("revoke") == 1
}

/// Rig on which the grant is revoked after it is read.
fn revoking(rig: &StoreRig, id: GrantId) -> StoreRig {
    let other = rig.clone();
    rig.meanwhile(Kind::Grant, async move { assert!(revoke(&other, id).await) })
}

pub(super) async fn a_rotation_that_was_overtaken_gets_the_same_successor(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let (other, token) = (rig.clone(), issued.refresh_token.clone());
    let overtaken = rig.meanwhile(Kind::Grant, async move {
        rotated(&other, &token).await;
    });
    let RotateOutcome::Retried(successor) = rotate(&overtaken, &issued.refresh_token).await else {
        panic!("the token should be retried");
    };
    assert_eq!(get(&rig, issued.grant_id).await.generation, 1);
    rotated(&rig, &successor.refresh_token).await;
}

pub(super) async fn a_strict_rotation_that_was_overtaken_is_a_reuse(rig: StoreRig) {
    let issued = issue(&rig, grace(0)).await;
    let (other, token) = (rig.clone(), issued.refresh_token.clone());
    let overtaken = rig.meanwhile(Kind::Grant, async move {
        rotated(&other, &token).await;
    });
    assert!(matches!(rotate(&overtaken, &issued.refresh_token).await, RotateOutcome::Reused { .. }));
    assert_eq!(is_revoked(&rig, issued.grant_id).await, Some(Why::RefreshReused));
}

pub(super) async fn a_rotation_does_not_undo_a_revocation(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let answer = rotate(&revoking(&rig, issued.grant_id), &issued.refresh_token).await;
    assert!(matches!(answer, RotateOutcome::Revoked { why: Why::Requested, .. }), "{answer:?}");
    assert_eq!(is_revoked(&rig, issued.grant_id).await, Some(Why::Requested));
}

pub(super) async fn a_revocation_is_not_undone_by_a_rotation(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let (other, token) = (rig.clone(), issued.refresh_token.clone());
    let overtaken = rig.meanwhile(Kind::Grant, async move {
        rotated(&other, &token).await;
    });
    assert!(revoke(&overtaken, issued.grant_id).await);
    let grant = get(&rig, issued.grant_id).await;
    assert_eq!(grant.generation, 1, "the rotation is not lost either");
    assert!(matches!(grant.state, GrantState::Revoked { .. }), "{:?}", grant.state);
}

pub(super) async fn a_proof_of_receipt_does_not_undo_a_revocation(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    rotated(&rig, &issued.refresh_token).await;
    let access = access_token(&rig, issued.grant_id).await;
    let overtaken = revoking(&rig, issued.grant_id);
    let _ = is_active(&overtaken, &access).await;
    overtaken.stores.settle().await;
    assert!(!is_active(&rig, &access).await);
    assert_eq!(is_revoked(&rig, issued.grant_id).await, Some(Why::Requested));
}

pub(super) async fn no_access_token_gets_into_a_revoked_family(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let before = rig.contents().await.len();
    let tokens = revoking(&rig, issued.grant_id).stores.access_tokens(&rig.scope);
    let answer = tokens.issue(AccessRequest::under(issued.grant_id)).await.expect("issue");
    assert!(matches!(answer, IssueOutcome::Revoked { .. }), "{answer:?}");
    assert_eq!(rig.contents().await.len(), before, "nothing was written");
}

pub(super) async fn an_access_token_is_of_the_generation_that_it_is_written_in(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let (other, token) = (rig.clone(), issued.refresh_token.clone());
    let overtaken = rig.meanwhile(Kind::Grant, async move {
        rotated(&other, &token).await;
    });
    let access = access_token(&overtaken, issued.grant_id).await;
    assert!(is_active(&rig, &access).await);
    rig.stores.settle().await;
    let answer = rotate(&rig, &issued.refresh_token).await;
    assert!(matches!(answer, RotateOutcome::Raced { .. }), "it proves the receipt: {answer:?}");
}

pub(super) async fn no_provider_tokens_get_into_a_revoked_family(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let before = rig.contents().await.len();
    let tokens = revoking(&rig, issued.grant_id).stores.provider_tokens(&rig.scope);
    let answer = tokens.put(issued.grant_id, "google", &Payload::new("secret"), None).await.expect("put");
    assert_eq!(answer, AttachOutcome::Inactive);
    assert_eq!(rig.contents().await.len(), before, "nothing was written");
}

fn present(code: &IssuedCode, client_id: &str) -> Redeem {
    Redeem::new(code.code.clone(), client_id).redirect_uri("https://a").with_grant()
}

/// Rig on which another caller redeems the code after it is read.
fn redeeming(rig: &StoreRig, code: &IssuedCode) -> StoreRig {
    let (other, presented) = (rig.clone(), present(code, "app"));
    rig.meanwhile(Kind::Code, async move {
        let answer = other.stores.codes(&other.scope).redeem(presented.clone()).await.expect("redeem");
        assert!(matches!(answer, RedeemOutcome::Redeemed(_)), "{answer:?}");
    })
}

pub(super) async fn a_redemption_that_was_overtaken_revokes(rig: StoreRig) {
    for (client_id, fits) in [("app", true), ("evil", false)] {
        let request = CodeRequest::new("app", "ada", "https://a");
        let code = rig.stores.codes(&rig.scope).issue(request).await.expect("issue");
        let codes = redeeming(&rig, &code).stores.codes(&rig.scope);
        let answer = codes.redeem(present(&code, client_id)).await.expect("redeem");
        let RedeemOutcome::Reused { grant_id } = answer else { panic!("{answer:?}") };
        assert_eq!(grant_id.is_some(), fits, "who has only the code revokes nothing");
        if let Some(id) = grant_id {
            assert_eq!(is_revoked(&rig, id).await, Some(Why::CodeReused));
        }
    }
}

pub(super) async fn an_acceptance_that_was_overtaken_finds_the_nonce_used(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let issued = nonces.issue(NonceRequest::new("as")).await.expect("issue");
    let nonce = NonceCheck::new("as", issued.nonce);
    let other = nonce.clone();
    let overtaken = rig.meanwhile(Kind::Nonce, async move {
        let answer = nonces.accept(&other).await.expect("accept");
        assert!(matches!(answer, NonceOutcome::Accepted { .. }), "{answer:?}");
    });
    let answer = overtaken.stores.nonces(&rig.scope).accept(&nonce).await.expect("accept");
    assert_eq!(answer, NonceOutcome::Used);
}
