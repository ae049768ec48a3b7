//! Moves of a scope's records to another scope: everything works there, whatever crashes or races.

use serde_json::json;

use super::owned_records::{OwnedRecords, context};
use super::rig::StoreRig;
use crate::faulty::FaultPoint;
use ebbtide::model::error::Result;
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::Scope;
use ebbtide::stores::attributes::{ChangeOutcome, Draft};
use ebbtide::stores::challenges::{ChallengeRequest, Form, Verify, VerifyOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::stores::records::{Acquire, Increment, PutRecord, RecordAddress};
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::stores::shared::belongings::Parent;
use ebbtide::stores::shared::life::RecordTtl;

/// Moves everything of the rig's scope to the other one, and returns the number of conflicts.
async fn migrate(rig: &StoreRig) -> Result<u64> {
    let (from, to) = (&rig.scope, rig.elsewhere().scope);
    let scopes = rig.stores.scopes(&Scope::Global);
    let (mut place, mut conflicts) = (None, 0);
    loop {
        let moved = scopes.migrate(from, &to, place.take(), false, &context()).await?;
        conflicts += moved.conflicts;
        place = moved.next;
        if place.is_none() {
            return Ok(conflicts);
        }
    }
}

/// Kinds that stay in a scope after a move: evidence that refuses in both, the logs, and the notes about moves.
const STAY: [Kind; 5] = [Kind::Replay, Kind::RecordGroup, Kind::Audit, Kind::System, Kind::Owner];

/// Kinds of records that are left in the rig's scope.
async fn left(rig: &StoreRig) -> Vec<Kind> {
    let here = rig.contents().await.into_iter().filter(|(key, _)| key.scope() == rig.scope);
    let mut kinds: Vec<_> = here.map(|(key, _)| key.kind()).filter(|kind| !STAY.contains(kind)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn of_trust() -> Edge {
    Edge::new("alice", "peer", "bob", RelationType::Trust)
}

pub(super) async fn every_kind_moves_and_works_there(rig: StoreRig) {
    let owned = OwnedRecords::new(&rig, "alice").await;
    let (stores, scope) = (&rig.stores, &rig.scope);
    stores.relationships(scope).add(&Relationship::new(of_trust(), "root")).await.expect("add");
    let bucket = stores.attributes(scope).bucket("alice", "permissions").expect("good names");
    let child = Draft::new(json!("rw")).belongs_to(Parent::Relationship(of_trust()));
    bucket.set("bob", child).await.expect("set");
    let records = stores.records(scope);
    let put = PutRecord::new("c", "r", json!(1)).keys(["k"]).group("g");
    let _ = records.put(&put).await.expect("put");
    let _ = records.increment(&Increment::new("c", "n")).await.expect("increment");
    let hour = RecordTtl::For(super::rig::secs(3_600));
    let _ = records.acquire(&Acquire::new("c", "l", hour)).await.expect("acquire");
    let nonce = stores.nonces(scope).issue(NonceRequest::new("https://a")).await.expect("issue").nonce;
    let proof = Proof::new("dpop", "jti");
    assert!(matches!(stores.replays(scope).check(&proof).await.expect("check"), ReplayOutcome::Fresh { .. }));
    let request = ChallengeRequest::new("login", "alice", Form::Token);
    let challenge = stores.challenges(scope).issue(request).await.expect("issue");

    assert_eq!(migrate(&rig).await.expect("migrate"), 0);
    let there = rig.elsewhere();
    assert_eq!(left(&rig).await, []);
    assert_eq!(owned.honoured(&rig).await, [""; 0]);
    assert_eq!(owned.honoured(&there).await.len(), OwnedRecords::ALL);
    let (stores, scope) = (&there.stores, &there.scope);
    let records = stores.records(scope);
    for address in [RecordAddress::id("c", "r"), RecordAddress::key("c", "k")] {
        assert!(records.get(&address).await.expect("get").found().is_some());
    }
    let replayed = stores.replays(scope).check(&proof).await.expect("check");
    assert!(!matches!(replayed, ReplayOutcome::Fresh { .. }), "evidence refuses there");
    let replayed = rig.stores.replays(&rig.scope).check(&proof).await.expect("check");
    assert!(!matches!(replayed, ReplayOutcome::Fresh { .. }), "and here");
    let accepted = stores.nonces(scope).accept(&NonceCheck::new("https://a", nonce)).await.expect("accept");
    assert!(matches!(accepted, NonceOutcome::Accepted { .. }), "{accepted:?}");
    let verify = Verify::new("login", challenge.secret);
    let verified = stores.challenges(scope).verify(&verify).await.expect("verify");
    assert!(matches!(verified, VerifyOutcome::Verified(_)), "{verified:?}");
    // It still ends with what it belongs to.
    let bucket = stores.attributes(scope).bucket("alice", "permissions").expect("good names");
    assert!(bucket.get("bob").await.expect("get").is_some());
    stores.relationships(scope).remove(&of_trust(), &context()).await.expect("remove");
    assert!(bucket.get("bob").await.expect("get").is_none());
    assert!(!owned.made(&there).await.is_empty(), "it is used there");
}

/// Limit on the number of writes: a move that never ends fails the case.
const MOST_WRITES: u64 = 200;

/// Records that move in a commit of their own.
const ALONE: [&str; 7] =
    ["session", "approval", "relationship from", "relationship to", "attribute", "client", "grant"];

async fn a_move_that_fails_anywhere_goes_on(rig: StoreRig, fault: FaultPoint) {
    let (mut failures, there) = (0, rig.elsewhere());
    for skip in 0..MOST_WRITES {
        let owned = OwnedRecords::new(&rig, &format!("alice-{skip}")).await;
        let (failing, faulty) = rig.faulty();
        faulty.stay_down(skip, fault);
        let failed = migrate(&failing).await.is_err();
        let (before, after) = (owned.honoured(&rig).await, owned.honoured(&there).await);
        for part in ALONE {
            let places = u8::from(before.contains(&part)) + u8::from(after.contains(&part));
            assert_eq!(places, 1, "{part} is in one scope after write {skip}");
        }
        assert_eq!(migrate(&rig).await.expect("the second run"), 0);
        assert_eq!(left(&rig).await, [], "after write {skip}, and another run");
        assert_eq!(owned.honoured(&there).await.len(), OwnedRecords::ALL, "after write {skip}");
        if !failed {
            break;
        }
        failures += 1;
    }
    assert!((10..MOST_WRITES).contains(&failures), "{failures}");
}

pub(super) async fn a_move_that_crashes_anywhere_goes_on(rig: StoreRig) {
    a_move_that_fails_anywhere_goes_on(rig, FaultPoint::After).await;
}

pub(super) async fn a_move_whose_writes_fail_anywhere_goes_on(rig: StoreRig) {
    a_move_that_fails_anywhere_goes_on(rig, FaultPoint::Before).await;
}

pub(super) async fn one_use_wins_against_a_move(rig: StoreRig) {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let grant = GrantRequest::new("alice", "app");
    let token = stores.grants(scope).issue(grant).await.expect("issue").refresh_token;
    let code = CodeRequest::new("app", "alice", "https://a");
    let code = stores.codes(scope).issue(code).await.expect("issue").code;
    let bucket = stores.attributes(scope).bucket("alice", "b").expect("good names");
    let version = bucket.set("a", json!("old")).await.expect("set").version;
    let redeem = Redeem::new(code, "app").redirect_uri("https://a").with_grant();
    // Uses of one kind in either scope; true for the one that wins.
    let uses = async |rig: &StoreRig, kind: usize| -> bool {
        let (stores, scope) = (&rig.stores, &rig.scope);
        match kind {
            0 => {
                let rotated = stores.grants(scope).rotate(Rotate::new(&token, "app")).await.expect("rotate");
                matches!(rotated, RotateOutcome::Rotated(_))
            }
            1 => {
                let redeemed = stores.codes(scope).redeem(redeem.clone()).await.expect("redeem");
                matches!(redeemed, RedeemOutcome::Redeemed(_))
            }
            _ => {
                let bucket = stores.attributes(scope).bucket("alice", "b").expect("good names");
                let replaced = bucket.replace("a", version, json!("new")).await.expect("replace");
                matches!(replaced, ChangeOutcome::Applied(_))
            }
        }
    };
    let moving = async { migrate(&rig).await.expect("migrate") };
    let there = rig.elsewhere();
    let rigs = [&rig, &there];
    let racing = (0..18).map(|index| uses(rigs[index % 2], index % 3));
    let (conflicts, won) = futures_util::future::join(moving, futures_util::future::join_all(racing)).await;
    assert_eq!(conflicts, 0);
    // Records that were in neither scope when they were asked for are in the other one now.
    assert_eq!(migrate(&rig).await.expect("migrate"), 0);
    for kind in 0..3 {
        let winners = won.iter().skip(kind).step_by(3).filter(|won| **won).count();
        let late = usize::from(uses(&there, kind).await);
        assert_eq!(winners + late, 1, "use {kind}: {winners} in the race, {late} after it");
    }
}
