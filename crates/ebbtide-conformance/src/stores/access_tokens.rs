//! Access tokens live no longer than their grant.

use serde_json::json;

use super::grants::{access_token, is_active, issue, request, rotated};
use super::owners::is_checkpoint;
use super::rig::{StoreRig, secs};
use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::Scope;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::Field;
use ebbtide::stores::access_tokens::{
    AccessRequest, Active, IntrospectOutcome, IssueOutcome, IssuedAccessToken,
};
use ebbtide::stores::grants::{GrantId, GrantTtls, Holder, Why};
use ebbtide::stores::shared::payload::Payload;

async fn ask(rig: &StoreRig, request: AccessRequest) -> IssueOutcome {
    rig.stores.access_tokens(&rig.scope).issue(request).await.expect("issue")
}

async fn issued(rig: &StoreRig, request: AccessRequest) -> IssuedAccessToken {
    match ask(rig, request).await {
        IssueOutcome::Issued(issued) => issued,
        other => panic!("the token should be issued, but: {other:?}"),
    }
}

async fn active(rig: &StoreRig, token: &Secret) -> Active {
    match rig.stores.access_tokens(&rig.scope).introspect(token).await.expect("introspect") {
        IntrospectOutcome::Active(active) => *active,
        other => panic!("the token should be active: {other:?}"),
    }
}

pub(super) async fn a_token_alone_is_active_until_the_instant(rig: StoreRig) {
    for (ttl, seconds) in [(None, 900), (Some(secs(30)), 30)] {
        let now = rig.clock.now();
        let mut request = AccessRequest::alone("robot", "app").scope("read").data(json!([1])).dpop_jkt("k");
        if let Some(ttl) = ttl {
            request = request.ttl(ttl);
        }
        let token = issued(&rig, request).await;
        assert_eq!(token.expires_at.since(now).as_secs(), seconds);
        let active = active(&rig, &token.access_token).await;
        assert_eq!((active.subject.as_str(), active.client_id.as_str()), ("robot", "app"));
        assert_eq!((active.scope.as_deref(), active.dpop_jkt.as_deref()), (Some("read"), Some("k")));
        assert_eq!(active.data.map(Payload::into_inner), Some(json!([1])));
        assert_eq!((active.issued_at, active.expires_at, active.grant_id), (now, token.expires_at, None));
        rig.go_to(token.expires_at, 1);
        assert!(is_active(&rig, &token.access_token).await);
        rig.go_to(token.expires_at, 0);
        assert!(!is_active(&rig, &token.access_token).await);
    }
}

pub(super) async fn a_token_takes_after_its_grant(rig: StoreRig) {
    let grant = rig.stores.grants(&rig.scope).issue(request().dpop_jkt("jkt-1")).await.expect("issue");
    let token = issued(&rig, AccessRequest::under(grant.grant_id)).await;
    let active = active(&rig, &token.access_token).await;
    assert_eq!((active.subject.as_str(), active.client_id.as_str()), ("ada", "app"));
    assert_eq!(active.scope.as_deref(), Some("read write"));
    assert_eq!(active.dpop_jkt.as_deref(), Some("jkt-1"));
    assert_eq!(active.grant_id, Some(grant.grant_id));
    assert_eq!(active.data, None, "the grant's data is the grant's");
}

pub(super) async fn what_contradicts_the_grant_is_refused(rig: StoreRig) {
    let grant = rig.stores.grants(&rig.scope).issue(request().dpop_jkt("jkt-1")).await.expect("issue");
    let under = || AccessRequest::under(grant.grant_id);
    for (request, field) in [
        (under().subject("bob"), Field::Subject),
        (under().client_id("evil"), Field::ClientId),
        (under().dpop_jkt("jkt-2"), Field::DpopJkt),
        (under().scope("read admin"), Field::Scope),
        (under().scope("rea"), Field::Scope),
    ] {
        assert_eq!(ask(&rig, request).await, IssueOutcome::Mismatch(field));
    }
    let narrow = under().subject("ada").client_id("app").dpop_jkt("jkt-1").scope("write");
    let token = issued(&rig, narrow).await;
    assert_eq!(active(&rig, &token.access_token).await.scope.as_deref(), Some("write"));
}

pub(super) async fn a_token_is_refused_where_there_is_no_active_grant(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let revoked = issue(&rig, GrantTtls::default()).await;
    assert_eq!(grants.revoke(revoked.grant_id, None).await.expect("revoke"), 1);
    let answer = ask(&rig, AccessRequest::under(revoked.grant_id)).await;
    assert!(matches!(answer, IssueOutcome::Revoked { why: Why::Requested, .. }), "{answer:?}");
    let idle = issue(&rig, GrantTtls::default().idle_ttl(secs(10)).max_ttl(secs(20))).await;
    rig.pass(10);
    assert_eq!(ask(&rig, AccessRequest::under(idle.grant_id)).await, IssueOutcome::Expired);
    rig.pass(10);
    assert_eq!(ask(&rig, AccessRequest::under(idle.grant_id)).await, IssueOutcome::Unknown);
    let nobody = GrantId::from_bytes([0; 16]);
    assert_eq!(ask(&rig, AccessRequest::under(nobody)).await, IssueOutcome::Unknown);
    let elsewhere = rig.stores.access_tokens(&Scope::Global);
    let answer =
        elsewhere.issue(AccessRequest::under(issue(&rig, GrantTtls::default()).await.grant_id)).await;
    assert_eq!(answer.expect("issue"), IssueOutcome::Unknown);
}

pub(super) async fn revoking_a_grant_kills_every_descendant(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default()).await;
    let mut refresh = grant.refresh_token.clone();
    let mut tokens = Vec::new();
    for _ in 0..4 {
        tokens.push(access_token(&rig, grant.grant_id).await);
        refresh = rotated(&rig, &refresh).await.refresh_token;
    }
    for token in &tokens {
        assert!(is_active(&rig, token).await, "rotation does not affect access tokens");
    }
    assert_eq!(rig.stores.grants(&rig.scope).revoke(grant.grant_id, None).await.expect("revoke"), 1);
    for token in &tokens {
        assert!(!is_active(&rig, token).await);
    }
}

pub(super) async fn a_token_ends_with_its_grant(rig: StoreRig) {
    let capped = issue(&rig, GrantTtls::default().max_ttl(secs(50))).await;
    let token = issued(&rig, AccessRequest::under(capped.grant_id).ttl(secs(3_600))).await;
    assert_eq!(token.expires_at, capped.ends_at, "not past the cap");
    rig.go_to(capped.ends_at, 1);
    assert!(is_active(&rig, &token.access_token).await);
    rig.go_to(capped.ends_at, 0);
    assert!(!is_active(&rig, &token.access_token).await);
    let idle = issue(&rig, GrantTtls::default().idle_ttl(secs(50))).await;
    let token = issued(&rig, AccessRequest::under(idle.grant_id)).await;
    rig.go_to(idle.expires_at, 1);
    assert!(is_active(&rig, &token.access_token).await);
    rig.go_to(idle.expires_at, 0);
    assert!(!is_active(&rig, &token.access_token).await, "its grant has been idle for too long");
}

pub(super) async fn a_token_is_revoked_alone(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default()).await;
    let (first, second) =
        (access_token(&rig, grant.grant_id).await, access_token(&rig, grant.grant_id).await);
    assert_eq!(rig.stores.grants(&rig.scope).revoke(&first, None).await.expect("revoke"), 1);
    assert_eq!(rig.stores.grants(&rig.scope).revoke(&first, None).await.expect("revoke"), 0);
    assert!(!is_active(&rig, &first).await);
    assert!(is_active(&rig, &second).await);
    rotated(&rig, &grant.refresh_token).await;
}

pub(super) async fn tokens_alone_are_signed_out_with_their_subject_and_client(rig: StoreRig) {
    let mut tokens = Vec::new();
    for (subject, client) in [("ada", "app"), ("ada", "tv"), ("bob", "app"), ("bob", "tv")] {
        tokens.push(issued(&rig, AccessRequest::alone(subject, client)).await.access_token);
    }
    let grant = issue(&rig, GrantTtls::default()).await;
    let under = access_token(&rig, grant.grant_id).await;
    assert_eq!(rig.stores.grants(&rig.scope).revoke(&tokens[1], None).await.expect("revoke"), 1);
    let of_ada = rig.stores.grants(&rig.scope).revoke(Holder::Subject("ada"), None).await.expect("revoke");
    assert_eq!(of_ada, 2, "a token alone, and a grant with what hangs on it");
    assert_eq!(rig.stores.grants(&rig.scope).revoke(Holder::Client("app"), None).await.expect("revoke"), 1);
    assert_eq!(rig.stores.grants(&rig.scope).revoke(Holder::Client("app"), None).await.expect("revoke"), 0);
    let mut active = Vec::new();
    for token in tokens.iter().chain([&under]) {
        active.push(is_active(&rig, token).await);
    }
    assert_eq!(active, [false, false, false, true, false], "only bob's television is left");
    rig.go_to(grant.ends_at, 0);
    rig.pass(1);
    rig.sweep().await;
    let left = rig.contents().await;
    let is_evidence = |key: &Key| matches!(key.kind(), Kind::Owner | Kind::Audit) || is_checkpoint(key);
    assert!(left.iter().all(|(key, _)| is_evidence(key)), "no orphans: {left:?}");
}

pub(super) async fn unknown_expired_and_revoked_are_answered_alike(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default()).await;
    let under = || AccessRequest::under(grant.grant_id);
    let (orphan, revoked) = (issued(&rig, under()).await, issued(&rig, under()).await);
    let expired = issued(&rig, AccessRequest::alone("ada", "app").ttl(secs(1))).await;
    let other_scope = rig.stores.access_tokens(&Scope::Global);
    let IssueOutcome::Issued(foreign) =
        other_scope.issue(AccessRequest::alone("a", "b")).await.expect("issue")
    else {
        panic!("a token without a grant should be issued");
    };
    rig.pass(1);
    assert_eq!(rig.stores.grants(&rig.scope).revoke(&revoked.access_token, None).await.expect("revoke"), 1);
    assert_eq!(rig.stores.grants(&rig.scope).revoke(grant.grant_id, None).await.expect("revoke"), 1);
    let tokens = rig.stores.access_tokens(&rig.scope);
    for token in [
        orphan.access_token,
        revoked.access_token,
        expired.access_token,
        foreign.access_token,
        grant.refresh_token,
        Secret::new("eba_"),
        Secret::new(""),
    ] {
        assert_eq!(tokens.introspect(&token).await.expect("introspect"), IntrospectOutcome::Inactive);
    }
}

pub(super) async fn sweeping_in_between_changes_no_answer(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default().idle_ttl(secs(100)).max_ttl(secs(300))).await;
    let short = issued(&rig, AccessRequest::under(grant.grant_id).ttl(secs(10))).await;
    let long = issued(&rig, AccessRequest::under(grant.grant_id).ttl(secs(200))).await;
    rig.pass(11);
    assert_eq!(rig.sweep().await.total(), 2, "the token and its index entry");
    assert!(!is_active(&rig, &short.access_token).await);
    assert!(is_active(&rig, &long.access_token).await);
    rig.pass(89);
    rig.sweep().await;
    assert!(!is_active(&rig, &long.access_token).await, "the grant is idle, and still stored");
}
