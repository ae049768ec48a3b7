//! Provider tokens go with their grant.

use serde_json::json;

use super::grants::{issue, rotated};
use super::rig::{StoreRig, secs};
use ebbtide::model::scope::Scope;
use ebbtide::model::time::Timestamp;
use ebbtide::stores::grants::{GrantId, GrantTtls};
use ebbtide::stores::provider_tokens::{AttachOutcome, ProviderTokens};
use ebbtide::stores::shared::payload::Payload;

fn upstream() -> Payload {
    Payload::new(json!({ "access_token": "ya29.secret", "refresh_token": "1//secret" }))
}

async fn put(tokens: &ProviderTokens, id: GrantId, seconds: Option<i64>) -> Option<Timestamp> {
    match tokens.put(id, "google", &upstream(), seconds.map(secs)).await.expect("put") {
        AttachOutcome::Kept { expires_at } => Some(expires_at),
        _ => None,
    }
}

async fn is_there(tokens: &ProviderTokens, id: GrantId) -> bool {
    let found = tokens.get(id, "google").await.expect("get");
    assert!(found.iter().all(|found| found.tokens == upstream()));
    found.is_some()
}

pub(super) async fn they_are_kept_replaced_and_deleted(rig: StoreRig) {
    let tokens = rig.stores.provider_tokens(&rig.scope);
    let grant = issue(&rig, GrantTtls::default()).await;
    assert!(!is_there(&tokens, grant.grant_id).await);
    assert_eq!(put(&tokens, grant.grant_id, None).await, Some(grant.ends_at));
    assert_eq!(put(&tokens, grant.grant_id, None).await, Some(grant.ends_at), "replaces the first");
    rotated(&rig, &grant.refresh_token).await;
    assert!(is_there(&tokens, grant.grant_id).await, "rotation does not affect them");
    assert!(tokens.get(grant.grant_id, "github").await.expect("get").is_none());
    assert!(!is_there(&rig.stores.provider_tokens(&Scope::Global), grant.grant_id).await);
    assert!(tokens.delete(grant.grant_id, "google").await.expect("delete"));
    assert!(!tokens.delete(grant.grant_id, "google").await.expect("delete"));
    assert!(!is_there(&tokens, grant.grant_id).await);
}

pub(super) async fn they_end_at_the_instant_and_not_past_the_cap(rig: StoreRig) {
    let tokens = rig.stores.provider_tokens(&rig.scope);
    let grant = issue(&rig, GrantTtls::default().max_ttl(secs(100))).await;
    assert_eq!(put(&tokens, grant.grant_id, Some(1_000)).await, Some(grant.ends_at));
    let expires_at = put(&tokens, grant.grant_id, Some(10)).await.expect("kept");
    rig.go_to(expires_at, 1);
    assert!(is_there(&tokens, grant.grant_id).await);
    rig.go_to(expires_at, 0);
    assert!(!is_there(&tokens, grant.grant_id).await);
}

pub(super) async fn they_are_gone_with_their_grant(rig: StoreRig) {
    let tokens = rig.stores.provider_tokens(&rig.scope);
    let revoked = issue(&rig, GrantTtls::default()).await;
    put(&tokens, revoked.grant_id, None).await.expect("kept");
    assert_eq!(rig.stores.grants(&rig.scope).revoke(revoked.grant_id, None).await.expect("revoke"), 1);
    assert!(!is_there(&tokens, revoked.grant_id).await);
    assert_eq!(put(&tokens, revoked.grant_id, None).await, None, "and none come again");
    let idle = issue(&rig, GrantTtls::default().idle_ttl(secs(10)).max_ttl(secs(20))).await;
    put(&tokens, idle.grant_id, None).await.expect("kept");
    rig.pass(10);
    assert!(!is_there(&tokens, idle.grant_id).await, "idle for too long");
    rig.pass(10);
    assert_eq!(put(&tokens, idle.grant_id, None).await, None, "past the cap");
    rig.go_to(revoked.ends_at, 0);
    rig.pass(1);
    rig.sweep().await;
    assert!(rig.contents().await.is_empty(), "no orphans");
}

pub(super) async fn putting_against_revoking_leaves_nothing_readable(rig: StoreRig) {
    for _ in 0..6 {
        let grant = issue(&rig, GrantTtls::default()).await;
        let tasks = rig.together(16, |rig, index| async move {
            if index == 5 {
                assert_eq!(
                    rig.stores.grants(&rig.scope).revoke(grant.grant_id, None).await.expect("revoke"),
                    1
                );
            } else {
                put(&rig.stores.provider_tokens(&rig.scope), grant.grant_id, None).await;
            }
        });
        tasks.await;
        assert!(!is_there(&rig.stores.provider_tokens(&rig.scope), grant.grant_id).await);
    }
}
