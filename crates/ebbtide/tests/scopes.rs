//! No operation of one scope sees or removes what is another's, whatever the names.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::relationships::Relationship;
use ebbtide::{Key, Kind, Memory, Name, Reach, Scope, Stores};
use proptest::prelude::*;
use serde_json::json;

/// Short names over few characters, so that joins and prefixes are met often; and any others.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[ab:/%]{1,3}",
        2 => prop_oneof![Just("acme".to_owned()), Just("acme:env:prod".to_owned()), Just("prod".to_owned())],
        1 => "[^\\p{Cc}]{1,8}".prop_filter("dot segments are refused as names", |name| name != "." && name != ".."),
    ]
}

fn scopes() -> impl Strategy<Value = Scope> {
    let name = || names().prop_map(|name| Name::new(name).unwrap());
    prop_oneof![
        Just(Scope::Global),
        name().prop_map(Scope::Tenant),
        name().prop_map(Scope::Environment),
        (name(), name()).prop_map(|(tenant, environment)| Scope::TenantEnvironment { tenant, environment }),
        proptest::collection::vec(name(), 1..4).prop_map(Scope::Custom),
    ]
}

type Triple = (String, String, String);

/// Expected names in each scope.
#[derive(Default)]
struct Model(BTreeMap<Scope, BTreeSet<Triple>>);

impl Model {
    fn of(&self, scope: &Scope) -> BTreeSet<Triple> {
        self.0.get(scope).cloned().unwrap_or_default()
    }
}

async fn step(stores: &Stores, model: &mut Model, scope: &Scope, triple: &Triple, operation: u8) {
    let context = AuditContext::new("root", "why").unwrap();
    let (first, second, third) = (triple.0.as_str(), triple.1.as_str(), triple.2.as_str());
    let bucket = stores.attributes(scope).bucket(first, second).unwrap();
    let approvals = stores.approvals(scope);
    let relationships = stores.relationships(scope);
    let relationship = Relationship::trust(first, second, third, "admin");
    let edge = relationship.edge();
    let stood = model.of(scope).contains(triple);
    assert_eq!(bucket.get(third).await.unwrap().is_some(), stood);
    assert_eq!(approvals.check(first, second, third).await.unwrap(), stood);
    assert_eq!(relationships.check(&edge).await.unwrap(), stood);
    match operation {
        0..5 => {
            bucket.set(third, json!(scope.to_string())).await.unwrap();
            approvals.grant(&Approval::new(first, second, third, "admin")).await.unwrap();
            relationships.add(&relationship).await.unwrap();
            model.0.entry(scope.clone()).or_default().insert(triple.clone());
        }
        5..8 => {
            assert_eq!(bucket.delete(third).await.unwrap(), stood);
            assert_eq!(approvals.revoke(first, second, third, &context).await.unwrap(), stood);
            assert_eq!(relationships.remove(&edge, &context).await.unwrap(), stood);
            model.0.entry(scope.clone()).or_default().remove(triple);
        }
        8 => {
            let reach = Reach::Exact(scope.clone());
            stores.scopes(scope).delete(&reach, &context).await.unwrap().finish().await.unwrap();
            model.0.remove(scope);
        }
        _ => {
            let reach = Reach::Below(scope.clone());
            stores.scopes(scope).delete(&reach, &context).await.unwrap().finish().await.unwrap();
            model.0.retain(|other, _| !scope.covers(other));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_scope_sees_or_removes_what_is_anothers(
        pool in proptest::collection::vec(scopes(), 2..6),
        triples in proptest::collection::vec((names(), names(), names()), 2..5),
        steps in proptest::collection::vec((any::<usize>(), any::<usize>(), 0_u8..10), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let stores = Stores::for_tests(Arc::new(Memory::default()));
            let mut model = Model::default();
            for (scope, triple, operation) in steps {
                let (scope, triple) = (&pool[scope % pool.len()], &triples[triple % triples.len()]);
                step(&stores, &mut model, scope, triple, operation).await;
            }
            for scope in &pool {
                let expected = model.of(scope);
                for (first, second, third) in &triples {
                    let listed = stores.approvals(scope).list(first, None, 100).await.unwrap().items;
                    let met: BTreeSet<_> =
                        listed.into_iter().map(|it| (it.identity, it.resource, it.action)).collect();
                    let of_first: BTreeSet<_> = expected.iter().filter(|it| it.0 == *first).cloned().collect();
                    assert_eq!(met, of_first);
                    let reverse = stores.relationships(scope).list_reverse(third, None, None, 100).await.unwrap();
                    let met: BTreeSet<_> = reverse.items.into_iter()
                        .map(|it| (it.edge.subject, it.edge.relation, it.edge.object)).collect();
                    let of_third: BTreeSet<_> = expected.iter().filter(|it| it.2 == *third).cloned().collect();
                    assert_eq!(met, of_third);
                    let bucket = stores.attributes(scope).bucket(first.as_str(), second.as_str()).unwrap();
                    let page = bucket.list(None, 100).await.unwrap().items;
                    assert!(page.iter().all(|attribute| attribute.data == json!(scope.to_string())));
                    let of_bucket = expected.iter().filter(|it| it.0 == *first && it.1 == *second).count();
                    assert_eq!(page.len(), of_bucket);
                }
            }
        });
    }
}

/// The source document allows 10 to 50 bytes for each key. The benchmark measures the shares of a lookup and of the disk
/// (`approvals-scope-lookup`, `approvals-scope-bytes`).
#[test]
fn a_scope_adds_a_few_bytes_to_a_key() {
    let length = |scope: &Scope| {
        let sort = ["https://api.example.com/data".into(), "GET".into()];
        Key::new(Kind::Approval, scope, &["alice@acme.com".into()], &sort).unwrap().as_bytes().len()
    };
    let tenant = length(&Scope::tenant("acme-corp").unwrap()) - length(&Scope::Global);
    let both = length(&Scope::tenant_env("acme-corp", "prod").unwrap()) - length(&Scope::Global);
    assert!((9..=20).contains(&tenant) && (13..=30).contains(&both), "{tenant} and {both} bytes");
}
