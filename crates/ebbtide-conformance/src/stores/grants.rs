//! Families of refresh tokens: rotated, retried, reused, idle, capped.

use std::time::Duration;

use serde_json::json;

use super::rig::{StoreRig, secs};
use ebbtide::model::scope::Scope;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::Field;
use ebbtide::stores::access_tokens::{AccessDraft, AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::grants::{
    Grant, GrantId, GrantRequest, GrantState, GrantTtls, IssuedGrant, Rotate, RotateOutcome, Rotated, Why,
};
use ebbtide::stores::shared::payload::Payload;

pub(super) fn request() -> GrantRequest {
    GrantRequest::new("ada", "app").scope("read write").data(json!({ "acr": "mfa" }))
}

pub(super) async fn issue(rig: &StoreRig, terms: GrantTtls) -> IssuedGrant {
    rig.stores.grants(&rig.scope).issue(request().ttls(terms)).await.expect("issue")
}

pub(super) async fn rotate(rig: &StoreRig, token: &Secret) -> RotateOutcome {
    rig.stores.grants(&rig.scope).rotate(Rotate::new(token, "app")).await.expect("rotate")
}

pub(super) async fn rotated(rig: &StoreRig, token: &Secret) -> Rotated {
    match rotate(rig, token).await {
        RotateOutcome::Rotated(rotated) => *rotated,
        other => panic!("the current token should rotate, but: {other:?}"),
    }
}

async fn retried(rig: &StoreRig, token: &Secret) -> Rotated {
    match rotate(rig, token).await {
        RotateOutcome::Retried(rotated) => *rotated,
        other => panic!("the token should be retried, but: {other:?}"),
    }
}

pub(super) async fn get(rig: &StoreRig, id: GrantId) -> Grant {
    rig.stores.grants(&rig.scope).get(id).await.expect("get").expect("the grant has not reached its cap")
}

pub(super) async fn is_revoked(rig: &StoreRig, id: GrantId) -> Option<Why> {
    match get(rig, id).await.state {
        GrantState::Revoked { why, .. } => Some(why),
        _ => None,
    }
}

pub(super) async fn access_token(rig: &StoreRig, id: GrantId) -> Secret {
    match rig.stores.access_tokens(&rig.scope).issue(AccessRequest::under(id)).await.expect("issue") {
        IssueOutcome::Issued(issued) => issued.access_token,
        other => panic!("the grant should be active, but: {other:?}"),
    }
}

pub(super) async fn is_active(rig: &StoreRig, token: &Secret) -> bool {
    let answer = rig.stores.access_tokens(&rig.scope).introspect(token).await.expect("introspect");
    matches!(answer, IntrospectOutcome::Active(_))
}

pub(super) fn grace(seconds: u64) -> GrantTtls {
    GrantTtls::default().grace(Duration::from_secs(seconds))
}

pub(super) async fn a_refresh_token_is_rotated(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let mut token = issued.refresh_token.clone();
    for generation in 1..=5 {
        rig.pass(60);
        let rotated = rotated(&rig, &token).await;
        assert_eq!((rotated.generation, rotated.grant_id), (generation, issued.grant_id));
        assert_eq!((rotated.subject.as_str(), rotated.client_id.as_str()), ("ada", "app"));
        assert_eq!(rotated.scope.as_deref(), Some("read write"));
        assert_eq!(rotated.data.map(Payload::into_inner), Some(json!({ "acr": "mfa" })));
        assert_ne!(rotated.refresh_token, token);
        token = rotated.refresh_token;
    }
    let grant = get(&rig, issued.grant_id).await;
    assert_eq!((grant.generation, grant.state), (5, GrantState::Active));
    assert_eq!(grant.rotated_at, rig.clock.now());
    assert_eq!(grant.data.map(Payload::into_inner), Some(json!({ "acr": "mfa" })));
    let grants = rig.stores.grants(&rig.scope);
    assert!(grants.find(&token).await.expect("find").is_some(), "the present token is found");
    assert!(grants.find(&issued.refresh_token).await.expect("find").is_none(), "and no other is");
}

pub(super) async fn a_retry_gets_the_same_successor_until_the_grace_ends(rig: StoreRig) {
    for (terms, seconds) in [(GrantTtls::default(), 10), (grace(60), 60), (grace(1), 1)] {
        let issued = issue(&rig, terms).await;
        let successor = rotated(&rig, &issued.refresh_token).await;
        let ends = rig.clock.now().checked_add(Duration::from_secs(seconds)).expect("a time");
        assert_eq!(retried(&rig, &issued.refresh_token).await, successor);
        rig.go_to(ends, 1);
        rig.sweep().await;
        assert_eq!(retried(&rig, &issued.refresh_token).await, successor);
        rig.go_to(ends, 0);
        let reused = RotateOutcome::Reused { grant_id: issued.grant_id };
        assert_eq!(rotate(&rig, &issued.refresh_token).await, reused);
        assert!(matches!(rotate(&rig, &successor.refresh_token).await, RotateOutcome::Revoked { .. }));
    }
}

pub(super) async fn no_grace_is_strict_and_a_minute_is_the_most(rig: StoreRig) {
    let issued = issue(&rig, grace(0)).await;
    rotated(&rig, &issued.refresh_token).await;
    assert!(matches!(rotate(&rig, &issued.refresh_token).await, RotateOutcome::Reused { .. }));
    let error = rig.stores.grants(&rig.scope).issue(request().ttls(grace(61))).await.expect_err("too long");
    assert!(error.message().contains("60"), "{error}");
}

pub(super) async fn using_the_successor_closes_the_retry(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let first = rotated(&rig, &issued.refresh_token).await;
    let second = rotated(&rig, &first.refresh_token).await;
    assert_eq!(retried(&rig, &first.refresh_token).await, second, "the one before can be retried");
    let grant_id = issued.grant_id;
    let again = rotate(&rig, &issued.refresh_token).await;
    assert_eq!(again, RotateOutcome::Raced { grant_id }, "the one before that is late, within its window");
    assert_eq!(is_revoked(&rig, grant_id).await, None, "and nobody is revoked for it");
    rig.pass(10);
    assert_eq!(rotate(&rig, &issued.refresh_token).await, RotateOutcome::Reused { grant_id });
    assert_eq!(is_revoked(&rig, grant_id).await, Some(Why::RefreshReused));
}

pub(super) async fn an_access_token_in_use_closes_the_retry(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let old = access_token(&rig, issued.grant_id).await;
    let successor = rotated(&rig, &issued.refresh_token).await;
    let new = access_token(&rig, issued.grant_id).await;
    assert!(is_active(&rig, &old).await);
    assert_eq!(
        retried(&rig, &issued.refresh_token).await,
        successor,
        "a token of the generation before proves nothing"
    );
    assert!(is_active(&rig, &new).await);
    rig.stores.settle().await;
    let grant_id = issued.grant_id;
    assert_eq!(
        rotate(&rig, &issued.refresh_token).await,
        RotateOutcome::Raced { grant_id },
        "the answer has arrived, and another tab is late"
    );
    assert_eq!(is_revoked(&rig, grant_id).await, None);
    rig.pass(10);
    assert_eq!(rotate(&rig, &issued.refresh_token).await, RotateOutcome::Reused { grant_id });
}

pub(super) async fn a_strict_family_takes_every_old_token_for_a_theft_after_proof(rig: StoreRig) {
    let strict = rig.strict();
    let issued = issue(&strict, GrantTtls::default()).await;
    let successor = rotated(&strict, &issued.refresh_token).await;
    assert_eq!(retried(&strict, &issued.refresh_token).await, successor, "a lost answer is not a theft");
    let token = access_token(&strict, issued.grant_id).await;
    assert!(is_active(&strict, &token).await);
    strict.stores.settle().await;
    let reused = RotateOutcome::Reused { grant_id: issued.grant_id };
    assert_eq!(rotate(&strict, &issued.refresh_token).await, reused);
}

/// Twelve tabs rotate, get an access token and introspect it, all begun within some milliseconds.
pub(super) async fn twelve_tabs_revoke_nobody_and_a_thief_is_caught(rig: StoreRig) {
    for within in [0, 20, 100, 1_000] {
        let issued = issue(&rig, GrantTtls::default()).await;
        let tab = || async {
            let (token, draft) = (&issued.refresh_token, AccessDraft::default());
            let rotate = Rotate::new(token, "app").access_token(draft);
            let answer = rig.stores.grants(&rig.scope).rotate(rotate).await.expect("rotate");
            match answer {
                RotateOutcome::Rotated(next) | RotateOutcome::Retried(next) => {
                    let access = next.access_token.expect("one was asked for").access_token;
                    assert!(is_active(&rig, &access).await, "within {within} ms");
                    rig.stores.settle().await;
                }
                RotateOutcome::Raced { .. } => {}
                other => panic!("within {within} ms: {other:?}"),
            }
        };
        if within == 0 {
            futures_util::future::join_all((0..12).map(|_| tab())).await;
        } else {
            for _ in 0..12 {
                tab().await;
                rig.pass_millis(within / 12);
            }
        }
        let grant_id = issued.grant_id;
        assert_eq!(is_revoked(&rig, grant_id).await, None, "within {within} ms");
        rig.pass(10);
        assert_eq!(rotate(&rig, &issued.refresh_token).await, RotateOutcome::Reused { grant_id });
        assert_eq!(is_revoked(&rig, grant_id).await, Some(Why::RefreshReused));
    }
}

pub(super) async fn a_family_is_not_rotated_faster_than_its_windows_end(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let mut tokens = vec![issued.refresh_token.clone()];
    for _ in 0..16 {
        tokens.push(rotated(&rig, &tokens[tokens.len() - 1]).await.refresh_token);
    }
    let grant_id = issued.grant_id;
    for token in tokens.iter().filter(|token| **token != tokens[15]) {
        assert_eq!(rotate(&rig, token).await, RotateOutcome::Raced { grant_id });
    }
    retried(&rig, &tokens[15]).await;
    rig.pass(10);
    rotated(&rig, &tokens[16]).await;
    assert_eq!(rotate(&rig, &tokens[0]).await, RotateOutcome::Reused { grant_id });
}

pub(super) async fn a_rotation_issues_an_access_token_in_its_commit(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let issued = issue(&rig, GrantTtls::default()).await;
    let ask = |scope: Option<&str>| {
        let mut draft = AccessDraft::default();
        draft.scope = scope.map(str::to_owned);
        grants.rotate(Rotate::new(&issued.refresh_token, "app").access_token(draft))
    };
    assert_eq!(
        ask(Some("admin")).await.expect("rotate"),
        RotateOutcome::Mismatch(Field::Scope),
        "beyond the grant"
    );
    let access = |answer: RotateOutcome| match answer {
        RotateOutcome::Rotated(next) | RotateOutcome::Retried(next) => {
            next.access_token.expect("one was asked for").access_token
        }
        other => panic!("{other:?}"),
    };
    let first = access(ask(Some("read")).await.expect("rotate"));
    let second = access(ask(None).await.expect("rotate"));
    assert_ne!(first, second, "a retry has one of its own");
    assert!(is_active(&rig, &first).await && is_active(&rig, &second).await);
    grants.revoke(issued.grant_id, None).await.expect("revoke");
    assert!(!is_active(&rig, &first).await && !is_active(&rig, &second).await);
}

/// The refresh tokens of a client that authenticates itself are not bound; each access token is to the key that came with
/// the request (RFC 9449 §5).
pub(super) async fn the_access_token_of_a_rotation_is_bound_to_the_key_that_came_with_it(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let issued = issue(&rig, GrantTtls::default()).await;
    let mut token = issued.refresh_token;
    for key in ["key-1", "key-2"] {
        let rotate = Rotate::new(&token, "app").dpop_jkt(key).access_token(AccessDraft::default());
        let answers = [rotate.clone(), rotate].map(|rotate| grants.rotate(rotate));
        for answer in futures_util::future::join_all(answers).await {
            let (RotateOutcome::Rotated(next) | RotateOutcome::Retried(next)) = answer.expect("rotate")
            else {
                panic!("it is the present one, or a retry")
            };
            let access = next.access_token.expect("one was asked for").access_token;
            let answer = rig.stores.access_tokens(&rig.scope).introspect(&access).await.expect("introspect");
            let IntrospectOutcome::Active(active) = answer else { panic!("it is active") };
            assert_eq!(active.dpop_jkt.as_deref(), Some(key));
            token = next.refresh_token;
        }
        let found = grants.get(issued.grant_id).await.expect("get").expect("a grant");
        assert_eq!(found.dpop_jkt, None, "the family is not bound");
    }
}

pub(super) async fn an_older_generation_revokes_the_family(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let mut tokens = vec![issued.refresh_token.clone()];
    for _ in 0..6 {
        let next = rotated(&rig, tokens.last().expect("one at least")).await;
        tokens.push(next.refresh_token);
        rig.pass(10);
    }
    assert_eq!(rotate(&rig, &tokens[2]).await, RotateOutcome::Reused { grant_id: issued.grant_id });
    for token in &tokens {
        assert!(matches!(rotate(&rig, token).await, RotateOutcome::Revoked { why: Why::RefreshReused, .. }));
    }
    assert_eq!(get(&rig, issued.grant_id).await.data, None, "the grant's data is deleted");
}

pub(super) async fn a_mismatch_burns_nothing(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let issued = grants.issue(request().dpop_jkt("jkt-1")).await.expect("issue");
    let token = &issued.refresh_token;
    let first = match grants.rotate(Rotate::new(token, "app").dpop_jkt("jkt-1")).await.expect("rotate") {
        RotateOutcome::Rotated(first) => first,
        other => panic!("{other:?}"),
    };
    rig.pass(3_600);
    for old_or_new in [token, &first.refresh_token] {
        for (client, key, field) in [
            ("evil", Some("jkt-1"), Field::ClientId),
            ("app", Some("jkt-2"), Field::DpopJkt),
            ("app", None, Field::DpopJkt),
        ] {
            let mut request = Rotate::new(old_or_new, client);
            request.dpop_jkt = key.map(str::to_owned);
            let answer = grants.rotate(request).await.expect("rotate");
            assert_eq!(answer, RotateOutcome::Mismatch(field));
        }
    }
    let own =
        grants.rotate(Rotate::new(&first.refresh_token, "app").dpop_jkt("jkt-1")).await.expect("rotate");
    assert!(matches!(own, RotateOutcome::Rotated(_)), "{own:?}");
}

pub(super) async fn idle_time_slides_and_ends_at_the_instant(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default().idle_ttl(secs(100)).max_ttl(secs(1_000))).await;
    let mut expires_at = issued.expires_at;
    let mut token = issued.refresh_token.clone();
    for _ in 0..4 {
        assert_eq!(expires_at.since(rig.clock.now()).as_secs(), 100);
        rig.go_to(expires_at, 1);
        let next = rotated(&rig, &token).await;
        (token, expires_at) = (next.refresh_token, next.expires_at);
    }
    rig.go_to(expires_at, 0);
    rig.sweep().await;
    assert_eq!(rotate(&rig, &token).await, RotateOutcome::Expired);
    assert_eq!(
        rotate(&rig, &issued.refresh_token).await,
        RotateOutcome::Expired,
        "an old token revokes nothing more"
    );
    assert_eq!(get(&rig, issued.grant_id).await.state, GrantState::Expired);
}

pub(super) async fn the_cap_is_never_passed(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default().idle_ttl(secs(100)).max_ttl(secs(250))).await;
    let mut token = issued.refresh_token.clone();
    for (before_the_cap, left) in [(200, 100), (140, 100), (70, 70), (1, 1)] {
        rig.go_to(issued.ends_at, before_the_cap * 1_000);
        let next = rotated(&rig, &token).await;
        assert_eq!(next.expires_at.since(rig.clock.now()).as_secs(), left, "the idle time, or the rest");
        assert_eq!(next.ends_at, issued.ends_at);
        token = next.refresh_token;
    }
    rig.go_to(issued.ends_at, 1);
    let last = rotated(&rig, &token).await;
    rig.go_to(issued.ends_at, 0);
    assert_eq!(rotate(&rig, &last.refresh_token).await, RotateOutcome::Expired);
    assert!(rig.stores.grants(&rig.scope).get(issued.grant_id).await.expect("get").is_none());
    rig.pass(1);
    rig.sweep().await;
    assert_eq!(rotate(&rig, &last.refresh_token).await, RotateOutcome::Expired, "swept or not");
}

pub(super) async fn revoked_is_sticky_until_the_cap(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let issued = issue(&rig, GrantTtls::default().idle_ttl(secs(100)).max_ttl(secs(1_000))).await;
    let successor = rotated(&rig, &issued.refresh_token).await;
    assert_eq!(grants.revoke(issued.grant_id, None).await.expect("revoke"), 1);
    assert_eq!(grants.revoke(issued.grant_id, None).await.expect("revoke"), 0, "it was revoked before");
    for wait in [0, 99, 2, 800] {
        rig.pass(wait);
        rig.sweep().await;
        for token in [&issued.refresh_token, &successor.refresh_token] {
            assert!(matches!(rotate(&rig, token).await, RotateOutcome::Revoked { why: Why::Requested, .. }));
        }
    }
    rig.go_to(issued.ends_at, 0);
    assert_eq!(rotate(&rig, &successor.refresh_token).await, RotateOutcome::Expired);
}

pub(super) async fn a_family_takes_the_same_bytes_however_often_it_is_rotated(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let mut token = rotated(&rig, &issued.refresh_token).await.refresh_token;
    let before = rig.stored_bytes().await;
    for _ in 0..100 {
        rig.pass(1);
        token = rotated(&rig, &token).await.refresh_token;
    }
    assert_eq!(rig.stored_bytes().await, before);
}

pub(super) async fn tokens_of_another_scope_are_unknown(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    for scope in [Scope::Global, Scope::tenant_env("acme", "prod").expect("good names")] {
        let grants = rig.stores.grants(&scope);
        let answer = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.expect("rotate");
        assert_eq!(answer, RotateOutcome::Unknown, "{scope}");
        assert_eq!(grants.revoke(&issued.refresh_token, None).await.expect("revoke"), 0);
        assert_eq!(grants.revoke(issued.grant_id, None).await.expect("revoke"), 0);
        assert!(grants.get(issued.grant_id).await.expect("get").is_none());
    }
    rotated(&rig, &issued.refresh_token).await;
}
