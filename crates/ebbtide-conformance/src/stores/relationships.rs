//! Relationships have two consistent ends, and paths over them are found.

use std::time::Duration;

use super::approvals::context;
use super::attribute_lives::by;
use super::rig::{StoreRig, secs};
use ebbtide::AdminExt as _;
use ebbtide::backend::BackendExt;
use ebbtide::model::key::Prefix;
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Version;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::time::{Clock, Timestamp};
use ebbtide::stores::audit::Action;
use ebbtide::stores::relationships::{
    AddOutcome, Edge, Related, RelationType, Relationship, Relationships, TransitiveOutcome,
};
use ebbtide::stores::shared::extension::ExtendOutcome;

fn relationships(rig: &StoreRig) -> Relationships {
    rig.stores.relationships(&rig.scope)
}

async fn add(relationships: &Relationships, relationship: &Relationship) -> Related {
    relationships.add(relationship).await.expect("add")
}

async fn check(relationships: &Relationships, edge: &Edge) -> bool {
    relationships.check(edge).await.expect("check")
}

fn editor(subject: &str) -> Relationship {
    Relationship::role(subject, "editor", "doc", "admin")
}

fn member(subject: &str, object: &str) -> Edge {
    Edge::new(subject, "member", object, RelationType::Membership)
}

async fn chain(relationships: &Relationships, names: &[&str]) {
    for pair in names.windows(2) {
        add(relationships, &Relationship::new(member(pair[0], pair[1]), "admin")).await;
    }
}

async fn way(relationships: &Relationships, edge: &Edge, depth: usize) -> TransitiveOutcome {
    relationships.check_transitive(edge, depth).await.expect("check")
}

/// Versions and ends of the records of one of the two tables: a record and its mirror have the same.
async fn table(rig: &StoreRig, kind: Kind) -> Vec<(Version, Timestamp)> {
    let all = Prefix::reach(kind, &Reach::Below(Scope::Global)).expect("a good prefix");
    let records = rig.backend.scan_all(&all, rig.clock.now()).await.expect("scan");
    let mut met: Vec<_> = records.iter().map(|(_, record)| (record.version, record.expires_at)).collect();
    met.sort_by_key(|(version, _)| *version.as_bytes());
    met
}

pub(super) async fn an_addition_by_a_caller_that_may_not_extend_lengthens_nothing(rig: StoreRig) {
    let relationships = relationships(&rig);
    let first = add(&relationships, &editor("alice").ttl(secs(60))).await;
    let ask = async |edge: &Relationship| relationships.add_no_longer(edge).await.expect("add");
    let sliding = editor("alice").sliding_ttl(secs(10), secs(600));
    for longer in [editor("alice").ttl(secs(61)), editor("alice"), sliding] {
        assert_eq!(ask(&longer).await, AddOutcome::Longer { expires_at: first.expires_at });
    }
    let entries = async || rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items.len();
    assert_eq!(entries().await, 1, "an addition that is refused is not in the log");
    let AddOutcome::Added(shorter) = ask(&editor("alice").ttl(secs(30))).await else { panic!("shorter") };
    assert_eq!(shorter.expires_at.since(rig.clock.now()), Duration::from_secs(30));
    rig.pass(30);
    assert!(matches!(ask(&editor("alice").ttl(secs(600))).await, AddOutcome::Added(_)), "it had ended");
    assert_eq!(entries().await, 3);
}

pub(super) async fn a_relationship_is_read_from_both_ends(rig: StoreRig) {
    let (relationships, now) = (relationships(&rig), rig.clock.now());
    let alice = add(&relationships, &editor("alice").ttl(secs(60)).metadata("a", "b")).await;
    let bob = add(&relationships, &editor("bob")).await;
    assert_eq!((alice.created_at, alice.expires_at.since(now)), (now, Duration::from_secs(60)));
    assert_eq!((alice.created_by.as_str(), alice.metadata["a"].as_str()), ("admin", "b"));
    assert_eq!(relationships.get(&alice.edge).await.expect("get"), Some(alice.clone()));
    let forward = relationships.list("alice", None, None, 10).await.expect("list").items;
    assert_eq!(forward, std::slice::from_ref(&alice));
    let reverse = relationships.list_reverse("doc", None, None, 10).await.expect("list").items;
    assert_eq!(reverse, [alice, bob]);
    assert!(relationships.list("doc", None, None, 10).await.expect("list").items.is_empty());
    assert!(relationships.add(&Relationship::role("", "editor", "doc", "admin")).await.is_err());
    assert!(relationships.add(&Relationship::role("alice", "editor", "doc", " ")).await.is_err());
}

pub(super) async fn types_are_kept_apart(rig: StoreRig) {
    let relationships = relationships(&rig);
    let custom = |name: &str| RelationType::Custom(name.to_owned());
    let types = [
        RelationType::Role,
        RelationType::Trust,
        RelationType::Membership,
        RelationType::Ownership,
        RelationType::Delegation,
        custom("role"),
        custom("is"),
        custom("role:is"),
    ];
    for relation_type in &types {
        let edge = Edge::new("alice", "is", "doc", relation_type.clone());
        assert!(!check(&relationships, &edge).await, "{relation_type}");
        add(&relationships, &Relationship::new(edge, "admin")).await;
    }
    for relation_type in &types {
        for page in [
            relationships.list("alice", Some(relation_type), None, 10).await.expect("list"),
            relationships.list_reverse("doc", Some(relation_type), None, 10).await.expect("list"),
        ] {
            assert_eq!(page.items.len(), 1, "{relation_type}");
            assert_eq!(page.items[0].edge.relation_type, *relation_type);
        }
    }
    assert_eq!(relationships.list("alice", None, None, 100).await.expect("list").items.len(), types.len());
}

pub(super) async fn both_ends_end_at_the_instant(rig: StoreRig) {
    let relationships = relationships(&rig);
    let alice = add(&relationships, &editor("alice").ttl(secs(60))).await;
    rig.go_to(alice.expires_at, 1);
    assert!(check(&relationships, &alice.edge).await);
    rig.go_to(alice.expires_at, 0);
    assert!(!check(&relationships, &alice.edge).await);
    assert!(relationships.list("alice", None, None, 10).await.expect("list").items.is_empty());
    assert!(relationships.list_reverse("doc", None, None, 10).await.expect("list").items.is_empty());
    assert!(!relationships.remove(&alice.edge, &context()).await.expect("remove"));
    assert_eq!(relationships.extend(&alice.edge, &by(9)).await.expect("extend"), ExtendOutcome::Unknown);
    rig.pass(1);
    assert_eq!(rig.sweep().await.total(), 2);
}

pub(super) async fn removing_removes_both_ends_once(rig: StoreRig) {
    let alice = add(&relationships(&rig), &editor("alice")).await;
    let bob = add(&relationships(&rig), &editor("bob")).await;
    let removed = rig.together(20, |rig, _| {
        let edge = alice.edge.clone();
        async move { relationships(&rig).remove(&edge, &context()).await.expect("remove") }
    });
    assert_eq!(removed.await.into_iter().filter(|removed| *removed).count(), 1);
    let reverse = relationships(&rig).list_reverse("doc", None, None, 10).await.expect("list").items;
    assert_eq!(reverse, [bob]);
    let entries = rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items;
    let [_, _, entry] = entries.as_slice() else { panic!("three entries, not {}", entries.len()) };
    assert_eq!((entry.action, entry.kind), (Action::Revoke, Some(Kind::Relationship)));
    assert_eq!(entry.target, ["alice", "role", "editor", "doc"]);
}

pub(super) async fn an_extension_reaches_both_ends(rig: StoreRig) {
    let relationships = relationships(&rig);
    let alice = add(&relationships, &editor("alice").sliding_ttl(secs(60), secs(200))).await;
    assert!(relationships.extend(&alice.edge, &by(40)).await.expect("extend").is_extended());
    rig.pass(99);
    let reverse = relationships.list_reverse("doc", None, None, 10).await.expect("list").items;
    assert_eq!(reverse.len(), 1, "the reverse has the same expiry");
    assert!(check(&relationships, &alice.edge).await);
    let read = relationships.list("alice", None, None, 10).await.expect("list").items;
    assert_eq!(relationships.list_reverse("doc", None, None, 10).await.expect("list").items, read, "renewed");
    assert_eq!(read[0].expires_at.since(rig.clock.now()), Duration::from_secs(60));
}

pub(super) async fn both_ends_agree_after_a_race(rig: StoreRig) {
    let tasks = rig.together(16, |rig, index| async move {
        let relationships = relationships(&rig);
        let edge = editor(if index % 2 == 0 { "alice" } else { "bob" });
        for round in 0..6 {
            match (index / 2 + round) % 4 {
                0 => {
                    let _ = relationships.remove(&edge.edge(), &context()).await.expect("remove");
                }
                1 => {
                    let _ = relationships.extend(&edge.edge(), &by(5)).await.expect("extend");
                }
                _ => {
                    add(&relationships, &edge.clone().ttl(secs(60))).await;
                }
            }
        }
    });
    tasks.await;
    assert_eq!(table(&rig, Kind::Relationship).await, table(&rig, Kind::RelationshipReverse).await);
}

pub(super) async fn a_lost_reverse_stands_in_no_ones_way(rig: StoreRig) {
    let relationships = relationships(&rig);
    let reverse = Prefix::reach(Kind::RelationshipReverse, &Reach::Exact(rig.scope.clone())).expect("good");
    let alice = add(&relationships, &editor("alice").ttl(secs(60))).await;
    rig.backend.erase_all(&reverse, rig.clock.now()).await.expect("erase");
    assert!(relationships.extend(&alice.edge, &by(5)).await.expect("extend").is_extended());
    let forward = relationships.list("alice", None, None, 10).await.expect("list").items;
    assert_eq!(
        relationships.list_reverse("doc", None, None, 10).await.expect("list").items,
        forward,
        "mended"
    );
    rig.backend.erase_all(&reverse, rig.clock.now()).await.expect("erase");
    assert!(relationships.remove(&alice.edge, &context()).await.expect("remove"), "it can be removed");
    assert!(!check(&relationships, &alice.edge).await);
}

pub(super) async fn relationships_keep_to_their_scope(rig: StoreRig) {
    let scope = |text: &str| text.parse::<Scope>().expect("a good scope");
    let scopes = ["tenant:acme", "tenant:acme/env:prod", "tenant:acme%3Aenv%3Aprod", "env:prod", "global"];
    for text in scopes {
        let relationships = rig.stores.relationships(&scope(text));
        assert!(!check(&relationships, &editor("alice").edge()).await, "{text}");
        add(&relationships, &editor("alice")).await;
        assert_eq!(relationships.list_reverse("doc", None, None, 10).await.expect("list").items.len(), 1);
    }
    let acme = rig.stores.relationships(&scope("tenant:acme"));
    assert!(acme.add(&editor("bob").scope(scope("tenant:other"))).await.is_err());
    assert!(acme.within(&Scope::Global).is_err());
    assert!(acme.remove(&editor("alice").edge(), &context()).await.expect("remove"));
    for text in &scopes[1..] {
        assert!(check(&rig.stores.relationships(&scope(text)), &editor("alice").edge()).await, "{text}");
    }
}

pub(super) async fn a_batch_of_edges_answers_in_order(rig: StoreRig) {
    let relationships = relationships(&rig);
    chain(&relationships, &["a", "b", "c"]).await;
    let edges = [member("a", "b"), member("a", "c"), member("b", "c"), member("b", "a")];
    let answers = relationships.check_many(&edges).await.expect("check");
    assert_eq!(answers, [true, false, true, false]);
    let many = vec![member("a", "b"); Relationships::MAX_QUESTIONS + 1];
    assert!(relationships.check_many(&many).await.is_err());
}

pub(super) async fn a_way_is_found_over_several_steps(rig: StoreRig) {
    let relationships = relationships(&rig);
    chain(&relationships, &["alice", "team", "unit", "division", "company"]).await;
    chain(&relationships, &["alice", "club", "company"]).await;
    for number in 0..40 {
        chain(&relationships, &["alice", &format!("group{number}")]).await;
    }
    let found = way(&relationships, &member("alice", "company"), 10).await;
    let path = ["alice", "club", "company"].map(str::to_owned).to_vec();
    assert_eq!(found, TransitiveOutcome::Related { path }, "the shortest");
    let found = relationships.path(&member("alice", "division"), 3).await.expect("path");
    assert_eq!(found, Some(["alice", "team", "unit", "division"].map(str::to_owned).to_vec()));
    assert!(way(&relationships, &member("alice", "team"), 1).await.is_related(), "one step is a way too");
    let not = way(&relationships, &member("company", "alice"), 10).await;
    assert_eq!(not, TransitiveOutcome::NotRelated { depth_reached: false }, "it has a direction");
}

pub(super) async fn the_depth_is_an_answer(rig: StoreRig) {
    let relationships = relationships(&rig);
    let names: Vec<_> = (0..=12).map(|number| format!("n{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    chain(&relationships, &names).await;
    let depth = Relationships::DEFAULT_DEPTH;
    assert!(way(&relationships, &member("n0", "n10"), depth).await.is_related());
    let deep = way(&relationships, &member("n0", "n11"), depth).await;
    assert_eq!(deep, TransitiveOutcome::NotRelated { depth_reached: true });
    assert!(way(&relationships, &member("n0", "n11"), 11).await.is_related());
    let nowhere = way(&relationships, &member("n0", "elsewhere"), 100).await;
    assert_eq!(nowhere, TransitiveOutcome::NotRelated { depth_reached: false });
    for depth in [0, 101] {
        assert!(relationships.check_transitive(&member("n0", "n1"), depth).await.is_err());
    }
}

pub(super) async fn cycles_do_no_harm(rig: StoreRig) {
    let relationships = relationships(&rig);
    chain(&relationships, &["a", "b", "c", "a"]).await;
    chain(&relationships, &["b", "b"]).await;
    let not = way(&relationships, &member("a", "z"), 100).await;
    assert_eq!(not, TransitiveOutcome::NotRelated { depth_reached: false });
    let round = way(&relationships, &member("a", "a"), 100).await;
    let path = ["a", "b", "c", "a"].map(str::to_owned).to_vec();
    assert_eq!(round, TransitiveOutcome::Related { path }, "to oneself only by a way");
    assert!(!way(&relationships, &member("z", "z"), 100).await.is_related());
}

pub(super) async fn only_trust_and_membership_carry_on(rig: StoreRig) {
    let relationships = relationships(&rig);
    for (relation_type, carries_on) in [
        (RelationType::Role, false),
        (RelationType::Trust, true),
        (RelationType::Membership, true),
        (RelationType::Ownership, false),
        (RelationType::Delegation, false),
        (RelationType::Custom("trust".to_owned()), false),
    ] {
        let edge = |from: &str, to: &str| Edge::new(from, "r", to, relation_type.clone());
        add(&relationships, &Relationship::new(edge("a", "b"), "admin")).await;
        add(&relationships, &Relationship::new(edge("b", "c"), "admin")).await;
        let answer = relationships.check_transitive(&edge("a", "c"), 10).await;
        assert_eq!(answer.is_ok_and(|answer| answer.is_related()), carries_on, "{relation_type}");
        assert!(!check(&relationships, &edge("a", "c")).await, "a direct check is direct");
    }
}

pub(super) async fn a_way_ends_with_its_weakest_step(rig: StoreRig) {
    let relationships = relationships(&rig);
    chain(&relationships, &["a", "b"]).await;
    let weak = add(&relationships, &Relationship::new(member("b", "c"), "admin").ttl(secs(60))).await;
    chain(&relationships, &["c", "d"]).await;
    rig.go_to(weak.expires_at, 1);
    assert!(way(&relationships, &member("a", "d"), 10).await.is_related());
    rig.go_to(weak.expires_at, 0);
    assert!(!way(&relationships, &member("a", "d"), 10).await.is_related());
    chain(&relationships, &["b", "c"]).await;
    assert!(way(&relationships, &member("a", "d"), 10).await.is_related());
    assert!(relationships.remove(&member("b", "c"), &context()).await.expect("remove"));
    assert!(!way(&relationships, &member("a", "d"), 10).await.is_related());
}

pub(super) async fn ways_keep_to_their_scope_and_relation(rig: StoreRig) {
    let relationships = relationships(&rig);
    let prod = Scope::tenant_env("acme", "prod").expect("good names");
    chain(&relationships, &["a", "b"]).await;
    chain(&rig.stores.relationships(&prod), &["b", "c"]).await;
    add(&relationships, &Relationship::membership("b", "guest", "c", "admin")).await;
    add(&relationships, &Relationship::trust("b", "member", "c", "admin")).await;
    let not = way(&relationships, &member("a", "c"), 10).await;
    assert_eq!(not, TransitiveOutcome::NotRelated { depth_reached: false });
}

pub(super) async fn nothing_is_reached_over_someone_who_is_being_deleted(rig: StoreRig) {
    let relationships = relationships(&rig);
    chain(&relationships, &["a", "b", "c", "d"]).await;
    chain(&relationships, &["a", "e"]).await;
    let deletion = rig.stores.owners(&rig.scope).delete("b", &context()).await.expect("a tombstone");
    let of = &RelationType::Membership;
    for (from, there, back) in [
        ("a", vec![("e", 1)], vec![]),
        ("b", vec![], vec![]),
        ("c", vec![("d", 1)], vec![]),
        ("d", vec![], vec![("c", 1)]),
    ] {
        let named = |names: Vec<(&str, usize)>| -> Vec<(String, usize)> {
            names.into_iter().map(|(name, distance)| (name.to_owned(), distance)).collect()
        };
        let reached = relationships.reachable(from, "member", of, 10).await.expect("search");
        assert_eq!((reached.names, reached.depth_reached), (named(there), false), "from {from}");
        let reached = relationships.reaching(from, "member", of, 10).await.expect("search");
        assert_eq!((reached.names, reached.depth_reached), (named(back), false), "to {from}");
    }
    assert_eq!(relationships.path(&member("a", "d"), 10).await.expect("path"), None);
    assert_eq!(
        relationships.path(&member("c", "d"), 10).await.expect("path").map(|path| path.len()),
        Some(2)
    );
    deletion.finish().await.expect("finish");
    chain(&relationships, &["a", "b", "c"]).await;
    let reached = relationships.reachable("a", "member", of, 10).await.expect("search");
    assert_eq!(reached.names.len(), 4, "the name is free again");
}

pub(super) async fn a_search_goes_both_ways(rig: StoreRig) {
    let relationships = relationships(&rig);
    chain(&relationships, &["alice", "team", "company"]).await;
    chain(&relationships, &["bob", "team"]).await;
    chain(&relationships, &["carol", "company"]).await;
    let named = |names: &[(&str, usize)]| -> Vec<(String, usize)> {
        names.iter().map(|(name, distance)| ((*name).to_owned(), *distance)).collect()
    };
    let of = &RelationType::Membership;
    let up = relationships.reachable("alice", "member", of, 10).await.expect("search");
    assert_eq!((up.names, up.depth_reached), (named(&[("team", 1), ("company", 2)]), false));
    let down = relationships.reaching("company", "member", of, 10).await.expect("search");
    let all = named(&[("carol", 1), ("team", 1), ("alice", 2), ("bob", 2)]);
    assert_eq!((down.names, down.depth_reached), (all, false));
    let near = relationships.reaching("company", "member", of, 1).await.expect("search");
    assert_eq!((near.names, near.depth_reached), (named(&[("carol", 1), ("team", 1)]), true));
    assert!(relationships.reachable("alice", "member", &RelationType::Role, 10).await.is_err());
}
