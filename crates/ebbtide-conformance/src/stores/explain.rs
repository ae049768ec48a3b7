//! Explanations agree with the store's own answers, and name the actor.

use super::approvals::context;
use super::attribute_lives::by;
use super::rig::{StoreRig, secs};
use ebbtide::model::scope::Scope;
use ebbtide::model::secret::Secret;
use ebbtide::ops::explain::{Explanation, Question, RecordState};
use ebbtide::stores::access_tokens::{AccessRequest, AccessTokenQuestion, IssueOutcome};
use ebbtide::stores::approvals::{Approval, ApprovalQuestion};
use ebbtide::stores::attributes::{AttributeQuestion, Draft};
use ebbtide::stores::audit::Action;
use ebbtide::stores::clients::{ClientQuestion, ClientRequest, RegisterOutcome};
use ebbtide::stores::codes::{CodeQuestion, CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::device_codes::{Deny, DeviceCodeQuestion, DeviceRequest};
use ebbtide::stores::grants::{GrantQuestion, GrantRequest, GrantTtls, Rotate};
use ebbtide::stores::nonces::{NonceCheck, NonceRequest};
use ebbtide::stores::pushed_requests::{Push, PushOutcome, PushedRequestQuestion, Take};
use ebbtide::stores::relationships::Relationship;
use ebbtide::stores::replays::{Proof, ReplayQuestion};
use ebbtide::stores::sessions::{SessionQuestion, SessionRequest};
use ebbtide::stores::shared::payload::Payload;

async fn explain(rig: &StoreRig, question: &Question) -> Explanation {
    ebbtide::ops::explain::Explain::new(rig.stores.clone(), rig.scope.clone())
        .explain(question)
        .await
        .expect("explain")
}

async fn state(rig: &StoreRig, question: &Question) -> RecordState {
    let explanation = explain(rig, question).await;
    assert_eq!((explanation.kind, &explanation.scope), (question.kind(), &rig.scope));
    explanation.state
}

fn approval() -> Question {
    Question::Approvals(ApprovalQuestion::new("alice", "doc", "GET"))
}

pub(super) async fn a_replay_record_is_live_until_its_end(rig: StoreRig) {
    let proof = Proof::new("n", "j").ttl(secs(60));
    let question = Question::Replays(ReplayQuestion::new("n", "j", None, None, None));
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
    let ask = |nonce: &Secret| Question::Nonces(NonceCheck::new("as", nonce));
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
    let other = Question::Nonces(NonceCheck::new("rs", two));
    assert_eq!(state(&rig, &other).await, RecordState::Unknown);
}

pub(super) async fn a_code_tells_what_it_gave(rig: StoreRig) {
    let codes = rig.stores.codes(&rig.scope);
    let issue =
        || async { codes.issue(CodeRequest::new("app", "ada", "https://a")).await.expect("issue").code };
    let (good, burned, late) = (issue().await, issue().await, issue().await);
    let question = Question::Codes(CodeQuestion::new(good.clone()));
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
    assert_eq!(state(&rig, &Question::Codes(CodeQuestion::new(burned))).await, RecordState::Used);
    rig.pass(60);
    assert_eq!(state(&rig, &Question::Codes(CodeQuestion::new(late))).await, RecordState::Expired);
    assert_eq!(
        state(&rig, &Question::Codes(CodeQuestion::new(Secret::new("ebc_garbage")))).await,
        RecordState::Unknown
    );
}

pub(super) async fn a_grant_tells_why_it_was_revoked(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let issued = grants.issue(GrantRequest::new("ada", "app")).await.expect("issue");
    let (grant, first) = (
        Question::Grants(GrantQuestion::new(issued.grant_id, None)),
        Question::Grants(GrantQuestion::new(None, issued.refresh_token.clone())),
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
        state(&rig, &Question::Grants(GrantQuestion::new(idle.expect("issue").grant_id, None))).await,
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
        Question::AccessTokens(AccessTokenQuestion::new(under.access_token)),
        Question::AccessTokens(AccessTokenQuestion::new(alone.access_token)),
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
    let [entry] = explanation.history.as_slice() else { panic!("one entry, and not the other's") };
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
    assert_eq!((explanation.state, explanation.history.len()), (RecordState::Revoked, 1));
    approvals.grant(&Approval::new("alice", "doc", "GET", "admin")).await.expect("grant");
    assert_eq!(
        state(&rig, &approval()).await,
        RecordState::Live,
        "a live record takes precedence over the log"
    );
    let role = Relationship::role("alice", "editor", "doc", "admin");
    let question = Question::Relationships(role.edge());
    rig.stores.relationships(&rig.scope).add(&role).await.expect("add");
    assert_eq!(state(&rig, &question).await, RecordState::Live);
    assert!(rig.stores.relationships(&rig.scope).remove(&role.edge(), &context()).await.expect("remove"));
    assert_eq!(state(&rig, &question).await, RecordState::Revoked);
}

pub(super) async fn an_explanation_renews_nothing(rig: StoreRig) {
    let bucket = rig.stores.attributes(&rig.scope).bucket("alice", "b").expect("good names");
    let draft = Draft::new(serde_json::json!(1)).sliding_ttl(secs(60), secs(600));
    bucket.set("a", draft).await.expect("set");
    let question = Question::Attributes(AttributeQuestion::new("alice", "b", "a"));
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
    assert_eq!(state(&rig, &Question::Codes(CodeQuestion::new(code.code))).await, RecordState::Unknown);
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
        (Question::Sessions(SessionQuestion::new(claimed.clone())), RecordState::Used),
        (Question::Sessions(SessionQuestion::new(late)), RecordState::Expired),
        (Question::PushedRequests(PushedRequestQuestion::new(taken.clone())), RecordState::Used),
        (Question::PushedRequests(PushedRequestQuestion::new(left)), RecordState::Expired),
        (Question::DeviceCodes(DeviceCodeQuestion::new(denied.device_code)), RecordState::Revoked),
        (Question::DeviceCodes(DeviceCodeQuestion::new(pending.device_code)), RecordState::Expired),
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
    let client = Question::Clients(ClientQuestion::new("app"));
    assert_eq!(state(&rig, &client).await, RecordState::Unknown);
    let request = ClientRequest::public().client_id("app");
    assert!(matches!(
        rig.stores.clients(&rig.scope).register(request).await,
        Ok(RegisterOutcome::Registered(_))
    ));
    assert_eq!(state(&rig, &client).await, RecordState::Live);
    for garbage in [
        Question::Sessions(SessionQuestion::new(Secret::new("x"))),
        Question::DeviceCodes(DeviceCodeQuestion::new(Secret::new("x"))),
    ] {
        assert_eq!(state(&rig, &garbage).await, RecordState::Unknown);
    }
}
