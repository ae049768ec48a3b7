//! Revocation by grant, token, subject and client; against theft; and against concurrent calls.

use std::time::Duration;

use super::grants::{access_token, get, grace, is_active, is_revoked, issue, request, rotate, rotated};
use super::owned_records::context;
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::secret::Secret;
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::audit::Action;
use ebbtide::stores::grants::{
    GrantId, GrantRequest, GrantState, GrantTtls, Holder, Revoke, RotateOutcome, Why,
};
use ebbtide::stores::sessions::SessionRequest;

/// Asserts that no refresh token and no access token of the family is accepted.
async fn assert_dead(rig: &StoreRig, id: GrantId, refresh: &[Secret], access: &[Secret]) {
    assert!(is_revoked(rig, id).await.is_some());
    for token in refresh {
        let answer = rotate(rig, token).await;
        assert!(matches!(answer, RotateOutcome::Revoked { .. }), "{answer:?}");
    }
    for token in access {
        assert!(!is_active(rig, token).await);
    }
}

fn given(rotation: &RotateOutcome) -> Option<Secret> {
    match rotation {
        RotateOutcome::Rotated(rotated) | RotateOutcome::Retried(rotated) => {
            Some(rotated.refresh_token.clone())
        }
        _ => None,
    }
}

pub(super) async fn any_token_of_a_family_revokes_it(rig: StoreRig) {
    for used in 0..3 {
        let issued = issue(&rig, GrantTtls::default()).await;
        let mut tokens = vec![issued.refresh_token.clone()];
        for at in 0..2 {
            tokens.push(rotated(&rig, &tokens[at]).await.refresh_token);
        }
        assert_eq!(rig.stores.grants(&rig.scope).revoke(&tokens[used], None).await.expect("revoke"), 1);
        assert_eq!(rig.stores.grants(&rig.scope).revoke(&tokens[used], None).await.expect("revoke"), 0);
        assert_dead(&rig, issued.grant_id, &tokens, &[]).await;
    }
}

pub(super) async fn a_client_revokes_its_own_tokens_alone(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let access = access_token(&rig, issued.grant_id).await;
    for token in [&access, &issued.refresh_token] {
        assert_eq!(
            rig.stores
                .grants(&rig.scope)
                .revoke(Revoke::Token { token, client_id: Some("evil"), reach: None }, None)
                .await
                .expect("revoke"),
            0
        );
    }
    assert!(is_active(&rig, &access).await);
    assert_eq!(
        rig.stores
            .grants(&rig.scope)
            .revoke(Revoke::Token { token: &access, client_id: Some("app"), reach: None }, None)
            .await
            .expect("revoke"),
        1
    );
    assert!(!is_active(&rig, &access).await);
    assert_eq!(
        rig.stores
            .grants(&rig.scope)
            .revoke(Revoke::Token { token: &issued.refresh_token, client_id: Some("app"), reach: None }, None)
            .await
            .expect("revoke"),
        1
    );
    assert_dead(&rig, issued.grant_id, &[issued.refresh_token], &[]).await;
}

pub(super) async fn a_subject_and_a_client_are_signed_out_everywhere(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let mut ids = Vec::new();
    for (subject, client) in [("ada", "app"), ("ada", "tv"), ("bob", "app"), ("bob", "tv"), ("ada", "app")] {
        ids.push(grants.issue(GrantRequest::new(subject, client)).await.expect("issue").grant_id);
    }
    assert_eq!(grants.revoke(ids[0], None).await.expect("revoke"), 1);
    let listed = grants.list(Holder::Subject("ada"), None, 10).await.expect("list").items;
    assert_eq!(listed.len(), 3, "a revoked one is listed until its cap");
    assert_eq!(grants.revoke(Holder::Subject("ada"), None).await.expect("revoke"), 2, "the others of hers");
    assert_eq!(grants.revoke(Holder::Subject("ada"), None).await.expect("revoke"), 0);
    assert_eq!(
        grants.revoke(Holder::Subject("app"), None).await.expect("revoke"),
        0,
        "a client is no subject"
    );
    assert_eq!(grants.revoke(Holder::Client("app"), None).await.expect("revoke"), 1);
    let mut active = Vec::new();
    for id in ids {
        active.push(get(&rig, id).await.state == GrantState::Active);
    }
    assert_eq!(active, [false, false, false, true, false], "only bob's television is left");
}

pub(super) async fn signing_out_goes_through_every_page(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    for _ in 0..130 {
        grants.issue(GrantRequest::new("ada", "app")).await.expect("issue");
    }
    let mut listed = 0;
    let mut after = None;
    loop {
        let page = grants.list(Holder::Client("app"), after.as_ref(), 50).await.expect("list");
        listed += page.items.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, 130);
    assert_eq!(grants.revoke(Holder::Subject("ada"), None).await.expect("revoke"), 130);
}

pub(super) async fn indexes_end_with_the_family(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    // One that is idle for as long as it may be stays until its cap.
    let ttls = GrantTtls::default().idle_ttl(secs(1_000)).max_ttl(secs(1_000));
    let issued = issue(&rig, ttls).await;
    rig.go_to(issued.ends_at, 1);
    assert_eq!(grants.list(Holder::Subject("ada"), None, 10).await.expect("list").items.len(), 1);
    rig.go_to(issued.ends_at, 0);
    assert!(grants.list(Holder::Subject("ada"), None, 10).await.expect("list").items.is_empty());
    rig.pass(1);
    assert_eq!(rig.sweep().await.total(), 3, "the grant and its two indexes");
    assert!(rig.contents().await.is_empty(), "no orphans");
}

pub(super) async fn twelve_rotations_of_one_token_give_one_successor(rig: StoreRig) {
    for _ in 0..6 {
        let issued = issue(&rig, GrantTtls::default()).await;
        let answers = rig.together(12, |rig, _| {
            let token = issued.refresh_token.clone();
            async move { rotate(&rig, &token).await }
        });
        let answers = answers.await;
        let winners = answers.iter().filter(|answer| matches!(answer, RotateOutcome::Rotated(_))).count();
        assert_eq!(winners, 1, "{answers:?}");
        let mut successors: Vec<_> = answers.iter().filter_map(given).collect();
        assert_eq!(successors.len(), 12, "no caller is refused");
        successors.dedup();
        assert_eq!(successors.len(), 1, "all have the same successor");
        assert_eq!(get(&rig, issued.grant_id).await.state, GrantState::Active);
        rotated(&rig, &successors[0]).await;
    }
}

pub(super) async fn one_generation_has_one_winner_where_there_is_no_grace(rig: StoreRig) {
    for _ in 0..6 {
        let issued = issue(&rig, grace(0)).await;
        let answers = rig.together(20, |rig, _| {
            let token = issued.refresh_token.clone();
            async move { rotate(&rig, &token).await }
        });
        let answers = answers.await;
        let given: Vec<_> = answers.iter().filter_map(given).collect();
        assert_eq!(given.len(), 1, "{answers:?}");
        let reused = answers.iter().filter(|answer| matches!(answer, RotateOutcome::Reused { .. })).count();
        assert_eq!(reused, 1, "one finds the reuse, the others find the family revoked");
        assert_dead(&rig, issued.grant_id, &given, &[]).await;
    }
}

/// Both hold the same token. In any order, once both have used it, both are stopped.
pub(super) async fn a_thief_and_a_victim_are_both_stopped_whatever_the_order(rig: StoreRig) {
    // A sequence of rotations by either: true is the thief, who holds a copy of the first token.
    for order in 0..16_u32 {
        let issued = issue(&rig, GrantTtls::default()).await;
        let mut held = [issued.refresh_token.clone(), issued.refresh_token.clone()];
        let mut stopped = false;
        for step in 0..4 {
            // Each uses the token it got, after the grace, so that neither counts as a retry.
            rig.pass(60);
            let who = usize::from(order >> step & 1 == 1);
            match rotate(&rig, &held[who]).await {
                RotateOutcome::Rotated(rotated) => {
                    assert!(!stopped, "order {order:04b}");
                    held[who] = rotated.refresh_token;
                }
                RotateOutcome::Reused { .. } => stopped = true,
                RotateOutcome::Revoked { .. } => assert!(stopped, "order {order:04b}"),
                other => panic!("order {order:04b}: {other:?}"),
            }
        }
        let both_came = !(order == 0b0000 || order == 0b1111);
        assert_eq!(stopped, both_came, "order {order:04b}");
        if both_came {
            assert_dead(&rig, issued.grant_id, &held, &[]).await;
        }
    }
}

/// Within the grace a thief gets the same successor as the victim, not a family of its own: they collide at the next
/// use.
pub(super) async fn a_thief_within_the_grace_is_stopped_by_the_next_use(rig: StoreRig) {
    for first in [0, 1] {
        let issued = issue(&rig, GrantTtls::default()).await;
        let stolen = [rotate(&rig, &issued.refresh_token).await, rotate(&rig, &issued.refresh_token).await];
        let held = stolen.map(|answer| given(&answer).expect("both are served"));
        assert_eq!(held[0], held[1]);
        let next = rotated(&rig, &held[first]).await;
        rig.pass(60);
        assert!(matches!(rotate(&rig, &held[1 - first]).await, RotateOutcome::Reused { .. }));
        assert_dead(&rig, issued.grant_id, &[next.refresh_token], &[]).await;
    }
}

pub(super) async fn rotating_against_revoking_leaves_nothing_alive(rig: StoreRig) {
    for _ in 0..8 {
        let issued = issue(&rig, GrantTtls::default()).await;
        let answers = rig.together(17, |rig, index| {
            let (token, id) = (issued.refresh_token.clone(), issued.grant_id);
            async move {
                if index == 8 {
                    assert_eq!(rig.stores.grants(&rig.scope).revoke(id, None).await.expect("revoke"), 1);
                    return None;
                }
                given(&rotate(&rig, &token).await)
            }
        });
        let given: Vec<_> = answers.await.into_iter().flatten().collect();
        assert_dead(&rig, issued.grant_id, &given, &[]).await;
        assert_eq!(is_revoked(&rig, issued.grant_id).await, Some(Why::Requested));
    }
}

pub(super) async fn issuing_against_revoking_leaves_nothing_alive(rig: StoreRig) {
    for _ in 0..8 {
        let issued = issue(&rig, GrantTtls::default()).await;
        let answers = rig.together(20, |rig, index| {
            let (token, id) = (issued.refresh_token.clone(), issued.grant_id);
            async move {
                match index {
                    4 => assert_eq!(rig.stores.grants(&rig.scope).revoke(id, None).await.expect("revoke"), 1),
                    9 => drop(rotate(&rig, &token).await),
                    _ => {
                        let tokens = rig.stores.access_tokens(&rig.scope);
                        return match tokens.issue(AccessRequest::under(id)).await.expect("issue") {
                            IssueOutcome::Issued(issued) => Some(issued.access_token),
                            IssueOutcome::Revoked { .. } => None,
                            other => panic!("{other:?}"),
                        };
                    }
                }
                None
            }
        });
        let access: Vec<_> = answers.await.into_iter().flatten().collect();
        assert_dead(&rig, issued.grant_id, &[], &access).await;
    }
}

/// Proof of receipt is a write like any other: it does not undo a revocation or a rotation that came between.
pub(super) async fn introspecting_against_rotating_loses_neither(rig: StoreRig) {
    for _ in 0..8 {
        let issued = issue(&rig, GrantTtls::default()).await;
        let first = rotated(&rig, &issued.refresh_token).await;
        let access = access_token(&rig, issued.grant_id).await;
        let answers = rig.together(16, |rig, index| {
            let (token, access) = (first.refresh_token.clone(), access.clone());
            async move {
                if index == 7 {
                    return given(&rotate(&rig, &token).await);
                }
                assert!(is_active(&rig, &access).await);
                None
            }
        });
        let [second] = answers.await.into_iter().flatten().collect::<Vec<_>>().try_into().expect("one");
        assert_eq!(get(&rig, issued.grant_id).await.generation, 2);
        rig.clock.advance(Duration::from_secs(30));
        rotated(&rig, &second).await;
    }
}

pub(super) async fn one_revocation_of_many_is_counted(rig: StoreRig) {
    let issued = rig.stores.grants(&rig.scope).issue(request()).await.expect("issue");
    let answers = rig.together(24, |rig, _| async move {
        rig.stores.grants(&rig.scope).revoke(issued.grant_id, None).await.expect("revoke")
    });
    assert_eq!(answers.await.into_iter().sum::<u64>(), 1);
}

pub(super) async fn an_audited_revocation_is_told_once(rig: StoreRig) {
    let issued = issue(&rig, GrantTtls::default()).await;
    let id = issued.grant_id;
    let answers = rig.together(16, |rig, _| async move {
        rig.stores.grants(&rig.scope).revoke(id, Some(&context())).await.expect("revoke")
    });
    assert_eq!(answers.await.into_iter().sum::<u64>(), 1);
    assert_eq!(is_revoked(&rig, id).await, Some(Why::Requested));
    let (stores, scope) = (&rig.stores, &rig.scope);
    let log = async || stores.audit(scope).list(None, 100).await.expect("list").items;
    let told = log().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].action, told[0].target.clone()), (Action::Revoke, vec![id.to_string()]));
    let token = issue(&rig, GrantTtls::default()).await.refresh_token;
    for revoked in [1, 0] {
        let answer = stores.grants(scope).revoke(&token, Some(&context())).await;
        assert_eq!(answer.expect("revoke"), revoked);
    }
    assert_eq!(log().await.len(), 2, "a change of nothing is not logged");
    issue(&rig, GrantTtls::default()).await;
    let revoked = stores.grants(scope).revoke(Holder::Subject("ada"), Some(&context())).await;
    assert_eq!(revoked.expect("revoke"), 1);
    stores.sessions(scope).create(SessionRequest::default().subject("ada")).await.expect("create");
    assert_eq!(stores.sessions(scope).revoke("ada", Some(&context())).await.expect("revoke"), 1);
    assert_eq!(log().await.len(), 5, "one entry for a sign-out; before and after for sessions");
}

pub(super) async fn a_revoked_token_is_told_of_once(rig: StoreRig) {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let log = async || stores.audit(scope).list(None, 100).await.expect("list").items;
    let issued = stores.access_tokens(scope).issue(AccessRequest::alone("ada", "app")).await.expect("issue");
    let IssueOutcome::Issued(alone) = issued else {
        panic!("a token without a grant should be issued, but: {issued:?}")
    };
    let family = issue(&rig, GrantTtls::default()).await;
    let access = access_token(&rig, family.grant_id).await;
    let tokens = [alone.access_token, access, family.refresh_token.clone()];
    let revoke = async |token: &Secret, client_id: Option<&str>| {
        let what = Revoke::Token { token, client_id, reach: None };
        stores.grants(scope).revoke(what, Some(&context())).await.expect("revoke") == 1
    };
    for token in &tokens {
        assert!(!revoke(token, Some("evil")).await, "another client's");
    }
    assert!(is_active(&rig, &tokens[0]).await && is_active(&rig, &tokens[1]).await);
    assert_eq!(log().await.len(), 0, "a change of nothing is not logged");
    for (token, client) in tokens.iter().zip([None, Some("app"), Some("app")]) {
        assert!(revoke(token, client).await);
        assert!(!revoke(token, client).await, "the token is not valid any more");
    }
    assert!(!is_active(&rig, &tokens[0]).await && !is_active(&rig, &tokens[1]).await);
    assert_dead(&rig, family.grant_id, &tokens[2..], &[]).await;
    assert_eq!(
        stores.grants(scope).revoke(Holder::Subject("ada"), None).await.expect("revoke"),
        0,
        "nor listed"
    );
    let told: Vec<_> =
        log().await.into_iter().take(3).map(|entry| (entry.action, entry.kind, entry.target)).collect();
    let id = family.grant_id.to_string();
    let expected = [
        (Kind::AccessToken, vec!["ada".to_owned(), "app".to_owned()]),
        (Kind::AccessToken, vec!["ada".to_owned(), "app".to_owned()]),
        (Kind::Grant, vec![id]),
    ];
    assert_eq!(told, expected.map(|(kind, target)| (Action::Revoke, Some(kind), target)));
    for token in ["", "ebr_", "eba_AAAA", "nonsense"] {
        assert!(!revoke(&Secret::new(token.to_owned()), None).await, "{token}");
    }
    let racing = access_token(&rig, issue(&rig, GrantTtls::default()).await.grant_id).await;
    let answers = rig.together(16, |rig, _| {
        let token = racing.clone();
        async move { rig.stores.grants(&rig.scope).revoke(&token, Some(&context())).await.expect("revoke") }
    });
    assert_eq!(answers.await.into_iter().sum::<u64>(), 1);
    assert_eq!(log().await.len(), 5, "one of several concurrent calls is logged");
}
