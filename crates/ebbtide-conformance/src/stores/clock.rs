//! The stores while the clock is in doubt, or held after a pause.

use std::sync::Arc;
use std::time::Duration;

use super::rig::{StoreRig, secs};
use ebbtide::model::error::{ErrorKind, Result};
use ebbtide::model::time::Clock as _;
use ebbtide::stores::Stores;
use ebbtide::stores::attributes::Draft;
use ebbtide::stores::codes::CodeRequest;
use ebbtide::stores::grants::{GrantRequest, GrantState, Holder, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::stores::sessions::{SessionOutcome, SessionRequest};
use ebbtide::timekeeping::{EngineClock, ManualClocks, TimeSource};

/// A node on the rig's store whose clocks can part.
struct Node {
    rig: StoreRig,
    stores: Stores,
    clocks: ManualClocks,
}

impl Node {
    fn new(rig: StoreRig) -> Self {
        let clocks = ManualClocks::at(rig.clock.now());
        let time = TimeSource::new(Arc::new(clocks.clone()), EngineClock::None, None);
        let stores = rig.stores_with_time(Arc::new(time));
        stores.backend().now().expect("it is known");
        Self { rig, stores, clocks }
    }

    /// The wall leaps by a minute.
    fn doubt(&self) {
        self.clocks.step_wall(Duration::from_secs(60));
    }

    /// The wall has leapt by a minute, and has been taken for right: what ended in it still counts as evidence.
    fn hold(&self) {
        self.doubt();
        self.stores.backend().now().expect("it is in doubt");
        self.clocks.advance(Duration::from_secs(11));
        let now = self.stores.backend().now().expect("it is held");
        assert!(now.is_confirmed() && !now.is_exact());
    }
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T>, what: &str) {
    assert_eq!(answer.expect_err(what).kind(), ErrorKind::Unavailable, "{what}");
}

pub(super) async fn in_doubt_a_seen_proof_is_a_replay_and_a_new_one_is_not_fresh(rig: StoreRig) {
    let node = Node::new(rig);
    let replays = node.stores.replays(&node.rig.scope);
    let (long, short) = (Proof::new("n", "long").ttl(secs(3_600)), Proof::new("n", "short").ttl(secs(30)));
    for proof in [&long, &short] {
        assert!(matches!(replays.check(proof).await.expect("check"), ReplayOutcome::Fresh { .. }));
    }
    node.doubt();
    assert_eq!(replays.check(&long).await.expect("check"), ReplayOutcome::Replay);
    assert_eq!(
        replays.check_batch(std::slice::from_ref(&long)).await.expect("check"),
        [ReplayOutcome::Replay]
    );
    assert_unavailable(replays.check(&short).await, "it may have ended");
    assert_unavailable(replays.check(&Proof::new("n", "new")).await, "nothing can be recorded");
    assert_unavailable(replays.check_batch(&[Proof::new("n", "new")]).await, "nothing can be recorded");
}

pub(super) async fn in_doubt_nothing_is_issued_and_what_is_live_at_both_ends_is_honoured(rig: StoreRig) {
    let node = Node::new(rig);
    let scope = &node.rig.scope;
    let sessions = node.stores.sessions(scope);
    let live = sessions.create(SessionRequest::new().ttl(secs(600))).await.expect("create");
    let short = sessions.create(SessionRequest::new().ttl(secs(30))).await.expect("create");
    node.doubt();
    assert!(matches!(sessions.get(&live.session_id).await.expect("get"), SessionOutcome::Live(_)));
    assert_unavailable(sessions.get(&short.session_id).await, "a session that may have ended");
    assert_unavailable(sessions.touch(&live.session_id, None).await, "a touch");
    assert_unavailable(sessions.create(SessionRequest::new()).await, "a session");
    assert_unavailable(node.stores.nonces(scope).issue(NonceRequest::new("as")).await, "a nonce");
    let code = CodeRequest::new("app", "alice", "https://app/cb");
    assert_unavailable(node.stores.codes(scope).issue(code).await, "a code");
    assert_unavailable(node.stores.grants(scope).issue(GrantRequest::new("alice", "app")).await, "a grant");
}

pub(super) async fn in_doubt_an_honest_retry_is_no_theft(rig: StoreRig) {
    let node = Node::new(rig);
    let grants = node.stores.grants(&node.rig.scope);
    let issued = grants.issue(GrantRequest::new("alice", "app")).await.expect("issue");
    let rotate = || Rotate::new(issued.refresh_token.clone(), "app");
    assert!(matches!(grants.rotate(rotate()).await.expect("rotate"), RotateOutcome::Rotated(_)));
    node.doubt();
    assert_unavailable(grants.rotate(rotate()).await, "the retry window may have ended");
    let grant = grants.get(issued.grant_id).await.expect("get").expect("it is there");
    assert_eq!(grant.state, GrantState::Active);
    node.clocks.step_wall_back(Duration::from_secs(60));
    assert!(matches!(grants.rotate(rotate()).await.expect("rotate"), RotateOutcome::Retried(_)));
}

/// The node's boot-time clock stands still, so that its lease on the epochs of clients would not end by itself.
pub(super) async fn a_doubt_voids_what_a_node_holds_of_revoked_clients(rig: StoreRig) {
    let node = Node::new(rig);
    let grants = node.stores.grants(&node.rig.scope);
    let issued = grants.issue(GrantRequest::new("alice", "app")).await.expect("issue");
    let state = async || grants.get(issued.grant_id).await.expect("get").expect("it is there").state;
    assert_eq!(state().await, GrantState::Active);
    let elsewhere = node.rig.stores.grants(&node.rig.scope);
    assert_eq!(elsewhere.revoke(Holder::Client("app"), None).await.expect("revoke"), 1);
    node.doubt();
    assert!(matches!(state().await, GrantState::Revoked { .. }), "in doubt the epoch itself is read");
    node.clocks.step_wall_back(Duration::from_secs(60));
    assert!(matches!(state().await, GrantState::Revoked { .. }), "after a doubt the set is read again");
    let again = grants.issue(GrantRequest::new("alice", "app")).await.expect("issue");
    assert_eq!(elsewhere.revoke(Holder::Client("app"), None).await.expect("revoke"), 1);
    node.clocks.advance(Duration::from_secs(2));
    let again = grants.get(again.grant_id).await.expect("get").expect("it is there").state;
    assert!(matches!(again, GrantState::Revoked { .. }), "after the lease the set is read again");
}

pub(super) async fn in_doubt_a_read_renews_nothing(rig: StoreRig) {
    let node = Node::new(rig);
    let bucket = node.stores.attributes(&node.rig.scope).bucket("alice", "b").expect("good names");
    let draft = Draft::from(serde_json::json!(1)).sliding_ttl(secs(600), secs(6_000));
    let _ = bucket.set("a", draft).await.expect("set");
    let end = async || bucket.get("a").await.expect("get").expect("it is live").expires_at;
    let before = end().await;
    node.clocks.advance(Duration::from_secs(200));
    node.doubt();
    assert_eq!(end().await, before);
    node.clocks.step_wall_back(Duration::from_secs(60));
    assert!(end().await > before, "with the right time it is renewed");
}

pub(super) async fn in_a_hold_a_credential_that_ended_is_refused_and_a_proof_is_not_fresh_again(
    rig: StoreRig,
) {
    let node = Node::new(rig);
    let scope = &node.rig.scope;
    let (replays, nonces) = (node.stores.replays(scope), node.stores.nonces(scope));
    let proof = Proof::new("n", "seen").ttl(secs(30));
    assert!(matches!(replays.check(&proof).await.expect("check"), ReplayOutcome::Fresh { .. }));
    let nonce = nonces.issue(NonceRequest::new("as").ttl(secs(40))).await.expect("issue");
    node.hold();
    assert_unavailable(replays.check(&proof).await, "the pause may not have been one");
    let check = NonceCheck::new("as", nonce.nonce);
    assert_eq!(nonces.check(&check).await.expect("check"), NonceOutcome::Expired);
    assert!(matches!(
        replays.check(&Proof::new("n", "new")).await.expect("check"),
        ReplayOutcome::Fresh { .. }
    ));
}
