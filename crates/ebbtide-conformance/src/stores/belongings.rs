//! Records end with what they belong to: at the instant at which it expires, and whatever was removed or swept.

use serde_json::json;

use super::grants::issue;
use super::owned_records::context;
use super::rig::{StoreRig, secs};
use ebbtide::backend::BackendExt as _;
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::time::{Clock as _, Timestamp};
use ebbtide::model::write::{Batch, Commit, Write};
use ebbtide::stores::attributes::{Bucket, ChangeOutcome, Draft, SwapOutcome};
use ebbtide::stores::grants::{GrantId, GrantTtls, Holder};
use ebbtide::stores::provider_tokens::Tie;
use ebbtide::stores::records::{PutRecord, RecordAddress, RecordCondition};
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::stores::shared::belongings::Parent;
use ebbtide::stores::shared::extension::{ExtendOutcome, Extension};
use ebbtide::stores::shared::payload::Payload;
use ebbtide::timekeeping::Now;

fn edge() -> Edge {
    Edge::new("alice", "peer", "bob", RelationType::Trust)
}

fn trust() -> Relationship {
    Relationship::new(edge(), "admin")
}

fn of_trust() -> Parent {
    Parent::Relationship(edge())
}

/// Role that belongs to the trust.
fn role() -> Edge {
    Edge::new("bob", "reader", "files", RelationType::Role)
}

async fn add(rig: &StoreRig, relationship: &Relationship) -> Timestamp {
    rig.stores.relationships(&rig.scope).add(relationship).await.expect("add").expires_at
}

async fn remove_trust(rig: &StoreRig) {
    let relationships = rig.stores.relationships(&rig.scope);
    relationships.remove(&edge(), &context()).await.expect("remove");
}

fn bucket(rig: &StoreRig) -> Bucket {
    rig.stores.attributes(&rig.scope).bucket("alice", "permissions").expect("a good name")
}

fn at(id: &str) -> RecordAddress {
    RecordAddress::id("c", id)
}

/// One of each kind that belongs to `parent`, and an attribute that belongs to the role.
async fn give(rig: &StoreRig, parent: &Parent, grant: GrantId) {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let child = || Draft::new(json!("rw")).belongs_to(parent.clone());
    bucket(rig).set("bob", child()).await.expect("set");
    add(rig, &Relationship::new(role(), "admin").belongs_to(parent.clone())).await;
    let below = Draft::new(json!(1)).belongs_to(Parent::Relationship(role()));
    bucket(rig).set("below", below).await.expect("set");
    let put = PutRecord::new("c", "r", json!(1)).keys(["k"]).belongs_to(parent.clone());
    let _ = stores.records(scope).put(&put).await.expect("put");
    let tokens = Payload::new(json!("a provider's"));
    let put = stores.provider_tokens(scope);
    let _ = put.put_belonging(&Tie::Grant(grant), "google", &tokens, None, parent).await.expect("put");
}

/// Names of those that a read finds.
async fn found(rig: &StoreRig, grant: GrantId) -> Vec<&'static str> {
    let (stores, scope) = (&rig.stores, &rig.scope);
    let (records, relationships) = (stores.records(scope), stores.relationships(scope));
    let by_key = RecordAddress::key("c", "k");
    let many = records.get_many(&[at("r")]).await.expect("get").remove(0);
    let swap = |swap: SwapOutcome| matches!(swap, SwapOutcome::Conflict { current: Some(_) });
    [
        ("attribute", bucket(rig).get("bob").await.expect("get").is_some()),
        ("swap", swap(bucket(rig).compare_and_swap("bob", &json!(0), json!(0)).await.expect("swap"))),
        ("below", bucket(rig).get("below").await.expect("get").is_some()),
        ("bucket", !bucket(rig).list(None, 10).await.expect("list").items.is_empty()),
        ("role", relationships.check(&role()).await.expect("check")),
        ("roles", !relationships.list("bob", None, None, 10).await.expect("list").items.is_empty()),
        (
            "reverse",
            !relationships.list_reverse("files", None, None, 10).await.expect("list").items.is_empty(),
        ),
        ("record", records.get(&at("r")).await.expect("get").found().is_some()),
        ("key", records.get(&by_key).await.expect("get").found().is_some()),
        ("many", many.is_some()),
        ("records", !records.list("c", None, 10).await.expect("list").items.is_empty()),
        ("tokens", stores.provider_tokens(scope).get(grant, "google").await.expect("get").is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_found)| is_found.then_some(name))
    .collect()
}

const ALL: usize = 12;

pub(super) async fn what_belongs_to_a_trust_ends_with_it_at_the_instant(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default()).await.grant_id;
    let ends_at = add(&rig, &trust().ttl(secs(100))).await;
    give(&rig, &of_trust(), grant).await;
    rig.go_to(ends_at, 1);
    assert_eq!(found(&rig, grant).await.len(), ALL);
    rig.go_to(ends_at, 0);
    assert_eq!(found(&rig, grant).await, [""; 0]);
    rig.sweep().await;
    assert_eq!(found(&rig, grant).await, [""; 0], "a sweep changes no answer");
    // Another trust of the same names is not the one that they belonged to.
    add(&rig, &trust()).await;
    assert_eq!(found(&rig, grant).await, [""; 0]);
    give(&rig, &of_trust(), grant).await;
    assert_eq!(found(&rig, grant).await.len(), ALL);
    // One that is granted again while it lives is the same.
    add(&rig, &trust().ttl(secs(50))).await;
    assert_eq!(found(&rig, grant).await.len(), ALL);
    rig.pass(50);
    let done = rig.stores.belongings(&rig.scope).reconcile().await.expect("reconcile");
    assert_eq!(done.records, 5, "{done:?}");
    assert_eq!(found(&rig, grant).await, [""; 0]);
    let kinds = [Kind::Attribute, Kind::Relationship, Kind::Record, Kind::RecordKey, Kind::ProviderToken];
    let left = rig.contents().await.into_iter().filter(|(key, _)| kinds.contains(&key.kind()));
    assert_eq!(left.count(), 0, "nothing is stored any more");
}

pub(super) async fn no_condition_holds_for_what_has_ended_with_its_trust(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default()).await.grant_id;
    add(&rig, &trust().ttl(secs(100))).await;
    give(&rig, &of_trust(), grant).await;
    let bucket = bucket(&rig);
    let version = bucket.get("bob").await.expect("get").expect("it was set").version;
    bucket.set("eve", Draft::new(json!("rw")).belongs_to(of_trust())).await.expect("set");
    let changes = || rig.stores.attributes(&rig.scope).changes();
    let live = changes().check(&bucket, "bob", version).set(&bucket, "zoe", json!(1)).commit();
    assert_eq!(live.await.expect("commit"), Commit::Applied);
    rig.pass(100);
    for refused in [
        changes().set(&bucket, "zoe", json!(2)).check(&bucket, "bob", version),
        changes().set(&bucket, "zoe", json!(2)).replace(&bucket, "bob", version, json!(0)),
        changes().set(&bucket, "zoe", json!(2)).remove_if(&bucket, "bob", version),
    ] {
        assert_eq!(refused.commit().await.expect("commit"), Commit::Refused { index: 1 });
    }
    assert_eq!(bucket.get("zoe").await.expect("get").expect("it was set").data, json!(1));
    let inserted = changes().insert(&bucket, "eve", json!(3)).insert(&bucket, "zoe", json!(3)).commit();
    assert_eq!(inserted.await.expect("commit"), Commit::Refused { index: 1 });
    let inserted = changes().insert(&bucket, "eve", json!(3)).commit();
    assert_eq!(inserted.await.expect("commit"), Commit::Applied, "there is none");
    assert_eq!(bucket.get("eve").await.expect("get").expect("inserted").data, json!(3));
    let (records, relationships) = (rig.stores.records(&rig.scope), rig.stores.relationships(&rig.scope));
    let replaced = bucket.replace("bob", version, json!(0)).await.expect("replace");
    assert_eq!(replaced, ChangeOutcome::Refused);
    assert!(!bucket.remove_if("bob", version).await.expect("remove"));
    let hour = || Extension::from_now(secs(3_600), "root", "asked for").expect("good words");
    assert_eq!(bucket.extend("bob", &hour()).await.expect("extend"), ExtendOutcome::Unknown);
    assert_eq!(relationships.extend(&role(), &hour()).await.expect("extend"), ExtendOutcome::Unknown);
    assert!(!relationships.remove(&role(), &context()).await.expect("remove"));
    assert_eq!(records.take(&at("r")).await.expect("take"), None);
    let present = PutRecord::new("c", "r", json!(2)).only_if(RecordCondition::Present);
    assert!(!format!("{:?}", records.put(&present).await.expect("put")).contains("Stored"));
    assert_eq!(bucket.take("below").await.expect("take"), None);
    let inserted = bucket.insert("bob", json!(0)).await.expect("insert");
    assert!(matches!(inserted, ChangeOutcome::Applied(_)), "there is none");
    let absent = PutRecord::new("c", "r", json!(3)).only_if(RecordCondition::Absent);
    assert!(format!("{:?}", records.put(&absent).await.expect("put")).contains("created: true"));
    assert_eq!(bucket.get("bob").await.expect("get").expect("inserted").data, json!(0));
}

pub(super) async fn what_belongs_to_a_grant_ends_with_a_sign_out(rig: StoreRig) {
    let grant = issue(&rig, GrantTtls::default()).await.grant_id;
    let tied = issue(&rig, GrantTtls::default()).await.grant_id;
    give(&rig, &Parent::Grant(tied.to_string()), grant).await;
    assert_eq!(found(&rig, grant).await.len(), ALL);
    assert!(rig.stores.grants(&rig.scope).revoke(tied, None).await.expect("revoke") > 0);
    assert_eq!(found(&rig, grant).await, [""; 0]);
    let last = issue(&rig, GrantTtls::default()).await.grant_id;
    bucket(&rig)
        .set("x", Draft::new(json!(1)).belongs_to(Parent::Grant(last.to_string())))
        .await
        .expect("set");
    // One write ends every grant of the client.
    let grants = rig.stores.grants(&rig.scope);
    grants.revoke(Holder::Client("app"), Some(&context())).await.expect("revoke");
    assert_eq!(bucket(&rig).get("x").await.expect("get"), None);
}

/// An owner of another scope is another, also while records move between the two.
pub(super) async fn what_belongs_to_an_owner_is_absent_as_soon_as_its_deletion_begins(rig: StoreRig) {
    let carol = Parent::Owner("carol".to_owned());
    let grant = issue(&rig, GrantTtls::default()).await.grant_id;
    give(&rig, &carol, grant).await;
    let (scopes, there) = (rig.stores.scopes(&Scope::Global), rig.elsewhere().scope);
    let mut place = None;
    loop {
        let moved = scopes.migrate(&there, &rig.scope, place, false, &context()).await.expect("migrate");
        place = moved.next;
        if place.is_none() {
            break;
        }
    }
    assert_eq!(found(&rig, grant).await.len(), ALL);
    let deletion = rig.stores.owners(&rig.scope).delete("carol", &context()).await.expect("delete");
    assert_eq!(found(&rig, grant).await, [""; 0], "before the first step");
    deletion.finish().await.expect("finish");
    assert_eq!(found(&rig, grant).await, [""; 0]);
}

pub(super) async fn one_that_has_ended_with_its_trust_hides_none_of_another_type(rig: StoreRig) {
    let ends_at = add(&rig, &trust().ttl(secs(100))).await;
    let taste = |name: &str| {
        let kind: RelationType = format!("custom:{name}").parse().expect("a good name");
        Relationship::new(Edge::new("bob", "likes", "tea", kind), "admin")
    };
    add(&rig, &taste("a").belongs_to(of_trust())).await;
    add(&rig, &taste("b")).await;
    rig.go_to(ends_at, 0);
    let relationships = rig.stores.relationships(&rig.scope);
    let found = relationships.get_of_any_type("bob", "likes", "tea").await.expect("get").expect("the other");
    assert_eq!(found.edge.relation_type.to_string(), "custom:b");
}

pub(super) async fn what_was_written_anew_without_a_parent_stays(rig: StoreRig) {
    add(&rig, &trust()).await;
    let bucket = bucket(&rig);
    let child = || Draft::new(json!("rw")).belongs_to(of_trust());
    for name in ["deleted", "taken", "over", "removed", "refused"] {
        bucket.set(name, child()).await.expect("set");
    }
    assert!(bucket.delete("deleted").await.expect("delete"));
    assert!(bucket.take("taken").await.expect("take").is_some());
    let version = bucket.get("removed").await.expect("get").expect("it was set").version;
    assert!(bucket.remove_if("removed", version).await.expect("remove"));
    let refused = Draft::new(json!(0)).belongs_to(Parent::Owner("zoe".to_owned()));
    assert_eq!(bucket.insert("refused", refused).await.expect("insert"), ChangeOutcome::Refused);
    let other = rig.stores.attributes(&rig.scope).bucket("alice", "other").expect("a good name");
    other.set("bucket", child()).await.expect("set");
    other.delete_bucket().await.expect("delete");
    other.set("bucket", json!(1)).await.expect("set");
    for name in ["deleted", "taken", "over", "removed"] {
        bucket.set(name, json!(1)).await.expect("set");
    }
    add(&rig, &Relationship::new(role(), "admin").belongs_to(of_trust())).await;
    add(&rig, &Relationship::new(role(), "admin")).await;
    let listed = rig.stores.belongings(&rig.scope).list(&of_trust()).await.expect("list");
    assert_eq!(listed.len(), 1, "{listed:?}");
    remove_trust(&rig).await;
    for name in ["deleted", "taken", "over", "removed"] {
        assert!(bucket.get(name).await.expect("get").is_some(), "{name}");
    }
    assert!(other.get("bucket").await.expect("get").is_some());
    assert_eq!(bucket.get("refused").await.expect("get"), None, "it is still the trust's");
    assert!(rig.stores.relationships(&rig.scope).check(&role()).await.expect("check"));
    let belongings = rig.stores.belongings(&rig.scope);
    assert_eq!(belongings.reconcile().await.expect("reconcile").records, 0);
    assert_eq!(belongings.reconcile().await.expect("reconcile").links, 0, "no link is left");
}

pub(super) async fn a_parent_that_is_not_there_is_refused(rig: StoreRig) {
    let absent = || [of_trust(), Parent::Client("nobody".to_owned())];
    for parent in absent() {
        let child = Draft::new(json!(1)).belongs_to(parent.clone());
        let refused = bucket(&rig).set("x", child).await.expect_err("there is no parent");
        assert!(refused.message().contains("does not exist"), "{refused}");
        let relationship = Relationship::new(role(), "admin").belongs_to(parent.clone());
        assert!(rig.stores.relationships(&rig.scope).add(&relationship).await.is_err());
        let put = PutRecord::new("c", "r", json!(1)).belongs_to(parent);
        assert!(rig.stores.records(&rig.scope).put(&put).await.is_err());
    }
    let kinds = [Kind::Attribute, Kind::Relationship, Kind::Record];
    assert!(!rig.contents().await.iter().any(|(key, _)| kinds.contains(&key.kind())));
}

pub(super) async fn writing_against_removing_leaves_nothing_of_a_trust(rig: StoreRig) {
    add(&rig, &trust()).await;
    let race = rig.together(16, |rig, index| async move {
        if index == 8 {
            remove_trust(&rig).await;
            return;
        }
        let name = format!("n{index}");
        // Refused, if it comes too late.
        let _ = bucket(&rig).set(&name, Draft::new(json!(1)).belongs_to(of_trust())).await;
        let put = PutRecord::new("c", name.as_str(), json!(1)).belongs_to(of_trust());
        let _ = rig.stores.records(&rig.scope).put(&put).await;
    });
    race.await;
    let kinds = [Kind::Attribute, Kind::Record];
    assert!(!rig.contents().await.iter().any(|(key, _)| kinds.contains(&key.kind())), "also in the store");
}

pub(super) async fn reconciling_removes_index_records_that_lead_to_nothing(rig: StoreRig) {
    let below = rig.elsewhere();
    for rig in [&rig, &below] {
        issue(rig, GrantTtls::default()).await;
    }
    let all = rig.contents().await;
    let count = |kind: Kind| all.iter().filter(|(key, _)| key.kind() == kind).count();
    assert_eq!((count(Kind::Grant), count(Kind::GrantIndex) > 1), (2, true));
    // An engine's own TTL removes the record and leaves its index records.
    let now = Now::exact(rig.clock.now());
    for (key, _) in all.iter().filter(|(key, _)| key.kind() == Kind::Grant) {
        let delete = Batch::try_from(Write::Delete { key: key.clone() }).expect("one write");
        let _ = rig.backend.commit(delete, now.earliest()).await.expect("commit");
    }
    let entries = count(Kind::GrantIndex) as u64;
    let done = rig.stores.reconcile_all(&Reach::Exact(rig.scope.clone())).await.expect("reconcile");
    assert_eq!(done.links * 2, entries, "{done:?}");
    let done = rig.stores.reconcile_all(&Reach::Below(Scope::Global)).await.expect("reconcile");
    assert_eq!(done.links * 2, entries, "{done:?}");
    let index = ebbtide::model::key::Prefix::kind_wide(Kind::GrantIndex);
    assert!(rig.backend.scan_all(&index, rig.clock.now()).await.expect("scan").is_empty());
}
