//! Replays are detected.

use std::time::Duration;

use super::policies::node;
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::Timestamp;
use ebbtide::model::ttl::{TtlPolicies, TtlPolicy};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::stores::replays::{Proof, ReplayOutcome, Replays};

fn proof(jti: &str) -> Proof {
    Proof::new("htu", jti)
}

async fn check(replays: &Replays, proof: &Proof) -> Option<Timestamp> {
    match replays.check(proof).await.expect("check") {
        ReplayOutcome::Fresh { expires_at } => Some(expires_at),
        _ => None,
    }
}

pub(super) async fn a_proof_is_fresh_once(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    assert!(check(&replays, &proof("a")).await.is_some());
    assert_eq!(check(&replays, &proof("a")).await, None);
    assert!(check(&replays, &proof("b")).await.is_some());
}

pub(super) async fn a_proof_is_fresh_again_at_its_expiry(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    for (jti, ttl, seconds) in [("default", None, 300), ("ten", Some(secs(10)), 10)] {
        let proof = ttl.map_or(proof(jti), |ttl| proof(jti).ttl(ttl));
        let began = ebbtide::model::time::Clock::now(&rig.clock);
        let expires_at = check(&replays, &proof).await.expect("fresh");
        assert_eq!(expires_at.since(began), Duration::from_secs(seconds), "{jti}");
        rig.go_to(expires_at, 1);
        assert_eq!(check(&replays, &proof).await, None, "{jti}");
        rig.go_to(expires_at, 0);
        assert!(check(&replays, &proof).await.is_some(), "{jti}");
    }
}

pub(super) async fn a_proof_ends_with_its_own_time(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    let now = ebbtide::model::time::Clock::now(&rig.clock);
    let seconds = now.as_millis() / 1_000;
    let end = |after: u64| Timestamp::from_millis((seconds + after) * 1_000).expect("a time");
    let by_iat = proof("iat").iat(seconds - 30).window(secs(90));
    assert_eq!(check(&replays, &by_iat).await, Some(end(60)));
    assert_eq!(check(&replays, &proof("end").expires_at(end(5).as_millis())).await, Some(end(5)));
    let held = proof("held").expires_at(end(5).as_millis()).hold(Duration::from_secs(7));
    assert_eq!(check(&replays, &held).await, Some(end(12)));
    for ended in [proof("late").iat(seconds - 90).window(secs(90)), proof("late").expires_at(now.as_millis())]
    {
        let answer = replays.check(&ended).await.expect("check");
        assert_eq!(answer, ReplayOutcome::Expired, "never fresh, though it was not seen");
        let answers = replays.check_batch(&[ended, proof("late")]).await.expect("check");
        assert_eq!(answers[0], ReplayOutcome::Expired);
    }
    for wrong in [
        proof("a").ttl(secs(1)).iat(seconds),
        proof("a").expires_at(end(1).as_millis()).iat(seconds),
        proof("a").window(secs(1)),
    ] {
        assert!(replays.check(&wrong).await.is_err(), "{wrong:?}");
    }
}

pub(super) async fn a_proof_is_for_one_request(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    let long = format!("https://api.example/{}", "a".repeat(100_000));
    let proofs = [
        proof("a"),
        proof("a").htm("GET"),
        proof("a").htm("POST"),
        proof("a").htu("GET"),
        proof("a").htm("GET").htu(long.as_str()),
        proof("a").htm("GET").htu(format!("{long}b")),
        proof("a").htm("GET").htu(long.as_str()).jkt("k"),
    ];
    for proof in &proofs {
        assert!(check(&replays, proof).await.is_some(), "it differs from all before");
    }
    for proof in &proofs {
        assert_eq!(check(&replays, proof).await, None);
    }
}

/// The same proof must not be fresh again while its nonce is good.
pub(super) async fn a_proof_is_refused_as_long_as_a_nonce_is_good(rig: StoreRig) {
    let (replays, nonces) = (rig.stores.replays(&rig.scope), rig.stores.nonces(&rig.scope));
    for request in [NonceRequest::new("as"), NonceRequest::new("as").stateless()] {
        let issued = nonces.issue(request).await.expect("issue");
        let jti = issued.nonce.expose().get(..40).expect("it is longer");
        assert!(check(&replays, &proof(jti)).await.is_some());
        rig.go_to(issued.expires_at, 1);
        let nonce = NonceCheck::new("as", issued.nonce.clone());
        assert!(matches!(nonces.check(&nonce).await.expect("check"), NonceOutcome::Accepted { .. }));
        assert_eq!(check(&replays, &proof(jti)).await, None);
    }
}

/// A policy that shortens the retention of proofs does not make one fresh again while its nonce is good.
pub(super) async fn a_policy_does_not_free_a_proof_before_its_nonce(rig: StoreRig) {
    let minute = TtlPolicy { default: Some(secs(60)), max: secs(60), ..TtlPolicy::default() };
    let mut policies = TtlPolicies::default();
    policies.set(Kind::Replay, Scope::Global, minute).expect("a good policy");
    let stores = node(&rig, policies);
    let (replays, nonces) = (stores.replays(&rig.scope), stores.nonces(&rig.scope));
    let issued = nonces.issue(NonceRequest::new("as")).await.expect("issue");
    assert!(check(&replays, &proof("a")).await.is_some());
    assert!(check(&replays, &proof("asked").ttl(secs(60))).await.is_some());
    rig.go_to(issued.expires_at, 1);
    assert_eq!(check(&replays, &proof("a")).await, None);
    assert!(check(&replays, &proof("asked").ttl(secs(60))).await.is_some(), "it had a life of its own");
    rig.go_to(issued.expires_at, 0);
    assert!(check(&replays, &proof("a")).await.is_some());
}

pub(super) async fn a_hold_goes_on_refusing(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    let held = proof("a").ttl(secs(10)).hold(Duration::from_secs(20));
    let expires_at = check(&replays, &held).await.expect("fresh");
    rig.pass(10);
    rig.sweep().await;
    assert_eq!(check(&replays, &held).await, None, "its TTL is over, the hold is not");
    rig.go_to(expires_at, 1);
    assert_eq!(check(&replays, &held).await, None);
    rig.go_to(expires_at, 0);
    assert!(check(&replays, &held).await.is_some());
}

pub(super) async fn namespace_jti_and_thumbprint_all_count(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    let bound = |jti: &str, key: &str| proof(jti).jkt(key);
    let proofs = [
        proof("a"),
        bound("a", "k1"),
        bound("a", "k2"),
        Proof::new("other", "a"),
        Proof::new("htua", "a"),
        Proof::new("ht", "ua"),
    ];
    for proof in &proofs {
        assert!(check(&replays, proof).await.is_some(), "{proof:?}");
    }
    for proof in &proofs {
        assert_eq!(check(&replays, proof).await, None, "{proof:?}");
    }
}

pub(super) async fn one_of_many_callers_finds_a_proof_fresh(rig: StoreRig) {
    for round in 0..8 {
        let answers = rig.together(24, |rig, _| async move {
            check(&rig.stores.replays(&rig.scope), &proof(&format!("r{round}"))).await.is_some()
        });
        assert_eq!(answers.await.into_iter().filter(|fresh| *fresh).count(), 1);
    }
}

pub(super) async fn a_batch_records_what_is_fresh(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    assert!(check(&replays, &proof("b")).await.is_some());
    let batch = ["a", "b", "c", "a"].map(proof);
    let seen = replays.check_batch(&batch).await.expect("check");
    let fresh: Vec<_> = seen.iter().map(|seen| *seen != ReplayOutcome::Replay).collect();
    assert_eq!(fresh, [true, false, true, false], "in order, and a double is a replay");
    assert_eq!(check(&replays, &proof("c")).await, None, "a fresh proof is recorded");
    let large: Vec<_> = (0..250).map(|number| proof(&format!("n{number}"))).collect();
    let seen = replays.check_batch(&large).await.expect("check");
    assert!(seen.iter().all(|seen| *seen != ReplayOutcome::Replay));
}

pub(super) async fn scopes_do_not_share_replays(rig: StoreRig) {
    let joined = Scope::tenant("acme:env:prod").expect("a good name");
    let nested = Scope::tenant_env("acme", "prod").expect("good names");
    for scope in [rig.scope.clone(), joined, nested, Scope::Global] {
        assert!(check(&rig.stores.replays(&scope), &proof("a")).await.is_some(), "{scope}");
    }
}

pub(super) async fn sweeping_in_between_changes_no_answer(rig: StoreRig) {
    let replays = rig.stores.replays(&rig.scope);
    assert!(check(&replays, &proof("short").ttl(secs(5))).await.is_some());
    assert!(check(&replays, &proof("long").ttl(secs(50))).await.is_some());
    rig.pass(6);
    assert_eq!(rig.sweep().await.total(), 1);
    assert!(check(&replays, &proof("short")).await.is_some());
    assert_eq!(check(&replays, &proof("long")).await, None);
}
