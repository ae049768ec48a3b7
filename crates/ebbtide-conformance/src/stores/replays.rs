//! Replays are detected.

use std::time::Duration;

use super::rig::{StoreRig, secs};
use ebbtide::model::scope::Scope;
use ebbtide::model::time::Timestamp;
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
    for (jti, ttl, seconds) in [("default", None, 60), ("ten", Some(secs(10)), 10)] {
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
