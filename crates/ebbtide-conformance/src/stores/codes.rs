//! Codes are redeemed once, by the client they were issued to.

use serde_json::json;

use super::grants::is_active;
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::Scope;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::Field;
use ebbtide::stores::access_tokens::{AccessDraft, IntrospectOutcome};
use ebbtide::stores::audit::Action;
use ebbtide::stores::clients::ClientRequest;
use ebbtide::stores::codes::{CodeRequest, IssuedCode, Redeem, RedeemOutcome, Redeemed};
use ebbtide::stores::grants::{GrantState, GrantTtls, Rotate, RotateOutcome, Why};
use ebbtide::stores::shared::confirmation::{Confirmation, Resources};
use ebbtide::stores::shared::payload::Payload;

const URI: &str = "https://app.example/cb";
/// Example of RFC 7636, appendix B.
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

fn plain() -> CodeRequest {
    CodeRequest::new("app", "ada", URI).scope("read write").data(json!({ "acr": "mfa" }))
}

fn bound() -> CodeRequest {
    plain().code_challenge(CHALLENGE).dpop_jkt("jkt-1")
}

async fn issue(rig: &StoreRig, request: CodeRequest) -> IssuedCode {
    rig.stores.codes(&rig.scope).issue(request).await.expect("issue")
}

fn present(code: &IssuedCode) -> Redeem {
    Redeem::new(code.code.clone(), "app").redirect_uri(URI)
}

fn present_bound(code: &IssuedCode) -> Redeem {
    present(code).code_verifier(Secret::new(VERIFIER)).dpop_jkt("jkt-1")
}

async fn redeem(rig: &StoreRig, presented: &Redeem) -> RedeemOutcome {
    rig.stores.codes(&rig.scope).redeem(presented.clone()).await.expect("redeem")
}

async fn redeemed(rig: &StoreRig, presented: &Redeem) -> Redeemed {
    match redeem(rig, presented).await {
        RedeemOutcome::Redeemed(redeemed) => *redeemed,
        other => panic!("the code should be redeemed, but: {other:?}"),
    }
}

const SPENT: RedeemOutcome = RedeemOutcome::Reused { grant_id: None };

pub(super) async fn a_code_is_redeemed_once(rig: StoreRig) {
    for (request, bound) in [(plain(), false), (bound(), true)] {
        let code = issue(&rig, request).await;
        let presented = if bound { present_bound(&code) } else { present(&code) };
        let redeemed = redeemed(&rig, &presented).await;
        assert_eq!((redeemed.subject.as_str(), redeemed.client_id.as_str()), ("ada", "app"));
        assert_eq!(redeemed.scope.as_deref(), Some("read write"));
        assert_eq!(redeemed.data.map(Payload::into_inner), Some(json!({ "acr": "mfa" })));
        assert_eq!(redeemed.grant, None, "none was asked for");
        assert_eq!(redeem(&rig, &presented).await, SPENT);
    }
}

pub(super) async fn a_code_ends_at_the_instant(rig: StoreRig) {
    for (ttl, seconds) in [(None, 60), (Some(secs(600)), 600)] {
        let began = rig.clock.now();
        let request = || ttl.map_or_else(plain, |ttl| plain().ttl(ttl));
        let (early, late) = (issue(&rig, request()).await, issue(&rig, request()).await);
        assert_eq!(late.expires_at.since(began).as_secs(), seconds);
        rig.go_to(early.expires_at, 1);
        redeemed(&rig, &present(&early)).await;
        rig.go_to(late.expires_at, 0);
        assert_eq!(redeem(&rig, &present(&late)).await, RedeemOutcome::Expired);
        rig.pass(24 * 3600 - 1);
        rig.sweep().await;
        assert_eq!(redeem(&rig, &present(&late)).await, RedeemOutcome::Expired, "remembered for a day");
        assert_eq!(redeem(&rig, &present(&early)).await, SPENT);
        rig.pass(1);
        assert_eq!(redeem(&rig, &present(&late)).await, RedeemOutcome::Unknown, "and then forgotten");
    }
}

pub(super) async fn a_code_lives_ten_minutes_at_most(rig: StoreRig) {
    let codes = rig.stores.codes(&rig.scope);
    let error = codes.issue(plain().ttl(secs(601))).await.expect_err("too long");
    assert!(error.message().contains("600"), "{error}");
}

/// Presentations that differ in one field each, and that field.
fn misfits(code: &IssuedCode) -> Vec<(Field, Redeem)> {
    let secret = || code.code.clone();
    let verifier = || Secret::new(VERIFIER);
    let with_key = |presented: Redeem| presented.dpop_jkt("jkt-1");
    vec![
        (
            Field::ClientId,
            with_key(Redeem::new(secret(), "evil").redirect_uri(URI).code_verifier(verifier())),
        ),
        (
            Field::RedirectUri,
            with_key(
                Redeem::new(secret(), "app")
                    .redirect_uri("https://app.example/cb/")
                    .code_verifier(verifier()),
            ),
        ),
        (Field::CodeVerifier, with_key(present(code))),
        (Field::CodeVerifier, with_key(present(code).code_verifier(Secret::new("a".repeat(43))))),
        (Field::CodeVerifier, with_key(present(code).code_verifier(Secret::new(CHALLENGE)))),
        (Field::DpopJkt, present(code).code_verifier(verifier())),
        (Field::DpopJkt, present(code).code_verifier(verifier()).dpop_jkt("jkt-2")),
    ]
}

pub(super) async fn what_does_not_fit_is_named_and_burns_the_code(rig: StoreRig) {
    for case in 0..7 {
        let code = issue(&rig, bound()).await;
        let (field, presented) = misfits(&code).swap_remove(case);
        assert_eq!(redeem(&rig, &presented).await, RedeemOutcome::Mismatch(field));
        assert_eq!(redeem(&rig, &present_bound(&code)).await, SPENT, "it is burned");
    }
}

pub(super) async fn a_code_can_be_kept_on_a_mismatch(rig: StoreRig) {
    let code = issue(&rig, bound()).await;
    for (field, presented) in misfits(&code) {
        assert_eq!(redeem(&rig, &presented.keep_on_mismatch()).await, RedeemOutcome::Mismatch(field));
    }
    redeemed(&rig, &present_bound(&code)).await;
}

pub(super) async fn a_verifier_without_a_challenge_is_refused(rig: StoreRig) {
    let code = issue(&rig, plain()).await;
    let presented = present(&code).code_verifier(Secret::new(VERIFIER));
    assert_eq!(redeem(&rig, &presented).await, RedeemOutcome::Mismatch(Field::CodeVerifier));
}

pub(super) async fn a_key_that_comes_with_the_code_binds_the_grant(rig: StoreRig) {
    let code = issue(&rig, plain()).await;
    let presented = present(&code).dpop_jkt("jkt-9").with_grant();
    let grant = redeemed(&rig, &presented).await.grant.expect("a grant");
    let grants = rig.stores.grants(&rig.scope);
    let stolen = grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.expect("rotate");
    assert_eq!(stolen, RotateOutcome::Mismatch(Field::DpopJkt));
    let own =
        grants.rotate(Rotate::new(&grant.refresh_token, "app").dpop_jkt("jkt-9")).await.expect("rotate");
    assert!(matches!(own, RotateOutcome::Rotated(_)), "{own:?}");
}

pub(super) async fn redeeming_gives_the_grant_that_was_asked_for(rig: StoreRig) {
    let code = issue(&rig, plain()).await;
    let terms = GrantTtls::default().idle_ttl(secs(100)).max_ttl(secs(1_000));
    let issued = redeemed(&rig, &present(&code).grant(terms)).await.grant.expect("a grant");
    assert_eq!(issued.expires_at.since(rig.clock.now()).as_secs(), 100);
    assert_eq!(issued.ends_at.since(rig.clock.now()).as_secs(), 1_000);
    let grant =
        rig.stores.grants(&rig.scope).get(issued.grant_id).await.expect("get").expect("the record exists");
    assert_eq!((grant.subject.as_str(), grant.client_id.as_str()), ("ada", "app"));
    assert_eq!(grant.scope.as_deref(), Some("read write"));
    assert_eq!(grant.data.map(Payload::into_inner), Some(json!({ "acr": "mfa" })));
}

pub(super) async fn a_second_redemption_revokes_what_the_first_gave(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let week = 7 * 24 * 3600;
    for later in [0, 59, 3_600, week - 1] {
        let code = issue(&rig, plain()).await;
        let terms = GrantTtls::default().max_ttl(secs(i64::try_from(week).expect("small")));
        let issued = redeemed(&rig, &present(&code).grant(terms)).await.grant.expect("a grant");
        rig.pass(later);
        rig.sweep().await;
        let again = redeem(&rig, &present(&code)).await;
        assert_eq!(again, RedeemOutcome::Reused { grant_id: Some(issued.grant_id) }, "after {later} s");
        let state = grants.get(issued.grant_id).await.expect("get").expect("the record exists").state;
        assert!(matches!(state, GrantState::Revoked { why: Why::CodeReused, .. }), "{state:?}");
        let rotation = grants.rotate(Rotate::new(&issued.refresh_token, "app")).await.expect("rotate");
        assert!(matches!(rotation, RotateOutcome::Revoked { .. }), "{rotation:?}");
    }
}

pub(super) async fn a_second_redemption_revokes_a_token_without_a_grant(rig: StoreRig) {
    for later in [0, 3_600, 2 * 24 * 3600] {
        let code = issue(&rig, bound()).await;
        let three_days = AccessDraft::default().ttl(secs(3 * 24 * 3600));
        let presented = present_bound(&code).access_token(three_days);
        let token = redeemed(&rig, &presented).await.access_token.expect("one was asked for").access_token;
        rig.pass(later);
        rig.sweep().await;
        for (_, misfit) in misfits(&code) {
            assert_eq!(redeem(&rig, &misfit).await, SPENT);
        }
        assert!(is_active(&rig, &token).await, "who has only the code revokes nothing");
        assert_eq!(redeem(&rig, &present_bound(&code)).await, SPENT);
        assert!(!is_active(&rig, &token).await, "after {later} s: two parties have the code");
    }
    let log = rig.stores.audit(&rig.scope).list(None, 100).await.expect("list").items;
    let thefts =
        log.iter().filter(|entry| entry.action == Action::Theft && entry.kind == Some(Kind::AccessToken));
    assert_eq!(thefts.count(), 3, "each is in the audit log");
}

pub(super) async fn who_has_only_the_code_revokes_nothing(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    let code = issue(&rig, bound()).await;
    let issued = redeemed(&rig, &present_bound(&code).with_grant()).await.grant.expect("a grant");
    let mut wrong: Vec<Redeem> = misfits(&code).into_iter().map(|(_, presented)| presented).collect();
    wrong.push(Redeem::new(code.code.clone(), "evil").redirect_uri("https://evil.example"));
    for presented in wrong {
        assert_eq!(redeem(&rig, &presented).await, SPENT, "refused, and nobody is revoked");
        let state = grants.get(issued.grant_id).await.expect("get").expect("the record exists").state;
        assert_eq!(state, GrantState::Active);
    }
    let without_uri =
        Redeem::new(code.code.clone(), "app").code_verifier(Secret::new(VERIFIER)).dpop_jkt("jkt-1");
    let reused = RedeemOutcome::Reused { grant_id: Some(issued.grant_id) };
    assert_eq!(redeem(&rig, &without_uri).await, reused, "everything fits");
    assert!(matches!(redeem(&rig, &present_bound(&code)).await, RedeemOutcome::Reused { .. }));
}

pub(super) async fn a_redirect_uri_may_be_left_out_with_a_challenge(rig: StoreRig) {
    let without_uri = |code: &IssuedCode| Redeem::new(code.code.clone(), "app");
    let code = issue(&rig, bound()).await;
    let presented = without_uri(&code).code_verifier(Secret::new(VERIFIER)).dpop_jkt("jkt-1");
    redeemed(&rig, &presented).await;
    let code = issue(&rig, plain()).await;
    assert_eq!(redeem(&rig, &without_uri(&code)).await, RedeemOutcome::Mismatch(Field::RedirectUri));
    let mut request = plain();
    request.redirect_uri = None;
    let code = issue(&rig, request.clone()).await;
    redeemed(&rig, &without_uri(&code)).await;
    let code = issue(&rig, request).await;
    assert_eq!(redeem(&rig, &present(&code)).await, RedeemOutcome::Mismatch(Field::RedirectUri));
}

pub(super) async fn pkce_can_be_made_mandatory(rig: StoreRig) {
    let error = rig.strict().stores.codes(&rig.scope).issue(plain()).await.expect_err("no challenge");
    assert!(error.message().contains("code_challenge"), "{error}");
    issue(&rig.strict(), bound()).await;
    let client = ClientRequest::public().client_id("app").require_pkce(true);
    let _ = rig.stores.clients(&rig.scope).register(client).await.expect("register");
    rig.stores.codes(&rig.scope).issue(plain()).await.expect_err("the client asks for one");
    issue(&rig, bound()).await;
}

pub(super) async fn a_redemption_issues_an_access_token_in_its_commit(rig: StoreRig) {
    let resources = || Resources::new(["https://api.example", "https://mail.example"]).expect("good URIs");
    for with_grant in [true, false] {
        let code = issue(&rig, plain().resource(resources()).profile("spa")).await;
        let draft = AccessDraft::default().resource(Resources::new(["https://api.example"]).expect("a URI"));
        let mut presented = present(&code).access_token(draft);
        if with_grant {
            presented = presented.with_grant();
        }
        let redeemed = redeemed(&rig, &presented).await;
        let issued = redeemed.access_token.expect("one was asked for");
        assert_eq!(issued.expires_at.since(rig.clock.now()).as_secs(), 3_600, "the profile of the code");
        let answer = rig.stores.access_tokens(&rig.scope).introspect(&issued.access_token).await;
        let IntrospectOutcome::Active(active) = answer.expect("introspect") else { panic!("it is active") };
        assert_eq!(active.grant_id, redeemed.grant.as_ref().map(|grant| grant.grant_id));
        assert_eq!(active.scope.as_deref(), Some("read write"));
        assert_eq!(active.resource.expect("it has one").uris(), ["https://api.example"]);
        if let Some(grant) = redeemed.grant {
            let kept =
                rig.stores.grants(&rig.scope).get(grant.grant_id).await.expect("get").expect("a grant");
            assert_eq!(kept.resource, Some(resources()));
        }
    }
    let code = issue(&rig, plain().resource(resources())).await;
    let wide = AccessDraft::default().resource(Resources::new(["https://other.example"]).expect("a URI"));
    let presented = present(&code).with_grant().access_token(wide);
    assert_eq!(redeem(&rig, &presented).await, RedeemOutcome::Mismatch(Field::Resource));
    redeemed(&rig, &present(&code).with_grant()).await;
}

pub(super) async fn a_certificate_binds_code_grant_and_token(rig: StoreRig) {
    let cnf = || Confirmation::x5t_s256("bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2");
    let code = issue(&rig, plain().cnf(cnf())).await;
    let presented = present(&code).with_grant().access_token(AccessDraft::default());
    assert_eq!(
        redeem(&rig, &presented.clone().keep_on_mismatch()).await,
        RedeemOutcome::Mismatch(Field::Certificate)
    );
    let redeemed = redeemed(&rig, &presented.cnf(cnf())).await;
    let token = redeemed.access_token.expect("one was asked for").access_token;
    let answer = rig.stores.access_tokens(&rig.scope).introspect(&token).await.expect("introspect");
    let IntrospectOutcome::Active(active) = answer else { panic!("it is active") };
    assert_eq!(active.x5t_s256, cnf().x5t_s256);
    let grant = redeemed.grant.expect("a grant");
    let grants = rig.stores.grants(&rig.scope);
    let stolen = grants.rotate(Rotate::new(&grant.refresh_token, "app")).await.expect("rotate");
    assert_eq!(stolen, RotateOutcome::Mismatch(Field::Certificate));
    let own = grants.rotate(Rotate::new(&grant.refresh_token, "app").cnf(cnf())).await.expect("rotate");
    assert!(matches!(own, RotateOutcome::Rotated(_)), "{own:?}");
}

pub(super) async fn one_of_many_redemptions_wins_and_the_others_revoke(rig: StoreRig) {
    for _ in 0..6 {
        let code = issue(&rig, bound()).await;
        let presented = present_bound(&code).with_grant();
        let answers = rig.together(20, |rig, _| {
            let presented = presented.clone();
            async move { redeem(&rig, &presented).await }
        });
        let (won, lost): (Vec<_>, Vec<_>) =
            answers.await.into_iter().partition(|answer| matches!(answer, RedeemOutcome::Redeemed(_)));
        let [RedeemOutcome::Redeemed(won)] = won.as_slice() else { panic!("{} winners", won.len()) };
        let id = won.grant.as_ref().expect("a grant").grant_id;
        assert!(
            lost.iter().all(|answer| *answer == RedeemOutcome::Reused { grant_id: Some(id) }),
            "{lost:?}"
        );
        let state =
            rig.stores.grants(&rig.scope).get(id).await.expect("get").expect("the record exists").state;
        assert!(matches!(state, GrantState::Revoked { .. }), "{state:?}");
    }
}

pub(super) async fn one_of_many_without_a_grant_wins(rig: StoreRig) {
    let code = issue(&rig, bound()).await;
    let answers = rig.together(24, |rig, _| {
        let presented = present_bound(&code);
        async move { redeem(&rig, &presented).await }
    });
    assert_eq!(answers.await.iter().filter(|answer| **answer != SPENT).count(), 1);
}

pub(super) async fn codes_of_another_scope_are_unknown(rig: StoreRig) {
    let code = issue(&rig, bound()).await;
    for scope in [Scope::Global, Scope::tenant("acme2").expect("a good name")] {
        let answer = rig.stores.codes(&scope).redeem(present(&code)).await.expect("redeem");
        assert_eq!(answer, RedeemOutcome::Unknown, "{scope}");
    }
    redeemed(&rig, &present_bound(&code)).await;
}
