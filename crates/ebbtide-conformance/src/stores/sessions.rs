//! Sessions end on time, and are claimed once.

use std::time::Duration;

use serde_json::json;

use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::sessions::{
    CreatedSession, Session, SessionFields, SessionOutcome, SessionRequest, TouchOutcome,
};
use ebbtide::stores::shared::payload::Payload;

fn request() -> SessionRequest {
    SessionRequest::new()
        .data(json!(null))
        .state(Secret::new("xyz"))
        .provider("google")
        .code_verifier(Secret::new("verifier"))
        .verified_emails(["ada@example.com".to_owned()])
        .token_data(json!({"access_token": "t"}))
        .user_info(json!({"sub": "1"}))
}

fn fields() -> SessionFields {
    let mut fields = SessionFields::default();
    fields.data = Some(Payload::new(json!(null)));
    fields.state = Some(Secret::new("xyz"));
    fields.provider = Some("google".to_owned());
    fields.code_verifier = Some(Secret::new("verifier"));
    fields.verified_emails = Some(vec!["ada@example.com".to_owned()]);
    fields.token_data = Some(Payload::new(json!({"access_token": "t"})));
    fields.user_info = Some(Payload::new(json!({"sub": "1"})));
    fields
}

async fn create(rig: &StoreRig, request: SessionRequest) -> CreatedSession {
    rig.stores.sessions(&rig.scope).create(request).await.expect("create")
}

async fn get(rig: &StoreRig, session: &CreatedSession) -> SessionOutcome {
    rig.stores.sessions(&rig.scope).get(&session.session_id).await.expect("get")
}

async fn live(rig: &StoreRig, session: &CreatedSession) -> Session {
    match get(rig, session).await {
        SessionOutcome::Live(session) => *session,
        other => panic!("the session should be live, but: {other:?}"),
    }
}

async fn claim(rig: &StoreRig, session: &CreatedSession) -> SessionOutcome {
    rig.stores.sessions(&rig.scope).claim(&session.session_id).await.expect("claim")
}

async fn touch(rig: &StoreRig, session: &CreatedSession, ttl: Option<i64>) -> TouchOutcome {
    rig.stores.sessions(&rig.scope).touch(&session.session_id, ttl.map(secs)).await.expect("touch")
}

async fn list(rig: &StoreRig, subject: &str) -> usize {
    rig.stores.sessions(&rig.scope).list(subject, None, 100).await.expect("list").items.len()
}

pub(super) async fn what_was_put_into_a_session_comes_back(rig: StoreRig) {
    let began = rig.clock.now();
    let session = create(&rig, request().subject("ada")).await;
    let read = live(&rig, &session).await;
    assert_eq!((read.subject.as_deref(), &read.fields), (Some("ada"), &fields()));
    assert_eq!((read.created_at, read.expires_at), (began, session.expires_at));
    assert_eq!(session.expires_at.since(began), Duration::from_secs(600), "the profile's");
    let empty = create(&rig, SessionRequest::default()).await;
    assert_eq!(live(&rig, &empty).await.fields, SessionFields::default());
    let sessions = rig.stores.sessions(&rig.scope);
    assert!(sessions.delete(&session.session_id).await.expect("delete"));
    assert_eq!(get(&rig, &session).await, SessionOutcome::Unknown);
    assert!(!sessions.delete(&session.session_id).await.expect("delete"), "once");
    for garbage in ["", "ebs_", "ebs_x", "eba_AAAA"] {
        let answer = sessions.get(&Secret::new(garbage)).await.expect("get");
        assert_eq!(answer, SessionOutcome::Unknown);
    }
}

pub(super) async fn a_session_ends_at_the_instant(rig: StoreRig) {
    for sweeps in [false, true] {
        let session = create(&rig, SessionRequest::default().ttl(secs(10))).await;
        rig.go_to(session.expires_at, 1);
        live(&rig, &session).await;
        rig.go_to(session.expires_at, 0);
        for _ in 0..2 {
            assert_eq!(get(&rig, &session).await, SessionOutcome::Expired);
            assert_eq!(claim(&rig, &session).await, SessionOutcome::Expired);
            assert_eq!(
                touch(&rig, &session, None).await,
                TouchOutcome::Expired,
                "an expired session is not revived"
            );
            if sweeps {
                rig.pass(1);
                rig.sweep().await;
            }
        }
        rig.pass(10);
        assert_eq!(get(&rig, &session).await, SessionOutcome::Unknown, "remembered for as long again");
    }
}

pub(super) async fn a_touch_never_passes_the_cap_and_never_shortens(rig: StoreRig) {
    let request = SessionRequest::default().ttl(secs(100)).max_ttl(secs(250));
    let session = create(&rig, request).await;
    assert_eq!(session.ends_at.since(rig.clock.now()), Duration::from_secs(250));
    rig.pass(50);
    let now = rig.clock.now();
    let TouchOutcome::Touched { expires_at } = touch(&rig, &session, None).await else {
        panic!("the session should be live")
    };
    assert_eq!(expires_at.since(now), Duration::from_secs(100));
    assert_eq!(live(&rig, &session).await.expires_at, expires_at);
    assert_eq!(touch(&rig, &session, Some(10)).await, TouchOutcome::Touched { expires_at }, "not shorter");
    let capped = TouchOutcome::Touched { expires_at: session.ends_at };
    assert_eq!(touch(&rig, &session, Some(1_000)).await, capped);
    assert_eq!(touch(&rig, &session, Some(1_000)).await, capped);
    rig.go_to(session.ends_at, 1);
    live(&rig, &session).await;
    rig.go_to(session.ends_at, 0);
    assert_eq!(touch(&rig, &session, None).await, TouchOutcome::Expired);
    let crossed = SessionRequest::default().ttl(secs(11)).max_ttl(secs(10));
    let error = rig.stores.sessions(&rig.scope).create(crossed).await.expect_err("crossed");
    assert!(error.message().contains("10 s"), "{error}");
}

pub(super) async fn a_session_is_claimed_once(rig: StoreRig) {
    let session = create(&rig, request().subject("ada")).await;
    let SessionOutcome::Live(claimed) = claim(&rig, &session).await else {
        panic!("the session should be live")
    };
    assert_eq!(claimed.fields, fields());
    assert_eq!(claim(&rig, &session).await, SessionOutcome::Used);
    assert_eq!(get(&rig, &session).await, SessionOutcome::Used);
    assert_eq!(touch(&rig, &session, None).await, TouchOutcome::Used);
    assert_eq!(list(&rig, "ada").await, 0, "it is over");
    rig.go_to(session.expires_at, 0);
    assert_eq!(claim(&rig, &session).await, SessionOutcome::Used, "also past its end");
}

pub(super) async fn one_of_many_claims_wins(rig: StoreRig) {
    for _ in 0..6 {
        let session = create(&rig, request()).await;
        let answers = rig.together(16, |rig, _| {
            let session = session.clone();
            async move { claim(&rig, &session).await }
        });
        let answers = answers.await;
        let winners = answers.iter().filter(|answer| matches!(answer, SessionOutcome::Live(_))).count();
        let told = answers.iter().filter(|answer| **answer == SessionOutcome::Used).count();
        assert_eq!((winners, told), (1, 15));
    }
}

pub(super) async fn a_claim_that_was_overtaken_finds_it_used(rig: StoreRig) {
    let session = create(&rig, SessionRequest::default()).await;
    let (other, theirs) = (rig.clone(), session.clone());
    let overtaken = rig.meanwhile(Kind::Session, async move {
        assert!(matches!(claim(&other, &theirs).await, SessionOutcome::Live(_)));
    });
    assert_eq!(claim(&overtaken, &session).await, SessionOutcome::Used);
}

pub(super) async fn a_touch_does_not_undo_a_claim(rig: StoreRig) {
    let session = create(&rig, SessionRequest::default()).await;
    let (other, theirs) = (rig.clone(), session.clone());
    let overtaken = rig.meanwhile(Kind::Session, async move {
        assert!(matches!(claim(&other, &theirs).await, SessionOutcome::Live(_)));
    });
    assert_eq!(touch(&overtaken, &session, Some(700)).await, TouchOutcome::Used);
    let session = create(&rig, SessionRequest::default()).await;
    let (other, theirs) = (rig.clone(), session.clone());
    let overtaken = rig.meanwhile(Kind::Session, async move {
        assert!(other.stores.sessions(&other.scope).delete(&theirs.session_id).await.expect("delete"));
    });
    assert_eq!(touch(&overtaken, &session, Some(700)).await, TouchOutcome::Unknown);
    assert_eq!(get(&rig, &session).await, SessionOutcome::Unknown, "and none is created");
}

pub(super) async fn a_subject_is_listed_and_revoked_alone(rig: StoreRig) {
    let ada = create(&rig, SessionRequest::default().subject("ada")).await;
    let again = create(&rig, SessionRequest::default().subject("ada").ttl(secs(5))).await;
    let bob = create(&rig, SessionRequest::default().subject("bob")).await;
    let nobody = create(&rig, SessionRequest::default()).await;
    assert_eq!((list(&rig, "ada").await, list(&rig, "bob").await), (2, 1));
    rig.go_to(again.expires_at, 0);
    assert_eq!(list(&rig, "ada").await, 1, "ended sessions are not listed");
    let sessions = rig.stores.sessions(&rig.scope);
    assert_eq!(sessions.revoke("ada", None).await.expect("revoke"), 1, "live sessions are counted");
    assert_eq!(sessions.revoke("ada", None).await.expect("revoke"), 0);
    assert_eq!(get(&rig, &ada).await, SessionOutcome::Unknown);
    live(&rig, &bob).await;
    live(&rig, &nobody).await;
    let left = rig.contents().await.iter().filter(|(key, _)| key.kind() == Kind::SessionIndex).count();
    assert_eq!(left, 1, "bob's");
}

pub(super) async fn revoking_goes_through_every_page(rig: StoreRig) {
    rig.together(250, |rig, _| async move {
        create(&rig, SessionRequest::default().subject("ada")).await;
    })
    .await;
    let sessions = rig.stores.sessions(&rig.scope);
    let first = sessions.list("ada", None, 100).await.expect("list");
    let second = sessions.list("ada", first.next.as_ref(), 1_000).await.expect("list");
    assert_eq!((first.items.len(), second.items.len()), (100, 150));
    assert_eq!(sessions.revoke("ada", None).await.expect("revoke"), 250);
    assert!(rig.contents().await.is_empty());
}

pub(super) async fn indexes_end_with_the_cap(rig: StoreRig) {
    let request = SessionRequest::default().subject("ada").ttl(secs(10)).max_ttl(secs(30));
    let session = create(&rig, request).await;
    for _ in 0..3 {
        rig.pass(8);
        assert!(matches!(touch(&rig, &session, None).await, TouchOutcome::Touched { .. }));
        assert_eq!(list(&rig, "ada").await, 1, "it is listed while it is live");
    }
    rig.go_to(session.ends_at, 0);
    assert_eq!(list(&rig, "ada").await, 0);
    rig.pass(11);
    rig.sweep().await;
    assert!(rig.contents().await.is_empty());
}

pub(super) async fn sessions_of_another_scope_are_unknown(rig: StoreRig) {
    let session = create(&rig, SessionRequest::default().subject("ada")).await;
    let other = rig.elsewhere();
    assert_eq!(get(&other, &session).await, SessionOutcome::Unknown);
    assert_eq!(claim(&other, &session).await, SessionOutcome::Unknown);
    assert_eq!(other.stores.sessions(&other.scope).revoke("ada", None).await.expect("revoke"), 0);
    live(&rig, &session).await;
}
