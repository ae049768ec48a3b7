//! Nonces are accepted once, or many times, for the right audience.

use super::rig::{StoreRig, secs};
use ebbtide::model::scope::Scope;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::nonces::{IssuedNonce, NonceCheck, NonceOutcome, NonceRequest, Nonces};

const AUDIENCE: &str = "https://as.example";

async fn issue(nonces: &Nonces) -> IssuedNonce {
    nonces.issue(NonceRequest::new(AUDIENCE)).await.expect("issue")
}

async fn check(nonces: &Nonces, nonce: &Secret) -> NonceOutcome {
    nonces.check(&NonceCheck::new(AUDIENCE, nonce)).await.expect("check")
}

async fn accept(nonces: &Nonces, nonce: &Secret) -> NonceOutcome {
    nonces.accept(&NonceCheck::new(AUDIENCE, nonce)).await.expect("accept")
}

pub(super) async fn a_nonce_is_checked_many_times(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let issued = issue(&nonces).await;
    let good = NonceOutcome::Accepted { expires_at: issued.expires_at };
    for _ in 0..3 {
        assert_eq!(check(&nonces, &issued.nonce).await, good);
    }
    assert_eq!(accept(&nonces, &issued.nonce).await, good);
}

pub(super) async fn a_nonce_is_accepted_once(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let issued = issue(&nonces).await;
    assert!(matches!(accept(&nonces, &issued.nonce).await, NonceOutcome::Accepted { .. }));
    assert_eq!(accept(&nonces, &issued.nonce).await, NonceOutcome::Used);
    assert_eq!(check(&nonces, &issued.nonce).await, NonceOutcome::Used);
    assert!(matches!(check(&nonces, &issue(&nonces).await.nonce).await, NonceOutcome::Accepted { .. }));
}

pub(super) async fn a_stateless_nonce_needs_no_record_until_it_is_accepted(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let issue = || async { nonces.issue(NonceRequest::new(AUDIENCE).stateless()).await.expect("issue") };
    let issued = issue().await;
    let good = NonceOutcome::Accepted { expires_at: issued.expires_at };
    assert_eq!(issued.expires_at.since(rig.clock.now()).as_secs(), 300);
    assert_eq!(check(&nonces, &issued.nonce).await, good);
    assert!(rig.contents().await.is_empty(), "no record is written for it");
    let elsewhere = rig.elsewhere();
    assert_eq!(check(&rig.stores.nonces(&elsewhere.scope), &issued.nonce).await, NonceOutcome::Unknown);
    let other = NonceCheck::new("https://rs.example", &issued.nonce);
    assert_eq!(nonces.check(&other).await.expect("check"), NonceOutcome::Unknown);
    let forged = issued.nonce.expose().replacen("ebn_", "ebn_A", 1);
    assert_eq!(
        check(&nonces, &Secret::new(&forged[..issued.nonce.expose().len()])).await,
        NonceOutcome::Unknown
    );
    let answers = rig.together(16, |rig, _| {
        let nonce = issued.nonce.clone();
        async move { accept(&rig.stores.nonces(&rig.scope), &nonce).await }
    });
    assert_eq!(answers.await.iter().filter(|answer| **answer == good).count(), 1, "one winner");
    assert_eq!(check(&nonces, &issued.nonce).await, NonceOutcome::Used);
    let late = issue().await;
    assert_ne!(late.nonce, issued.nonce);
    rig.go_to(late.expires_at, 0);
    assert_eq!(check(&nonces, &late.nonce).await, NonceOutcome::Expired);
    assert_eq!(accept(&nonces, &late.nonce).await, NonceOutcome::Expired);
}

pub(super) async fn a_nonce_ends_at_the_instant(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let request = NonceRequest::new(AUDIENCE);
    for (request, seconds) in [(request.clone(), 300), (request.ttl(secs(20)), 20)] {
        let began = rig.clock.now();
        let issued = nonces.issue(request).await.expect("issue");
        assert_eq!(issued.expires_at.since(began).as_secs(), seconds);
        rig.go_to(issued.expires_at, 1);
        assert!(matches!(check(&nonces, &issued.nonce).await, NonceOutcome::Accepted { .. }));
        rig.go_to(issued.expires_at, 0);
        assert_eq!(check(&nonces, &issued.nonce).await, NonceOutcome::Expired);
        assert_eq!(accept(&nonces, &issued.nonce).await, NonceOutcome::Expired);
        rig.pass(seconds - 1);
        rig.sweep().await;
        assert_eq!(accept(&nonces, &issued.nonce).await, NonceOutcome::Expired, "remembered as long again");
        rig.pass(1);
        assert_eq!(accept(&nonces, &issued.nonce).await, NonceOutcome::Unknown, "and then forgotten");
    }
}

pub(super) async fn an_accepted_nonce_stays_used(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let issued = issue(&nonces).await;
    assert!(matches!(accept(&nonces, &issued.nonce).await, NonceOutcome::Accepted { .. }));
    rig.go_to(issued.expires_at, 0);
    rig.sweep().await;
    assert_eq!(accept(&nonces, &issued.nonce).await, NonceOutcome::Used);
    rig.pass(300);
    assert_eq!(accept(&nonces, &issued.nonce).await, NonceOutcome::Unknown);
}

pub(super) async fn a_nonce_is_of_its_audience_and_scope(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    let issued = issue(&nonces).await;
    let elsewhere = NonceCheck::new("https://rs.example", &issued.nonce);
    let elsewhere = nonces.accept(&elsewhere).await.expect("accept");
    assert_eq!(elsewhere, NonceOutcome::Unknown);
    for scope in [Scope::Global, Scope::tenant_env("acme", "prod").expect("good names")] {
        assert_eq!(accept(&rig.stores.nonces(&scope), &issued.nonce).await, NonceOutcome::Unknown, "{scope}");
    }
    assert!(
        matches!(accept(&nonces, &issued.nonce).await, NonceOutcome::Accepted { .. }),
        "nothing was burned"
    );
}

pub(super) async fn one_of_many_callers_gets_a_nonce_accepted(rig: StoreRig) {
    let nonces = rig.stores.nonces(&rig.scope);
    for _ in 0..8 {
        let issued = issue(&nonces).await;
        let answers = rig.together(24, |rig, _| {
            let nonce = issued.nonce.clone();
            async move { accept(&rig.stores.nonces(&rig.scope), &nonce).await }
        });
        let answers = answers.await;
        let used = answers.iter().filter(|answer| **answer == NonceOutcome::Used).count();
        assert_eq!(used, 23, "{answers:?}");
        assert!(answers.contains(&NonceOutcome::Accepted { expires_at: issued.expires_at }));
    }
}
