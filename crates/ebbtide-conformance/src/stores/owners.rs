//! Deletion of an owner removes everything, and nothing is re-created meanwhile.

use serde_json::json;

use super::owned_records::{OwnedRecords, context};
use super::rig::StoreRig;
use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, GrantTtls};
use ebbtide::stores::owners::Removed;
use ebbtide::stores::sessions::SessionRequest;

pub(super) async fn delete(rig: &StoreRig, owner: &str) -> Removed {
    let deletion = rig.stores.owners(&rig.scope).delete(owner, &context()).await.expect("delete");
    deletion.finish().await.expect("finish")
}

/// Returns true for a checkpoint of the audit log.
pub(super) fn is_checkpoint(key: &Key) -> bool {
    key.kind() == Kind::System && key.partition() == ["audit-checkpoint".into()]
}

/// Remaining records that may name an owner: neither the log, nor tombstones, nor short-lived records that lead
/// nowhere, with their index entries.
pub(super) async fn left(rig: &StoreRig) -> Vec<Kind> {
    let ends_soon = |kind| matches!(kind, Kind::Code | Kind::DeviceCode | Kind::UserCode | Kind::AccessToken);
    let contents = rig.contents().await;
    let is_token = |index: &Key| {
        contents.iter().any(|(key, _)| key.kind() == Kind::AccessToken && key.partition() == index.sort())
    };
    let keys = contents.iter().map(|(key, _)| key);
    let keys = keys.filter(|key| key.kind() != Kind::GrantIndex || !is_token(key));
    let kinds = keys.filter(|key| !is_checkpoint(key)).map(Key::kind);
    kinds.filter(|&kind| !matches!(kind, Kind::Audit | Kind::Owner) && !ends_soon(kind)).collect()
}

pub(super) async fn an_owner_goes_with_everything_and_alone(rig: StoreRig) {
    let (alice, bob) = (OwnedRecords::new(&rig, "alice").await, OwnedRecords::new(&rig, "bob").await);
    assert_eq!(alice.honoured(&rig).await.len(), OwnedRecords::ALL);
    let before = left(&rig).await.len();
    let removed = delete(&rig, "alice").await;
    let kinds: Vec<_> = removed.records.iter().map(|(kind, count)| (kind.name(), *count)).collect();
    let expected = [
        ("grants", 2),
        ("access_tokens", 3),
        ("provider_tokens", 2),
        ("sessions", 1),
        ("clients", 1),
        ("attributes", 1),
        ("approvals", 1),
        ("relationships", 2),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(removed.revoked, 6, "two grants, three tokens, a session");
    assert!(alice.honoured(&rig).await.is_empty());
    assert!(alice.given().honoured(&rig).await.is_empty(), "tokens that her client was given");
    assert_eq!(left(&rig).await.len(), before / 2, "all of alice's records, and none of bob's");
    assert_eq!(bob.honoured(&rig).await.len(), OwnedRecords::ALL);
    let again = delete(&rig, "alice").await;
    assert_eq!(again, Removed::default());
}

pub(super) async fn nothing_new_is_written_for_a_deleted_owner(rig: StoreRig) {
    let alice = OwnedRecords::new(&rig, "alice").await;
    let deletion = rig.stores.owners(&rig.scope).delete("alice", &context()).await.expect("delete");
    assert_eq!(alice.made(&rig).await, [""; 0], "before the first step");
    assert_eq!(alice.honoured(&rig).await, [""; 0]);
    let owners = rig.stores.owners(&rig.scope);
    assert!(owners.is_being_deleted("alice").await.expect("ask"));
    assert!(!owners.is_being_deleted("bob").await.expect("ask"));
    let error = rig.stores.grants(&rig.scope).issue(GrantRequest::new("alice", "app")).await;
    assert!(error.expect_err("refused").message().contains("deleted"));
    deletion.finish().await.expect("finish");
    assert!(!owners.is_being_deleted("alice").await.expect("ask"));
    assert_eq!(left(&rig).await, []);
    assert_eq!(alice.honoured(&rig).await, [""; 0]);
}

pub(super) async fn a_code_brings_nobody_back(rig: StoreRig) {
    for terms in [None, Some(GrantTtls::default())] {
        let owner = if terms.is_some() { "alice" } else { "bob" };
        let codes = rig.stores.codes(&rig.scope);
        let request = CodeRequest::new("app", owner, "https://a").ttl(super::rig::secs(600));
        let code = codes.issue(request).await.expect("issue").code;
        delete(&rig, owner).await;
        let presented = Redeem::new(code, "app").redirect_uri("https://a");
        let presented = terms.map_or(presented.clone(), |terms| presented.grant(terms));
        for _ in 0..2 {
            assert_eq!(codes.redeem(presented.clone()).await.expect("redeem"), RedeemOutcome::Unknown);
            rig.pass(599);
        }
    }
}

pub(super) async fn a_name_is_free_again_behind_the_last_step(rig: StoreRig) {
    let bucket = rig.stores.attributes(&rig.scope).bucket("alice", "b").expect("good names");
    let codes = rig.stores.codes(&rig.scope);
    let presented = |code| Redeem::new(code, "app").redirect_uri("https://a").with_grant();
    for step in [0, 1, 3_599] {
        bucket.set("old", json!(1)).await.expect("set");
        let old = codes.issue(CodeRequest::new("app", "alice", "https://a")).await.expect("issue").code;
        delete(&rig, "alice").await;
        rig.pass(step);
        bucket.set("new", json!(1)).await.expect("a new alice");
        assert!(bucket.get("old").await.expect("get").is_none());
        assert!(bucket.get("new").await.expect("get").is_some());
        if step == 1 {
            assert_eq!(
                codes.redeem(presented(old)).await.expect("redeem"),
                RedeemOutcome::Unknown,
                "the old"
            );
            let new = codes.issue(CodeRequest::new("app", "alice", "https://a")).await.expect("issue").code;
            let redeemed = codes.redeem(presented(new)).await.expect("redeem");
            assert!(matches!(redeemed, RedeemOutcome::Redeemed(_)), "{redeemed:?}");
        }
    }
    let deletion = rig.stores.owners(&rig.scope).delete("alice", &context()).await.expect("delete");
    rig.pass(365 * 24 * 3600);
    assert!(bucket.set("a", json!(1)).await.is_err(), "the tombstone does not expire during the deletion");
    deletion.finish().await.expect("finish");
}

pub(super) async fn a_name_that_is_free_again_is_deleted_again(rig: StoreRig) {
    let bucket = rig.stores.attributes(&rig.scope).bucket("alice", "b").expect("good names");
    for _ in 0..3 {
        bucket.set("a", json!(1)).await.expect("set");
        assert_eq!(delete(&rig, "alice").await.total(), 1);
        let deletion = rig.stores.owners(&rig.scope).delete("alice", &context()).await.expect("delete");
        assert!(bucket.set("a", json!(1)).await.is_err(), "a second deletion resumes the first");
        deletion.finish().await.expect("finish");
    }
}

pub(super) async fn writing_against_deleting_leaves_nothing(rig: StoreRig) {
    for round in 0..4 {
        let owner = format!("alice-{round}");
        rig.together(24, |rig, index| {
            let owner = owner.clone();
            async move {
                let (stores, scope) = (&rig.stores, &rig.scope);
                match index % 4 {
                    // All but the last step, which frees the name again.
                    0 if index == 12 => {
                        let deletion = stores.owners(scope).delete(&owner, &context()).await;
                        let mut deletion = deletion.expect("delete");
                        while deletion.done().0 + 1 < deletion.done().1 {
                            assert!(deletion.step().await.expect("step"));
                        }
                    }
                    0 => {
                        let bucket = stores.attributes(scope).bucket(owner, "b").expect("good names");
                        drop(bucket.set(&format!("{index}"), json!(1)).await);
                    }
                    1 => drop(stores.grants(scope).issue(GrantRequest::new(owner, "app")).await),
                    2 => drop(stores.sessions(scope).create(SessionRequest::default().subject(owner)).await),
                    _ => {
                        let approval = ebbtide::stores::approvals::Approval::new(owner, "r", "GET", "root");
                        drop(stores.approvals(scope).grant(&approval).await);
                    }
                }
            }
        })
        .await;
        assert_eq!(left(&rig).await, []);
        assert_eq!(delete(&rig, &owner).await, Removed::default());
    }
}

pub(super) async fn a_deletion_goes_in_steps_and_is_told(rig: StoreRig) {
    let bucket = rig.stores.attributes(&rig.scope).bucket("alice", "b").expect("good names");
    for index in 0..250 {
        bucket.set(&format!("{index}"), json!(1)).await.expect("set");
    }
    let mut deletion = rig.stores.owners(&rig.scope).delete("alice", &context()).await.expect("delete");
    let (done, stages) = deletion.done();
    assert_eq!((done, deletion.removed().total()), (0, 0));
    let (mut steps, mut last) = (1, 0);
    while deletion.step().await.expect("step") {
        steps += 1;
        assert!(deletion.removed().total() >= last && deletion.done().0 < stages);
        last = deletion.removed().total();
    }
    assert!(steps >= stages, "{steps}");
    assert_eq!((deletion.done(), deletion.removed().total()), ((stages, stages), 250));
    assert!(!deletion.step().await.expect("step"), "there is no more");
    let log = rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items;
    assert_eq!(log.len(), 2, "{log:?}");
}

pub(super) async fn an_owner_of_nothing_is_deleted_too(rig: StoreRig) {
    // Subjects and clients may have names that are not valid in a key.
    for owner in ["nobody", "a\nb"] {
        assert_eq!(delete(&rig, owner).await, Removed::default());
    }
    for wrong in [String::new(), "x".repeat(1_025)] {
        assert!(rig.stores.owners(&rig.scope).delete(&wrong, &context()).await.is_err());
    }
}

pub(super) async fn owners_of_another_scope_are_left_alone(rig: StoreRig) {
    let here = OwnedRecords::new(&rig, "alice").await;
    let other = rig.elsewhere();
    let there = OwnedRecords::new(&other, "alice").await;
    delete(&other, "alice").await;
    assert!(there.honoured(&other).await.is_empty());
    assert_eq!(here.honoured(&rig).await.len(), OwnedRecords::ALL);
}
