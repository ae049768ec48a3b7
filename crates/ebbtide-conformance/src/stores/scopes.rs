//! Scopes are listed, counted and deleted exactly.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::approvals::context;
use super::rig::{StoreRig, secs};
use ebbtide::model::error::ErrorKind;
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock;
use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::{Action, AuditOutcome};
use ebbtide::stores::grants::{GrantRequest, Holder};
use ebbtide::stores::relationships::Relationship;
use ebbtide::stores::replays::Proof;
use ebbtide::stores::shared::tombstones::Principal;

const SCOPES: [&str; 6] =
    ["tenant:acme", "tenant:acme/env:prod", "tenant:acme%3Aenv%3Aprod", "tenant:acme2", "env:prod", "global"];

fn scope(text: &str) -> Scope {
    text.parse().expect("a good scope")
}

/// Writes to each scope: an attribute, two approvals, a relationship and its reverse, a replay record.
async fn fill(rig: &StoreRig) {
    for text in SCOPES {
        let scope = scope(text);
        let bucket = rig.stores.attributes(&scope).bucket("alice", "b").expect("good names");
        bucket.set("a", json!(1)).await.expect("set");
        for resource in ["one", "two"] {
            let approval = Approval::new("alice", resource, "GET", "admin").ttl(secs(60));
            rig.stores.approvals(&scope).grant(&approval).await.expect("grant");
        }
        let role = Relationship::role("alice", "editor", "doc", "admin");
        rig.stores.relationships(&scope).add(&role).await.expect("add");
        let proof = Proof::new("n", "j");
        let _ = rig.stores.replays(&scope).check(&proof).await.expect("check");
    }
}

fn one_of_each() -> BTreeMap<Kind, u64> {
    [
        (Kind::Replay, 1),
        (Kind::Attribute, 1),
        (Kind::Approval, 2),
        (Kind::Relationship, 1),
        (Kind::RelationshipReverse, 1),
    ]
    .into()
}

async fn count(rig: &StoreRig, reach: &Reach) -> BTreeMap<Kind, u64> {
    let mut counts = rig.stores.scopes(&Scope::Global).count(reach).await.expect("count");
    // Excludes the logs and an engine's stored positions.
    counts.retain(|kind, _| !matches!(kind, Kind::Audit | Kind::System));
    counts
}

pub(super) async fn a_scope_is_counted_exactly_or_below(rig: StoreRig) {
    fill(&rig).await;
    for text in SCOPES {
        assert_eq!(count(&rig, &Reach::Exact(scope(text))).await, one_of_each(), "{text}");
        let below = SCOPES.iter().filter(|other| scope(text).covers(&scope(other))).count() as u64;
        let expected: BTreeMap<_, _> =
            one_of_each().into_iter().map(|(kind, one)| (kind, one * below)).collect();
        assert_eq!(count(&rig, &Reach::Below(scope(text))).await, expected, "{text}");
        let total = expected.values().sum::<u64>();
        for (most, counted) in [(0, 0), (1, 1), (total - 1, total - 1), (total, total), (total + 1, total)] {
            let up_to = rig.stores.scopes(&Scope::Global).count_up_to(&Reach::Below(scope(text)), most).await;
            assert_eq!(up_to.expect("count"), counted, "{text}, at most {most}");
        }
    }
    let scopes = rig.stores.scopes(&Scope::Global);
    let reach = Reach::Exact(rig.scope.clone());
    let first = scopes.list(Kind::Approval, &reach, None, 1).await.expect("list");
    let rest = scopes.list(Kind::Approval, &reach, first.next.as_ref(), 10).await.expect("list");
    assert!(first.items.iter().chain(&rest.items).all(|(key, _)| key.scope() == rig.scope));
    assert_eq!(first.items.len() + rest.items.len(), 2);
    rig.pass(60);
    assert_eq!(count(&rig, &reach).await.get(&Kind::Approval), None, "expired records are not counted");
}

pub(super) async fn statistics_are_by_scope_and_kind(rig: StoreRig) {
    let began = rig.clock.now();
    fill(&rig).await;
    let all = rig.stores.scopes(&Scope::Global).statistics(&Reach::Below(Scope::Global)).await.expect("read");
    assert_eq!(all.len(), SCOPES.len());
    let ours = &all[&rig.scope];
    let approvals = &ours[&Kind::Approval];
    assert_eq!((approvals.live, approvals.without_end), (2, 0));
    assert_eq!(approvals.first_ends_at.map(|end| end.since(began)), Some(Duration::from_secs(60)));
    assert_eq!(approvals.last_ends_at, approvals.first_ends_at);
    assert!(approvals.bytes > 20);
    assert_eq!((ours[&Kind::Attribute].live, ours[&Kind::Attribute].without_end), (1, 1));
    assert_eq!(ours[&Kind::Attribute].first_ends_at, None);
    let exact =
        rig.stores.scopes(&rig.scope).statistics(&Reach::Exact(rig.scope.clone())).await.expect("read");
    assert_eq!(exact.into_iter().collect::<Vec<_>>(), [(rig.scope.clone(), ours.clone())]);
}

pub(super) async fn a_scope_is_deleted_alone(rig: StoreRig) {
    fill(&rig).await;
    let scopes = rig.stores.scopes(&rig.scope);
    let deletion = scopes.delete(&Reach::Exact(rig.scope.clone()), &context()).await.expect("delete");
    assert_eq!(count(&rig, &Reach::Exact(rig.scope.clone())).await, one_of_each(), "before the first step");
    assert_eq!(deletion.finish().await.expect("delete").records, one_of_each());
    assert_eq!(count(&rig, &Reach::Exact(rig.scope.clone())).await, BTreeMap::new());
    for text in &SCOPES[1..] {
        assert_eq!(count(&rig, &Reach::Exact(scope(text))).await, one_of_each(), "{text}");
    }
    let audit = rig.stores.audit(&rig.scope);
    let mut entries = audit.list(None, 100).await.expect("list").items;
    entries.retain(|entry| entry.action == Action::DeleteScope);
    assert_eq!(entries.len(), 2, "that it begins, and that it ended");
    assert!(entries[1].detail.as_deref().is_some_and(|detail| detail.contains("6 records")));
    let below = scopes.delete(&Reach::Below(rig.scope.clone()), &context()).await.expect("delete");
    assert_eq!(below.finish().await.expect("delete").records, one_of_each(), "its environment");
    for text in &SCOPES[2..] {
        assert_eq!(count(&rig, &Reach::Exact(scope(text))).await, one_of_each(), "{text}");
    }
    let verdict = audit.verify(None).await.expect("verify");
    assert!(matches!(verdict, AuditOutcome::Intact { .. }), "the log is kept");
}

/// Writes two kinds, of which an engine with steps by kind deletes one first.
async fn fill_two_kinds(rig: &StoreRig) {
    for number in 0..30 {
        let user = format!("user{number}");
        let bucket = rig.stores.attributes(&rig.scope).bucket(&user, "b").expect("good names");
        bucket.set("a", json!(number)).await.expect("set");
        let approval = Approval::new(user, "doc", "GET", "admin");
        rig.stores.approvals(&rig.scope).grant(&approval).await.expect("grant");
    }
}

/// Starts a deletion, drops it after it has deleted something, and returns the counts.
async fn stopped_deletion(rig: &StoreRig, reach: &Reach) -> BTreeMap<Kind, u64> {
    let scopes = rig.stores.scopes(&rig.scope);
    let mut stopped = scopes.delete(reach, &context()).await.expect("delete");
    while stopped.removed().records.is_empty() {
        let before = stopped.done();
        let more = stopped.step().await.expect("step");
        assert!(stopped.done().0 >= before.0 && stopped.done().0 <= stopped.done().1, "{:?}", stopped.done());
        assert!(more || !stopped.removed().records.is_empty(), "there is something to delete");
    }
    stopped.removed().records.clone()
}

fn sum(one: &BTreeMap<Kind, u64>, other: &BTreeMap<Kind, u64>) -> BTreeMap<Kind, u64> {
    let mut sum = one.clone();
    for (kind, count) in other {
        *sum.entry(*kind).or_default() += count;
    }
    sum
}

pub(super) async fn a_deletion_is_gone_on_with(rig: StoreRig) {
    fill_two_kinds(&rig).await;
    let (scopes, reach) = (rig.stores.scopes(&rig.scope), Reach::Exact(rig.scope.clone()));
    let removed = stopped_deletion(&rig, &reach).await;
    // Records that are written meanwhile are deleted too: this deletion starts over.
    let approval = Approval::new("late", "doc", "GET", "admin");
    rig.stores.approvals(&rig.scope).grant(&approval).await.expect("grant");
    rig.pass(1);
    let rest = scopes.delete(&reach, &context()).await.expect("delete").finish().await.expect("delete");
    assert_eq!(sum(&removed, &rest.records), [(Kind::Attribute, 30), (Kind::Approval, 31)].into());
    assert_eq!(count(&rig, &reach).await, BTreeMap::new());
}

pub(super) async fn a_stopped_deletion_is_resumed_within_a_day(rig: StoreRig) {
    fill_two_kinds(&rig).await;
    let (scopes, reach) = (rig.stores.scopes(&rig.scope), Reach::Exact(rig.scope.clone()));
    assert!(scopes.resume_delete(&reach, &context()).await.expect("resume").is_none(), "none was stopped");
    let began = rig.clock.now();
    let removed = stopped_deletion(&rig, &reach).await;
    let all: BTreeMap<_, _> = [(Kind::Attribute, 30), (Kind::Approval, 30)].into();
    rig.pass(3_600);
    let resumed = scopes.resume_delete(&reach, &context()).await.expect("resume");
    if removed == all {
        // An engine that deletes so much in one step has finished.
        assert!(resumed.is_none());
    } else {
        let resumed = resumed.expect("one was stopped");
        assert_eq!((resumed.began_at(), &resumed.removed().records), (began, &removed));
        let below = scopes.resume_delete(&Reach::Below(rig.scope.clone()), &context()).await;
        assert!(below.expect("resume").is_none(), "that is another one");
        assert_eq!(resumed.finish().await.expect("delete").records, all, "with what was deleted before");
    }
    assert_eq!(count(&rig, &reach).await, BTreeMap::new());
    assert!(scopes.resume_delete(&reach, &context()).await.expect("resume").is_none(), "it has ended");
    // Beside the checkpoint of the scope's log.
    let kept = rig.stores.scopes(&Scope::Global).count(&Reach::Exact(Scope::Global)).await.expect("count");
    assert_eq!(kept.get(&Kind::System), None, "nothing is kept of it");
    fill_two_kinds(&rig).await;
    let _ = stopped_deletion(&rig, &reach).await;
    rig.pass(86_400);
    assert!(scopes.resume_delete(&reach, &context()).await.expect("resume").is_none(), "it is forgotten");
}

pub(super) async fn a_deletion_that_has_begun_outlives_its_scope(rig: StoreRig) {
    rig.stores.grants(&rig.scope).issue(GrantRequest::new("alice", "app")).await.expect("issue");
    let _ = rig.stores.owners(&rig.scope).delete("alice", &context()).await.expect("a tombstone");
    let tombstone = Principal::Owner("alice").tombstone(&rig.scope).expect("a good name");
    let reach = Reach::Exact(rig.scope.clone());
    let scopes = rig.stores.scopes(&rig.scope);
    let removed =
        scopes.delete(&reach, &context()).await.expect("delete").finish().await.expect("delete").records;
    assert_eq!((removed.get(&Kind::Grant), removed.get(&Kind::Owner)), (Some(&1), None));
    assert!(rig.backend.get(&tombstone, rig.clock.now()).await.expect("get").is_some(), "it stands");
    let error = scopes.delete_kinds(vec![Kind::Owner], &reach, &context()).await.expect_err("never");
    assert!(error.message().contains("owner"), "{error}");
    let late = rig.stores.grants(&rig.scope).issue(GrantRequest::new("alice", "app")).await;
    assert_eq!(late.expect_err("she is being deleted").kind(), ErrorKind::Invalid);
    let mut again = rig.stores.owners(&rig.scope).delete("alice", &context()).await.expect("delete");
    while again.step().await.expect("step") {}
    rig.stores.grants(&rig.scope).issue(GrantRequest::new("alice", "app")).await.expect("her name is free");
}

async fn token_of_client(rig: &StoreRig) -> Secret {
    let request = AccessRequest::alone("ada", "app");
    match rig.stores.access_tokens(&rig.scope).issue(request).await.expect("issue") {
        IssueOutcome::Issued(issued) => issued.access_token,
        refused => panic!("{refused:?}"),
    }
}

async fn revoke_client(rig: &StoreRig) -> u64 {
    rig.stores.grants(&rig.scope).revoke(Holder::Client("app"), Some(&context())).await.expect("revoke")
}

async fn is_dead(rig: &StoreRig, token: &Secret) -> bool {
    let answer = rig.stores.access_tokens(&rig.scope).introspect(token).await.expect("introspect");
    answer == IntrospectOutcome::Inactive
}

/// The set of the clients of every scope is in the global one.
pub(super) async fn a_deletion_of_the_global_scope_revives_no_client(rig: StoreRig) {
    let revoked = token_of_client(&rig).await;
    assert_eq!(revoke_client(&rig).await, 1);
    let live = token_of_client(&rig).await;
    let everything = Reach::Exact(Scope::Global);
    let deletion = rig.stores.scopes(&Scope::Global).delete(&everything, &context()).await.expect("delete");
    let _ = deletion.finish().await.expect("delete");
    let node = rig.with_keyring(rig.keyring().clone());
    for rig in [&rig, &node] {
        assert!(is_dead(rig, &revoked).await);
        assert!(!is_dead(rig, &live).await);
    }
    rig.pass(1);
    // A raise after the deletion is seen by those that have read the set before it.
    assert_eq!(revoke_client(&node).await, 1);
    for rig in [&rig, &node] {
        assert!(is_dead(rig, &live).await);
    }
}

pub(super) async fn a_caller_reaches_only_what_it_covers(rig: StoreRig) {
    fill(&rig).await;
    for caller in SCOPES.map(scope) {
        for requested in SCOPES.map(scope) {
            let scopes = rig.stores.scopes(&caller);
            for reach in [Reach::Exact(requested.clone()), Reach::Below(requested.clone())] {
                let covered = caller.covers(&requested);
                assert_eq!(scopes.count(&reach).await.is_ok(), covered, "{caller} {requested}");
                assert_eq!(scopes.statistics(&reach).await.is_ok(), covered);
                assert_eq!(scopes.list(Kind::Approval, &reach, None, 10).await.is_ok(), covered);
                if !covered {
                    assert!(scopes.delete(&reach, &context()).await.is_err());
                }
            }
        }
    }
    let total = count(&rig, &Reach::Below(Scope::Global)).await.values().sum::<u64>();
    assert_eq!(total, 6 * SCOPES.len() as u64, "nothing was deleted");
    let reach = Reach::Exact(rig.scope.clone());
    let log = rig.stores.scopes(&rig.scope).delete_kinds(vec![Kind::Audit], &reach, &context()).await;
    assert!(log.is_err(), "the log is not deleted");
}

pub(super) async fn one_store_is_deleted_alone(rig: StoreRig) {
    fill(&rig).await;
    let prod = scope("tenant:acme/env:prod");
    assert_eq!(rig.stores.approvals(&rig.scope).delete_scope(&context()).await.expect("delete"), 2);
    assert_eq!(rig.stores.relationships(&rig.scope).delete_scope(&context()).await.expect("delete"), 1);
    let left: BTreeMap<_, _> = [(Kind::Replay, 1), (Kind::Attribute, 1)].into();
    assert_eq!(count(&rig, &Reach::Exact(rig.scope.clone())).await, left);
    assert_eq!(count(&rig, &Reach::Exact(prod)).await, one_of_each());
}
