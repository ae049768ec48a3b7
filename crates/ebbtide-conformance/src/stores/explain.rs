//! Explanations agree with the store's own answers, and name the actor.

use super::approvals::context;
use super::attribute_lives::by;
use super::rig::{StoreRig, secs};
use ebbtide::model::scope::Scope;
use ebbtide::model::secret::Secret;
use ebbtide::ops::explain::{ExplainQuestion, Explanation, RecordState};
use ebbtide::stores::access_tokens::{AccessRequest, AccessTokenQuestion, IssueOutcome};
use ebbtide::stores::approvals::{Approval, ApprovalQuestion};
use ebbtide::stores::attributes::{AttributeQuestion, Draft};
use ebbtide::stores::audit::Action;
use ebbtide::stores::clients::{ClientQuestion, ClientRequest, RegisterOutcome};
use ebbtide::stores::codes::{CodeQuestion, CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{Approve, Deny, DeviceCodeQuestion, DeviceRequest};
use ebbtide::stores::grants::{GrantQuestion, GrantRequest, GrantTtls, Holder, Rotate};
use ebbtide::stores::nonces::{NonceCheck, NonceRequest};
use ebbtide::stores::pushed_requests::{Push, PushOutcome, PushedRequestQuestion, Take};
use ebbtide::stores::relationships::Relationship;
use ebbtide::stores::replays::{Proof, ReplayQuestion};
use ebbtide::stores::sessions::{SessionOutcome, SessionQuestion, SessionRequest};
use ebbtide::stores::shared::payload::Payload;
use ebbtide::stores::shared::refusal::RefusalCause;

async fn explain(rig: &StoreRig, question: &ExplainQuestion) -> Explanation {
    ebbtide::ops::explain::Explain::new(rig.stores.clone(), rig.scope.clone())
        .explain(question)
        .await
        .expect("explain")
}

async fn state(rig: &StoreRig, question: &ExplainQuestion) -> RecordState {
    let explanation = explain(rig, question).await;
    assert_eq!((explanation.kind, &explanation.scope), (question.kind(), &rig.scope));
    explanation.state
}

fn approval() -> ExplainQuestion {
    ExplainQuestion::Approvals(ApprovalQuestion::new("alice", "doc", "GET"))
}

pub(super) async fn a_replay_record_is_live_until_its_end(rig: StoreRig) {
    let proof = Proof::new("n", "j").ttl(secs(60));
    let question = ExplainQuestion::Replays(ReplayQuestion::new("n", "j", None, None, None));
    assert_eq!(state(&rig, &question).await, RecordState::Unknown);
    assert_eq!(state(&rig, &question).await, RecordState::Unknown, "asking records nothing");
    let _ = rig.stores.replays(&rig.scope).check(&proof).await.expect("check");
    assert_eq!(state(&rig, &question).await, RecordState::Live);
    rig.pass(60);
    assert_eq!(state(&rig, &question).await, RecordState::Unknown, "expired is absent, swept or not");
}

pub(super) async fn a_nonce_is_live_used_or_expired(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let request = NonceRequest::new("as").ttl(secs(60));
    let (one, two) = (nonces.issue(request.clone()).await, nonces.issue(request).await);
    let ask = |nonce: &Secret| ExplainQuestion::Nonces(NonceCheck::new("as", nonce));
    let (one, two) = (one.expect("issue").nonce, two.expect("issue").nonce);
    let _ = nonces.accept(&NonceCheck::new("as", &one)).await.expect("accept");
    assert_eq!(
        (state(&rig, &ask(&one)).await, state(&rig, &ask(&two)).await),
        (RecordState::Used, RecordState::Live)
    );
    rig.pass(60);
    assert_eq!(
        (state(&rig, &ask(&one)).await, state(&rig, &ask(&two)).await),
        (RecordState::Used, RecordState::Expired)
    );
    let other = ExplainQuestion::Nonces(NonceCheck::new("rs", two));
    assert_eq!(state(&rig, &other).await, RecordState::Unknown);
}

pub(super) async fn a_code_tells_what_it_gave(rig: StoreRig) {
    let codes = rig.stores.codes(&rig.scope);
    let issue =
        || async { codes.issue(CodeRequest::new("app", "ada", "https://a")).await.expect("issue").code };
    let (good, burned, late) = (issue().await, issue().await, issue().await);
    let question = ExplainQuestion::Codes(CodeQuestion::new(good.clone()));
    assert_eq!(state(&rig, &question).await, RecordState::Live);
    let presented = Redeem::new(good, "app").redirect_uri("https://a").with_grant();
    let RedeemOutcome::Redeemed(redeemed) = codes.redeem(presented.clone()).await.expect("redeem") else {
        panic!("the code should be redeemed");
    };
    let explanation = explain(&rig, &question).await;
    assert_eq!(explanation.state, RecordState::Used);
    assert_eq!(explanation.grant_id, redeemed.grant.map(|grant| grant.grant_id));
    let _ =
        codes.redeem(Redeem::new(burned.clone(), "other").redirect_uri("https://a")).await.expect("redeem");
    assert_eq!(state(&rig, &ExplainQuestion::Codes(CodeQuestion::new(burned))).await, RecordState::Used);
    rig.pass(60);
    assert_eq!(state(&rig, &ExplainQuestion::Codes(CodeQuestion::new(late))).await, RecordState::Expired);
    assert_eq!(
        state(&rig, &ExplainQuestion::Codes(CodeQuestion::new(Secret::new("ebc_garbage")))).await,
        RecordState::Unknown
    );
}

pub(super) async fn a_grant_tells_why_it_was_revoked(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let issued = grants.issue(GrantRequest::new("ada", "app")).await.expect("issue");
    let (grant, first) = (
        ExplainQuestion::Grants(GrantQuestion::new(issued.grant_id, None)),
        ExplainQuestion::Grants(GrantQuestion::new(None, issued.refresh_token.clone())),
    );
    assert_eq!(
        (state(&rig, &grant).await, state(&rig, &first).await),
        (RecordState::Live, RecordState::Live)
    );
    let _ = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.expect("rotate");
    assert_eq!(
        (state(&rig, &grant).await, state(&rig, &first).await),
        (RecordState::Live, RecordState::Used)
    );
    rig.pass(60);
    let _ = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.expect("rotate");
    let explanation = explain(&rig, &grant).await;
    assert_eq!(explanation.state, RecordState::Revoked);
    assert!(explanation.why.contains("used a second time"), "{}", explanation.why);
    assert_eq!(state(&rig, &first).await, RecordState::Revoked);
    let idle =
        grants.issue(GrantRequest::new("ada", "app").ttls(GrantTtls::default().idle_ttl(secs(60)))).await;
    rig.pass(60);
    assert_eq!(
        state(&rig, &ExplainQuestion::Grants(GrantQuestion::new(idle.expect("issue").grant_id, None))).await,
        RecordState::Expired
    );
}

pub(super) async fn an_access_token_ends_with_its_grant(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let grant_id = grants.issue(GrantRequest::new("ada", "app")).await.expect("issue").grant_id;
    let issue = |request| async { rig.stores.access_tokens(&rig.scope).issue(request).await.expect("issue") };
    let (under, alone) = (issue(AccessRequest::under(grant_id)), issue(AccessRequest::alone("ada", "app")));
    let (IssueOutcome::Issued(under), IssueOutcome::Issued(alone)) = (under.await, alone.await) else {
        panic!("the tokens should be issued");
    };
    let (under, alone) = (
        ExplainQuestion::AccessTokens(AccessTokenQuestion::new(under.access_token)),
        ExplainQuestion::AccessTokens(AccessTokenQuestion::new(alone.access_token)),
    );
    assert_eq!(
        (state(&rig, &under).await, state(&rig, &alone).await),
        (RecordState::Live, RecordState::Live)
    );
    assert_eq!(explain(&rig, &under).await.grant_id, Some(grant_id));
    assert_eq!(grants.revoke(grant_id, None).await.expect("revoke"), 1);
    assert_eq!(
        (state(&rig, &under).await, state(&rig, &alone).await),
        (RecordState::Revoked, RecordState::Live)
    );
    rig.pass(900);
    assert_eq!(state(&rig, &alone).await, RecordState::Unknown);
}

/// Asserts that a record was ended, for the reason with these words.
async fn ended(rig: &StoreRig, question: &ExplainQuestion, words: &str) {
    let explanation = explain(rig, question).await;
    assert_eq!(explanation.state, RecordState::Revoked, "{words}: {}", explanation.why);
    assert!(explanation.why.contains(words), "{}", explanation.why);
}

pub(super) async fn what_an_epoch_ended_is_explained(rig: StoreRig) {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let (codes, sessions) = (stores.codes(scope), stores.sessions(scope));
    let request = || CodeRequest::new("app", "ada", "https://a");
    let first = sessions.create(SessionRequest::new().subject("ada")).await.expect("create");
    let of_session = codes.issue(request().sid(first.sid)).await.expect("issue").code;
    assert!(sessions.delete_with_grants(&first.session_id, &context()).await.expect("delete"));
    ended(&rig, &ExplainQuestion::Codes(CodeQuestion::new(of_session.clone())), "session was ended").await;
    assert_eq!(cause(&rig, &of_session).await, Some(RefusalCause::SessionEnded));

    let code = codes.issue(request()).await.expect("issue").code;
    let device = stores.device_codes(scope).start(DeviceRequest::new("app")).await.expect("start");
    let approve = Approve::new(&device.user_code, "ada");
    let _ = stores.device_codes(scope).decide(approve).await.expect("decide");
    let alone = AccessRequest::alone("ada", "app");
    let IssueOutcome::Issued(alone) = stores.access_tokens(scope).issue(alone).await.expect("issue") else {
        panic!("it needs no grant")
    };
    let session = sessions.create(SessionRequest::new().subject("ada")).await.expect("create");
    let pushed = stores.pushed_requests(scope).put(Push::new("app", serde_json::json!({}))).await;
    let PushOutcome::Pushed { request_uri, .. } = pushed.expect("put") else { panic!("a new URI is free") };
    let pushed = || ExplainQuestion::PushedRequests(PushedRequestQuestion::new(request_uri.clone()));
    let pending = stores.device_codes(scope).start(DeviceRequest::new("app")).await.expect("start");
    let pending = || ExplainQuestion::DeviceCodes(DeviceCodeQuestion::new(pending.device_code.clone()));
    let _ = stores.owners(scope).sign_out("ada", &context()).await.expect("sign out");
    for question in [
        ExplainQuestion::Codes(CodeQuestion::new(code.clone())),
        ExplainQuestion::DeviceCodes(DeviceCodeQuestion::new(device.device_code)),
        ExplainQuestion::AccessTokens(AccessTokenQuestion::new(alone.access_token)),
        ExplainQuestion::Sessions(SessionQuestion::new(session.session_id.clone())),
    ] {
        ended(&rig, &question, "signed out").await;
    }
    assert_eq!(cause(&rig, &code).await, Some(RefusalCause::SignedOut));
    let (answer, cause_of_session) = RefusalCause::watch(sessions.get(&session.session_id)).await;
    assert_eq!(answer.expect("get"), SessionOutcome::Unknown);
    assert_eq!(cause_of_session, Some(RefusalCause::SignedOut));
    assert_eq!(state(&rig, &pushed()).await, RecordState::Live);
    assert_eq!(state(&rig, &pending()).await, RecordState::Live);
    let of_client = codes.issue(request()).await.expect("issue").code;
    let by = Holder::Client("app");
    let _ = stores.grants(scope).revoke(by, Some(&context())).await.expect("revoke");
    for question in [ExplainQuestion::Codes(CodeQuestion::new(of_client.clone())), pushed(), pending()] {
        ended(&rig, &question, "of its client was revoked").await;
    }

    assert_eq!(cause(&rig, &of_client).await, Some(RefusalCause::ClientRevoked));
}

/// Cause of the refusal of a code that an epoch has ended. The caller is answered that it is unknown.
async fn cause(rig: &StoreRig, code: &Secret) -> Option<RefusalCause> {
    let codes = rig.stores.codes(&rig.scope);
    let redeem = Redeem::new(code.clone(), "app").redirect_uri("https://a");
    let (answer, cause) = RefusalCause::watch(codes.redeem(redeem)).await;
    assert_eq!(answer.expect("redeem"), RedeemOutcome::Unknown);
    cause
}

pub(super) async fn an_extension_tells_who_and_why(rig: StoreRig) {
    let approvals = rig.stores.approvals(&rig.scope);
    let granted = Approval::new("alice", "doc", "GET", "admin").ttl(secs(60)).cap(secs(200));
    approvals.grant(&granted).await.expect("grant");
    approvals.grant(&Approval::new("alice", "other", "GET", "admin").ttl(secs(60))).await.expect("grant");
    let ends = approvals.get("alice", "doc", "GET").await.expect("get").expect("it stands").expires_at;
    assert!(approvals.extend("alice", "doc", "GET", &by(40)).await.expect("extend").is_extended());
    assert!(approvals.extend("alice", "other", "GET", &by(40)).await.expect("extend").is_extended());
    let explanation = explain(&rig, &approval()).await;
    assert_eq!(explanation.state, RecordState::Live);
    let [_, entry] = explanation.history.as_slice() else { panic!("two entries, and not the other's") };
    assert_eq!(
        (entry.action, entry.before, entry.after),
        (Action::Extend, Some(ends), explanation.expires_at)
    );
    assert!(explanation.cap_at.is_some_and(|cap| Some(cap) > explanation.expires_at));
    rig.pass(100);
    assert_eq!(state(&rig, &approval()).await, RecordState::Expired, "the log states the new expiry");
}

pub(super) async fn what_was_revoked_is_told_from_the_log(rig: StoreRig) {
    assert_eq!(state(&rig, &approval()).await, RecordState::Unknown);
    let approvals = rig.stores.approvals(&rig.scope);
    approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await.expect("grant");
    assert!(approvals.revoke("alice", "doc", "GET", &context()).await.expect("revoke"));
    let explanation = explain(&rig, &approval()).await;
    assert_eq!((explanation.state, explanation.history.len()), (RecordState::Revoked, 2));
    approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await.expect("grant");
    assert_eq!(
        state(&rig, &approval()).await,
        RecordState::Live,
        "a live record takes precedence over the log"
    );
    let role = Relationship::role("alice", "editor", "doc", "admin");
    let question = ExplainQuestion::Relationships(role.edge());
    rig.stores.relationships(&rig.scope).add(&role).await.expect("add");
    assert_eq!(state(&rig, &question).await, RecordState::Live);
    assert!(rig.stores.relationships(&rig.scope).remove(&role.edge(), &context()).await.expect("remove"));
    assert_eq!(state(&rig, &question).await, RecordState::Revoked);
}

pub(super) async fn an_explanation_renews_nothing(rig: StoreRig) {
    let bucket = rig.stores.attributes(&rig.scope).bucket("alice", "b").expect("good names");
    let draft = Draft::new(serde_json::json!(1)).sliding_ttl(secs(60), secs(600));
    bucket.set("a", draft).await.expect("set");
    let question = ExplainQuestion::Attributes(AttributeQuestion::new("alice", "b", "a"));
    rig.pass(50);
    let before = rig.contents().await;
    assert_eq!(state(&rig, &question).await, RecordState::Live);
    assert_eq!(rig.contents().await, before);
    rig.pass(10);
    assert_eq!(state(&rig, &question).await, RecordState::Unknown);
}

pub(super) async fn explanations_keep_to_their_scope(rig: StoreRig) {
    let other: Scope = "tenant:acme/env:prod".parse().expect("a good scope");
    rig.stores.approvals(&other).grant(&Approval::new("alice", "doc", "GET", "admin")).await.expect("grant");
    let code =
        rig.stores.codes(&other).issue(CodeRequest::new("app", "ada", "https://a")).await.expect("issue");
    assert_eq!(state(&rig, &approval()).await, RecordState::Unknown);
    assert_eq!(
        state(&rig, &ExplainQuestion::Codes(CodeQuestion::new(code.code))).await,
        RecordState::Unknown
    );
    let explained = ebbtide::ops::explain::Explain::new(rig.stores.clone(), other.clone())
        .explain(&approval())
        .await
        .expect("explain");
    assert_eq!(explained.state, RecordState::Live);
}

pub(super) async fn what_a_session_a_request_and_a_device_came_to(rig: StoreRig) {
    let (sessions, requests) = (rig.stores.sessions(&rig.scope), rig.stores.pushed_requests(&rig.scope));
    let devices = rig.stores.device_codes(&rig.scope);
    let session = || async { sessions.create(SessionRequest::default()).await.expect("create").session_id };
    let (claimed, late) = (session().await, session().await);
    let push = || async {
        match requests.put(Push::new("app", Payload::new("x"))).await.expect("put") {
            PushOutcome::Pushed { request_uri, .. } => request_uri,
            other => panic!("a generated URI should be free: {other:?}"),
        }
    };
    let (taken, left) = (push().await, push().await);
    let start = || async { devices.start(DeviceRequest::new("tv")).await.expect("start") };
    let (denied, pending) = (start().await, start().await);
    let before = [
        (ExplainQuestion::Sessions(SessionQuestion::new(claimed.clone())), RecordState::Used),
        (ExplainQuestion::Sessions(SessionQuestion::new(late)), RecordState::Expired),
        (ExplainQuestion::PushedRequests(PushedRequestQuestion::new(taken.clone())), RecordState::Used),
        (ExplainQuestion::PushedRequests(PushedRequestQuestion::new(left)), RecordState::Expired),
        (ExplainQuestion::DeviceCodes(DeviceCodeQuestion::new(denied.device_code)), RecordState::Revoked),
        (ExplainQuestion::DeviceCodes(DeviceCodeQuestion::new(pending.device_code)), RecordState::Expired),
    ];
    for (question, _) in &before {
        assert_eq!(state(&rig, question).await, RecordState::Live, "{question:?}");
    }
    let _ = sessions.claim(&claimed).await.expect("claim");
    let _ = requests.take(Take::new(&taken, "app")).await.expect("take");
    let _ = devices.decide(Deny::new(&denied.user_code, "here")).await.expect("decide");
    rig.pass(600);
    for (question, after) in &before {
        assert_eq!(state(&rig, question).await, *after, "{question:?}");
    }
    let client = ExplainQuestion::Clients(ClientQuestion::new("app"));
    assert_eq!(state(&rig, &client).await, RecordState::Unknown);
    let request = ClientRequest::public().client_id("app");
    assert!(matches!(
        rig.stores.clients(&rig.scope).register(request).await,
        Ok(RegisterOutcome::Registered(_))
    ));
    assert_eq!(state(&rig, &client).await, RecordState::Live);
    for garbage in [
        ExplainQuestion::Sessions(SessionQuestion::new(Secret::new("x"))),
        ExplainQuestion::DeviceCodes(DeviceCodeQuestion::new(Secret::new("x"))),
    ] {
        assert_eq!(state(&rig, &garbage).await, RecordState::Unknown);
    }
}
