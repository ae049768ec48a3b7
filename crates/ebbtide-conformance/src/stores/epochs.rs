//! Epochs: a sign-out and a revocation by client end what was issued before, whatever raced.

use std::sync::Arc;

use super::clients::register;
use super::rig::{StoreRig, secs};
use ebbtide::model::error::ErrorKind;
use ebbtide::model::kind::Kind;
use ebbtide::model::secret::Secret;
use ebbtide::stores::access_tokens::{AccessDraft, AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::clients::ClientRequest;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{Approve, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest};
use ebbtide::stores::grants::{GrantRequest, GrantState, Holder, Rotate, RotateOutcome, Why};
use ebbtide::stores::owners::SignedOut;
use ebbtide::stores::pushed_requests::{Push, PushOutcome, Take, TakeOutcome};
use ebbtide::stores::sessions::{SessionOutcome, SessionRequest, TouchOutcome};

const URI: &str = "https://app.example/cb";

fn context() -> AuditContext {
    AuditContext::new("an operator", "a lost laptop").expect("good words")
}

/// Everything that can be issued to a subject.
struct Issued {
    code: Secret,
    device_code: Secret,
    grant: Secret,
    under_grant: Secret,
    alone: Secret,
    session: Secret,
}

async fn access(rig: &StoreRig, request: AccessRequest) -> Option<Secret> {
    match rig.stores.access_tokens(&rig.scope).issue(request).await.expect("issue") {
        IssueOutcome::Issued(issued) => Some(issued.access_token),
        _ => None,
    }
}

/// Issues one of each; `None` if a sign-out was faster with the grant.
async fn issue(rig: &StoreRig, subject: &str, client_id: &str) -> Option<Issued> {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let code = stores.codes(scope).issue(CodeRequest::new(client_id, subject, URI)).await.expect("code").code;
    let device = stores.device_codes(scope).start(DeviceRequest::new(client_id)).await.expect("start");
    let _ =
        stores.device_codes(scope).decide(Approve::new(&device.user_code, subject)).await.expect("decide");
    let grant = stores.grants(scope).issue(GrantRequest::new(subject, client_id)).await.expect("grant");
    let under_grant = access(rig, AccessRequest::under(grant.grant_id)).await;
    let alone = access(rig, AccessRequest::alone(subject, client_id)).await.expect("it needs no grant");
    let session =
        stores.sessions(scope).create(SessionRequest::new().subject(subject)).await.expect("session");
    Some(Issued {
        code,
        device_code: device.device_code,
        grant: grant.refresh_token,
        under_grant: under_grant?,
        alone,
        session: session.session_id,
    })
}

/// Names of what still works.
async fn works(rig: &StoreRig, issued: &Issued, client_id: &str) -> Vec<&'static str> {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let mut works = Vec::new();
    for (name, token) in [("token under a grant", &issued.under_grant), ("token", &issued.alone)] {
        let answer = stores.access_tokens(scope).introspect(token).await.expect("introspect");
        if matches!(answer, IntrospectOutcome::Active(_)) {
            works.push(name);
        }
    }
    if let SessionOutcome::Live(_) = stores.sessions(scope).get(&issued.session).await.expect("get") {
        works.push("session");
    }
    if let TouchOutcome::Touched { .. } =
        stores.sessions(scope).touch(&issued.session, None).await.expect("touch")
    {
        works.push("touch");
    }
    let redeem = Redeem::new(&issued.code, client_id).redirect_uri(URI).with_grant();
    if let RedeemOutcome::Redeemed(_) = stores.codes(scope).redeem(redeem).await.expect("redeem") {
        works.push("code");
    }
    let redeem = DeviceRedeem::new(&issued.device_code, client_id).with_grant();
    if let DeviceRedeemOutcome::Redeemed(_) = stores.device_codes(scope).redeem(redeem).await.expect("redeem")
    {
        works.push("device code");
    }
    let rotate = Rotate::new(&issued.grant, client_id).access_token(AccessDraft::default());
    let answer = stores.grants(scope).rotate(rotate).await.expect("rotate");
    if matches!(answer, RotateOutcome::Rotated(_) | RotateOutcome::Retried(_)) {
        works.push("refresh token");
    }
    works
}

pub(super) async fn a_sign_out_ends_everything_of_its_subject(rig: StoreRig) {
    for round in 0..3 {
        let (ada, bob) =
            (issue(&rig, "ada", "app").await.expect("ada"), issue(&rig, "bob", "app").await.expect("bob"));
        let ended = rig.stores.owners(&rig.scope).sign_out("ada", &context()).await.expect("sign out");
        let SignedOut { grants, access_tokens, sessions, .. } = ended;
        assert_eq!(
            (grants, access_tokens, sessions),
            (1, 1, 1),
            "round {round}: what was ended before is not counted"
        );
        assert_eq!(works(&rig, &ada, "app").await, Vec::<&str>::new());
        assert_eq!(works(&rig, &bob, "app").await.len(), 7, "others are not touched");
        rig.pass(1);
    }
    assert_eq!(works(&rig, &issue(&rig, "ada", "app").await.expect("again"), "app").await.len(), 7);
    let listed =
        rig.stores.grants(&rig.scope).list(Holder::Subject("ada"), None, 10).await.expect("list").items;
    let is_out = |state| matches!(state, GrantState::Revoked { why: Why::SignedOut, .. });
    assert_eq!(listed.iter().filter(|grant| is_out(grant.state)).count(), 3, "each says why");
    let entries = rig.stores.audit(&rig.scope).list(None, 100).await.expect("list").items;
    let detail = |entry: &&ebbtide::stores::audit::AuditEntry| entry.kind == Some(Kind::Owner);
    assert_eq!(entries.iter().filter(detail).count(), 3, "each is in the audit log");
}

pub(super) async fn a_revocation_by_client_ends_everything_of_the_client(rig: StoreRig) {
    let (app, other) =
        (issue(&rig, "ada", "app").await.expect("app"), issue(&rig, "ada", "other").await.expect("other"));
    let push = Push::new("app", serde_json::json!({}));
    let PushOutcome::Pushed { request_uri, .. } =
        rig.stores.pushed_requests(&rig.scope).put(push).await.expect("put")
    else {
        panic!("a new URI is free")
    };
    let machine = access(&rig, AccessRequest::alone("app", "app")).await.expect("client credentials");
    let revoked =
        rig.stores.grants(&rig.scope).revoke(Holder::Client("app"), Some(&context())).await.expect("revoke");
    assert_eq!(revoked, 3, "a grant, and two tokens without one");
    assert_eq!(works(&rig, &app, "app").await, ["session", "touch"], "a session has no client");
    assert_eq!(works(&rig, &other, "other").await.len(), 7);
    let taken =
        rig.stores.pushed_requests(&rig.scope).take(Take::new(request_uri, "app")).await.expect("take");
    assert_eq!(taken, TakeOutcome::Unknown);
    let answer = rig.stores.access_tokens(&rig.scope).introspect(&machine).await.expect("introspect");
    assert_eq!(answer, IntrospectOutcome::Inactive);
    assert_eq!(works(&rig, &issue(&rig, "ada", "app").await.expect("again"), "app").await.len(), 7);
}

/// A client that speaks for itself may have the name of a subject: what it has ends with the client alone.
pub(super) async fn a_sign_out_counts_only_what_it_ends(rig: StoreRig) {
    let user = issue(&rig, "app", "other").await.expect("a user of that name");
    let machine = access(&rig, AccessRequest::alone("app", "app")).await.expect("client credentials");
    let grants = rig.stores.grants(&rig.scope);
    let grant = grants.issue(GrantRequest::new("app", "app")).await.expect("grant");
    let ended = rig.stores.owners(&rig.scope).sign_out("app", &context()).await.expect("sign out");
    assert_eq!((ended.grants, ended.access_tokens, ended.sessions, ended.more), (1, 1, 1, false));
    assert_eq!(works(&rig, &user, "other").await, Vec::<&str>::new());
    let answer = rig.stores.access_tokens(&rig.scope).introspect(&machine).await.expect("introspect");
    assert!(matches!(answer, IntrospectOutcome::Active(_)), "{answer:?}");
    let answer = grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.expect("rotate");
    assert!(matches!(answer, RotateOutcome::Rotated(_)), "{answer:?}");
    assert_eq!(grants.revoke(Holder::Client("app"), Some(&context())).await.expect("revoke"), 2);
    let answer = rig.stores.access_tokens(&rig.scope).introspect(&machine).await.expect("introspect");
    assert_eq!(answer, IntrospectOutcome::Inactive);
}

/// Another node holds what it has read of the clients under a lease. When the raise is answered, the lease has ended.
pub(super) async fn a_revocation_by_client_is_known_to_every_node_when_it_is_answered(rig: StoreRig) {
    let other = rig.with_keyring(rig.keyring().clone());
    for _ in 0..2 {
        let app = issue(&rig, "ada", "app").await.expect("app");
        let answer = other.stores.access_tokens(&rig.scope).introspect(&app.alone).await.expect("introspect");
        assert!(matches!(answer, IntrospectOutcome::Active(_)), "{answer:?}");
        let grants = rig.stores.grants(&rig.scope);
        assert_eq!(grants.revoke(Holder::Client("app"), Some(&context())).await.expect("revoke"), 2);
        assert_eq!(works(&other, &app, "app").await, ["session", "touch"]);
        rig.pass(1);
        assert_eq!(works(&rig, &issue(&other, "ada", "app").await.expect("again"), "app").await.len(), 7);
        let _ = grants.revoke(Holder::Client("app"), Some(&context())).await.expect("revoke");
        rig.pass(1);
    }
}

pub(super) async fn a_node_issues_nothing_to_a_client_that_another_one_deletes(rig: StoreRig) {
    let other = rig.with_keyring(rig.keyring().clone());
    let client_id = register(&rig, ClientRequest::confidential()).await.client.client_id;
    let app = issue(&other, "ada", &client_id).await.expect("app");
    let clients = rig.stores.clients(&rig.scope);
    let deletion = clients.delete(&client_id, &context()).await.expect("delete");
    for node in [&rig, &other] {
        let request = CodeRequest::new(&client_id, "ada", URI);
        let error = node.stores.codes(&rig.scope).issue(request).await.expect_err("it is being deleted");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(works(node, &app, &client_id).await, ["session", "touch"]);
    }
    let mut deletion = deletion.expect("it is registered");
    while deletion.step().await.expect("step") {}
    assert_eq!(works(&other, &app, &client_id).await, ["session", "touch"]);
}

pub(super) async fn nothing_survives_a_sign_out_that_races_its_issuers(rig: StoreRig) {
    // Two nodes. `EBBTIDE_TEST_ROUNDS=1000` is for a long look.
    let other = &rig.with_keyring(rig.keyring().clone());
    let rounds = std::env::var("EBBTIDE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    for round in 0..rounds.unwrap_or(4) {
        // Records of earlier rounds would be counted by every sign-out of the same subject.
        let subject = &format!("ada {round}");
        let before = issue(&rig, subject, "app").await.expect("all");
        let all = rig.together(64, |rig, number| {
            let (rig, subject) = (if number % 2 == 0 { rig } else { other.clone() }, subject.clone());
            async move {
                if number == 32 {
                    let owners = rig.stores.owners(&rig.scope);
                    let _ = owners.sign_out(&subject, &context()).await.expect("sign out");
                }
                issue(&rig, &subject, "app").await
            }
        });
        let all = all.await;
        assert_eq!(works(other, &before, "app").await, Vec::<&str>::new());
        rig.pass(1);
        let _ = rig.stores.owners(&rig.scope).sign_out(subject, &context()).await.expect("sign out");
        let all: Vec<_> = all.into_iter().flatten().map(Arc::new).collect();
        let judged = rig.together(all.len(), |rig, number| {
            let issued = Arc::clone(&all[number]);
            async move { works(&rig, &issued, "app").await }
        });
        assert_eq!(judged.await.concat(), Vec::<&str>::new());
    }
}

pub(super) async fn a_rotation_that_a_sign_out_overtakes_is_dead(rig: StoreRig) {
    let issued = issue(&rig, "ada", "app").await.expect("all");
    let other = rig.clone();
    let overtaken = rig.meanwhile(Kind::Grant, async move {
        let _ = other.stores.owners(&other.scope).sign_out("ada", &context()).await.expect("sign out");
    });
    let rotate = Rotate::new(&issued.grant, "app").access_token(AccessDraft::default());
    let answer = overtaken.stores.grants(&rig.scope).rotate(rotate).await.expect("rotate");
    assert!(matches!(answer, RotateOutcome::Revoked { why: Why::SignedOut, .. }), "{answer:?}");
    let other = rig.clone();
    let code = issue(&rig, "ada", "app").await.expect("all").code;
    let overtaken = rig.meanwhile(Kind::Code, async move {
        let _ = other.stores.owners(&other.scope).sign_out("ada", &context()).await.expect("sign out");
    });
    let redeem = Redeem::new(&code, "app").redirect_uri(URI).with_grant();
    let answer = overtaken.stores.codes(&rig.scope).redeem(redeem).await.expect("redeem");
    assert_eq!(answer, RedeemOutcome::Unknown);
}

/// Ten years and a day after a raise its record is gone; the next raise must not revive what the first one ended.
pub(super) async fn an_epoch_that_expired_and_was_raised_again_revives_nothing(rig: StoreRig) {
    let owners = rig.stores.owners(&rig.scope);
    let _ = owners.sign_out("ada", &context()).await.expect("sign out");
    let decade = 10 * 365 * 24 * 3600;
    let long = GrantRequest::new("ada", "app").idle_ttl(secs(decade)).max_ttl(secs(decade));
    let grants = rig.stores.grants(&rig.scope);
    let issued = grants.issue(long.clone()).await.expect("issue");
    let _ = owners.sign_out("ada", &context()).await.expect("sign out");
    for _ in 0..2 {
        rig.pass(3_655 * 24 * 3600);
        rig.sweep().await;
        let answer = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.expect("rotate");
        assert_eq!(answer, RotateOutcome::Expired, "nothing lives as long as an epoch is kept");
        let later = grants.issue(long.clone()).await.expect("issue");
        let _ = owners.sign_out("ada", &context()).await.expect("sign out");
        let answer = grants.rotate(Rotate::new(&later.refresh_token, "app")).await.expect("rotate");
        assert!(matches!(answer, RotateOutcome::Revoked { .. }), "{answer:?}");
    }
    let error = grants.issue(long.max_ttl(secs(11 * 365 * 24 * 3600))).await.expect_err("too long");
    assert!(error.message().contains("a grant lives at most"), "{error}");
}

/// The same for a client: its epoch, and the entry in the set of the clients, are gone.
pub(super) async fn an_epoch_of_a_client_that_expired_revives_nothing(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let decade = 10 * 365 * 24 * 3600;
    let long = GrantRequest::new("ada", "app").idle_ttl(secs(decade)).max_ttl(secs(decade));
    let context = context();
    let revoke = || grants.revoke(Holder::Client("app"), Some(&context));
    assert_eq!(revoke().await.expect("revoke"), 0);
    let issued = grants.issue(long.clone()).await.expect("issue");
    assert_eq!(revoke().await.expect("revoke"), 1);
    for _ in 0..2 {
        rig.pass(3_655 * 24 * 3600);
        rig.sweep().await;
        let node = rig.with_keyring(rig.keyring().clone());
        for rig in [&rig, &node] {
            let rotate = Rotate::new(&issued.refresh_token, "app");
            let answer = rig.stores.grants(&rig.scope).rotate(rotate).await.expect("rotate");
            assert_eq!(answer, RotateOutcome::Expired, "nothing lives as long as an epoch is kept");
        }
        let later = grants.issue(long.clone()).await.expect("issue");
        // Not counted by a process that knows the epoch from before its end.
        let _ = revoke().await.expect("revoke");
        for rig in [&rig, &node] {
            let rotate = Rotate::new(&later.refresh_token, "app");
            let answer = rig.stores.grants(&rig.scope).rotate(rotate).await.expect("rotate");
            assert!(matches!(answer, RotateOutcome::Revoked { why: Why::ClientRevoked, .. }), "{answer:?}");
        }
    }
}

pub(super) async fn an_overview_has_everything_of_a_subject(rig: StoreRig) {
    let (owners, tokens) = (rig.stores.owners(&rig.scope), rig.stores.access_tokens(&rig.scope));
    let [ada, _] =
        [issue(&rig, "ada", "app").await.expect("ada"), issue(&rig, "bob", "app").await.expect("bob")];
    let rotate = Rotate::new(&ada.grant, "app").access_token(AccessDraft::default());
    let RotateOutcome::Rotated(rotated) = rig.stores.grants(&rig.scope).rotate(rotate).await.expect("rotate")
    else {
        panic!("it is the present one")
    };
    let redeem =
        Redeem::new(&ada.code, "app").redirect_uri(URI).with_grant().access_token(AccessDraft::default());
    let RedeemOutcome::Redeemed(redeemed) =
        rig.stores.codes(&rig.scope).redeem(redeem).await.expect("redeem")
    else {
        panic!("it is a good one")
    };
    let redeemed = redeemed.grant.expect("a grant").grant_id;
    let found = owners.overview("ada").await.expect("overview");
    assert_eq!((found.grants.len(), found.sessions.len(), found.more), (2, 1, false));
    let mut above: Vec<_> = found.access_tokens.iter().map(|token| token.grant_id).collect();
    above.sort_unstable();
    let mut expected = [None, Some(rotated.grant_id), Some(rotated.grant_id), Some(redeemed)];
    expected.sort_unstable();
    assert_eq!(above, expected, "one alone, two of the first grant, one of the code");
    assert!(
        found.access_tokens.iter().all(|token| token.state == GrantState::Active && token.subject == "ada")
    );

    // An ended token says why, and one that is gone is not listed.
    let one = found.access_tokens.iter().find(|token| token.grant_id == Some(redeemed)).expect("listed");
    let id = one.handle.parse().expect("its handle is its jti");
    assert!(tokens.revoke_by_id(id, &context()).await.expect("revoke"));
    assert_eq!(rig.stores.grants(&rig.scope).revoke(rotated.grant_id, None).await.expect("revoke"), 1);
    let listed = owners.overview("ada").await.expect("overview").access_tokens;
    assert_eq!(listed.len(), 3);
    for token in &listed {
        let is_revoked = matches!(token.state, GrantState::Revoked { why: Why::Requested, .. });
        assert_eq!(is_revoked, token.grant_id == Some(rotated.grant_id), "{token:?}");
    }
    rig.pass(1);
    let _ = owners.sign_out("ada", &context()).await.expect("sign out");
    let out = owners.overview("ada").await.expect("overview").access_tokens;
    let alone = out.iter().find(|token| token.grant_id.is_none()).expect("listed");
    assert!(matches!(alone.state, GrantState::Revoked { why: Why::SignedOut, .. }), "{:?}", alone.state);
    let mut deletion = owners.delete("bob", &context()).await.expect("delete");
    while deletion.step().await.expect("step") {}
    let left = rig.contents().await;
    let tokens = left.iter().filter(|(key, _)| key.kind() == Kind::AccessToken).count();
    assert_eq!(tokens, listed.len(), "a deletion removes the tokens under grants too");
    rig.go_to(listed.iter().map(|token| token.expires_at).max().expect("some"), 0);
    assert_eq!(owners.overview("ada").await.expect("overview").access_tokens.len(), 0);
}

pub(super) async fn a_session_can_take_its_grants_with_it(rig: StoreRig) {
    let (sessions, grants) = (rig.stores.sessions(&rig.scope), rig.stores.grants(&rig.scope));
    let session = sessions.create(SessionRequest::new().subject("ada")).await.expect("create");
    assert_eq!(session.sid, session.handle);
    let code = CodeRequest::new("app", "ada", URI).sid(session.sid.clone());
    let code = rig.stores.codes(&rig.scope).issue(code).await.expect("issue");
    let redeem = Redeem::new(code, "app").redirect_uri(URI).with_grant().access_token(AccessDraft::default());
    let RedeemOutcome::Redeemed(redeemed) =
        rig.stores.codes(&rig.scope).redeem(redeem).await.expect("redeem")
    else {
        panic!("the session is live")
    };
    let code = CodeRequest::new("app", "ada", URI).sid(session.sid.clone());
    let code = rig.stores.codes(&rig.scope).issue(code).await.expect("issue");
    let redeem = Redeem::new(code, "app").redirect_uri(URI).access_token(AccessDraft::default());
    let RedeemOutcome::Redeemed(alone) = rig.stores.codes(&rig.scope).redeem(redeem).await.expect("redeem")
    else {
        panic!("the session is live")
    };
    let alone = alone.access_token.expect("a token").access_token;
    let answer = rig.stores.access_tokens(&rig.scope).introspect(&alone).await.expect("introspect");
    let IntrospectOutcome::Active(active) = answer else { panic!("the session is live") };
    assert_eq!(active.sid.as_ref(), Some(&session.sid), "without a grant too");
    let other = grants.issue(GrantRequest::new("ada", "app").sid("another")).await.expect("issue");
    let outstanding = CodeRequest::new("app", "ada", URI).sid(session.sid.clone());
    let outstanding = rig.stores.codes(&rig.scope).issue(outstanding).await.expect("issue");
    assert!(sessions.delete_with_grants(&session.session_id, &context()).await.expect("delete"));
    let grant = redeemed.grant.expect("a grant");
    let answer = grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.expect("rotate");
    assert!(matches!(answer, RotateOutcome::Revoked { why: Why::SessionEnded, .. }), "{answer:?}");
    let under = redeemed.access_token.expect("a token").access_token;
    for token in [&under, &alone] {
        let answer = rig.stores.access_tokens(&rig.scope).introspect(token).await.expect("introspect");
        assert_eq!(answer, IntrospectOutcome::Inactive);
    }
    let redeem = Redeem::new(outstanding, "app").redirect_uri(URI).with_grant();
    let answer = rig.stores.codes(&rig.scope).redeem(redeem).await.expect("redeem");
    assert_eq!(answer, RedeemOutcome::Unknown);
    let late =
        grants.issue(GrantRequest::new("ada", "app").sid(session.sid)).await.expect_err("it has ended");
    assert!(late.message().contains("sid"), "{late}");
    let answer = grants.rotate(Rotate::new(&other.refresh_token, "app")).await.expect("rotate");
    assert!(matches!(answer, RotateOutcome::Rotated(_)), "{answer:?}");
}

/// A grant lives for longer than the session that it came from.
pub(super) async fn a_session_that_is_over_takes_its_grants_with_it(rig: StoreRig) {
    let (sessions, grants) = (rig.stores.sessions(&rig.scope), rig.stores.grants(&rig.scope));
    for is_claimed in [true, false] {
        let session = sessions.create(SessionRequest::new().subject("ada")).await.expect("create");
        let grant = grants.issue(GrantRequest::new("ada", "app").sid(session.sid)).await.expect("issue");
        if is_claimed {
            let _ = sessions.claim(&session.session_id).await.expect("claim");
        } else {
            rig.pass(600);
        }
        let delete =
            async || sessions.delete_with_grants(&session.session_id, &context()).await.expect("delete");
        assert!(delete().await, "it is there, and ends its grant");
        let answer = grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.expect("rotate");
        assert!(matches!(answer, RotateOutcome::Revoked { why: Why::SessionEnded, .. }), "{answer:?}");
        assert!(!delete().await, "it is gone");
    }
}
