//! Scopes do not leak.

use super::Rig;
use ebbtide::AdminExt as _;
use ebbtide::model::key::{Key, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::write::Write;

const T: &str = "ebbtide-verify";

fn scopes() -> Vec<Scope> {
    let escaped = format!("{T}%3Aenv%3A{T}");
    let texts = [
        format!("tenant:{T}"),
        format!("tenant:{T}2"),
        format!("env:{T}"),
        format!("tenant:{T}/env:{T}"),
        format!("tenant:{T}/env:{T}2"),
        format!("tenant:{escaped}"),
        format!("tenant:{T}%2Fenv%3A{T}"),
        format!("custom:{T}"),
        format!("custom:{T}/{T}"),
        format!("custom:{T}/{T}/{T}"),
        format!("custom:{T}%2F{T}"),
        format!("custom:{T}{T}"),
    ];
    let parsed = texts.iter().map(|text| text.parse().expect("a good scope"));
    std::iter::once(Scope::Global).chain(parsed).collect()
}

fn key(scope: &Scope) -> Key {
    Key::new(Kind::Probe, scope, &["same".into()], &["name".into()]).expect("good names")
}

async fn store_in_all(rig: &Rig) {
    for scope in scopes() {
        rig.stored(&key(&scope), &scope.to_string(), 100).await;
    }
}

/// Scopes that still hold their record.
async fn holding(rig: &Rig) -> Vec<Scope> {
    let mut holding = Vec::new();
    for scope in scopes() {
        if let Some(record) = rig.get(&key(&scope), 0).await {
            assert_eq!(record.value, scope.to_string(), "a record of another scope was returned");
            holding.push(scope);
        }
    }
    holding
}

pub(super) async fn every_operation_is_exact_in_scope(rig: Rig) {
    let all = scopes();
    for scope in &all {
        store_in_all(&rig).await;
        let others: Vec<_> = all.iter().filter(|other| *other != scope).cloned().collect();
        let partition = Prefix::partition(Kind::Probe, scope, &["same".into()], &[]).expect("good names");
        let listed = rig.scan(&partition, 0).await;
        assert_eq!(listed.len(), 1, "a listing is exact in its scope");
        assert_eq!(listed[0].0.scope(), *scope);
        assert_eq!(rig.take(&key(scope), 0).await.expect("there").value, scope.to_string());
        assert_eq!(holding(&rig).await, others, "a take is exact in its scope");
        let insert = Write::Insert { key: key(scope), record: rig.record(&scope.to_string(), 100) };
        assert!(rig.applied(insert, 0).await, "an insert meets no other scope's record");
        assert!(rig.applied(Write::Delete { key: key(scope) }, 0).await);
        assert_eq!(holding(&rig).await, others, "a delete is exact in its scope");
    }
}

pub(super) async fn below_is_what_a_scope_covers(rig: Rig) {
    store_in_all(&rig).await;
    for scope in scopes() {
        for reach in [Reach::Exact(scope.clone()), Reach::Below(scope.clone())] {
            let prefix = Prefix::reach(Kind::Probe, &reach).expect("a good scope");
            let listed = rig.scan(&prefix, 0).await;
            let mut reached: Vec<_> = listed.iter().map(|(key, _)| key.scope()).collect();
            reached.sort();
            let mut expected: Vec<_> = scopes().into_iter().filter(|other| reach.contains(other)).collect();
            expected.sort();
            assert_eq!(reached, expected, "{reach:?}");
        }
    }
}

pub(super) async fn a_count_is_of_what_is_live_under_its_prefixes(rig: Rig) {
    store_in_all(&rig).await;
    for number in 0..90u64 {
        // Every third record has expired.
        let expires = if number % 3 == 0 { 10 } else { 100 };
        let key = rig.sorted_key("p", &[number.into()]);
        rig.stored(&key, "v", expires).await;
    }
    let reach = Reach::Below(Scope::Global);
    let prefixes = Kind::PROBES.iter().map(|&kind| Prefix::reach(kind, &reach).expect("a good scope"));
    let prefixes: Vec<_> = prefixes.collect();
    let (mut live, mut after) = (0, None);
    loop {
        let step = rig.backend.count(&prefixes, after.as_ref(), rig.at(10)).await.expect("count");
        live += step.live.values().sum::<u64>();
        assert!(step.done.0 <= step.done.1, "so many parts of so many");
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(live, 60 + scopes().len() as u64);
    let none = rig.backend.count(&[], None, rig.at(10)).await.expect("count");
    assert!(none.live.is_empty() && none.next.is_none());
}

pub(super) async fn kinds_are_listed_and_cleared_together(rig: Rig) {
    let keys = |scope: &Scope| {
        let of = |&kind: &Kind| Key::new(kind, scope, &["same".into()], &["name".into()]);
        Kind::PROBES.iter().map(of).collect::<Result<Vec<_>, _>>().expect("good names")
    };
    for reach in [Reach::Exact(Scope::tenant(T).expect("a good name")), Reach::Below(Scope::Global)] {
        for key in scopes().iter().flat_map(keys) {
            rig.stored(&key, "v", 100).await;
        }
        let prefixes = Kind::PROBES.iter().map(|&kind| Prefix::reach(kind, &reach).expect("a good scope"));
        let prefixes: Vec<_> = prefixes.collect();
        let mut expected: Vec<_> =
            scopes().iter().filter(|scope| reach.contains(scope)).flat_map(keys).collect();
        expected.sort();
        for limit in [1, 5, 100] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = rig.backend.list(&prefixes, after.as_ref(), limit, rig.at(0)).await.expect("list");
                assert!(page.items.len() <= limit, "a page has no more than was asked for");
                listed.extend(page.items.into_iter().map(|(key, _)| key));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            listed.sort();
            assert_eq!(listed, expected, "{reach:?} in pages of {limit}");
        }
        let (mut removed, mut after) = (0, None);
        loop {
            let step = rig.backend.clear(&prefixes, after.as_ref(), rig.at(0)).await.expect("clear");
            assert!(step.done.0 <= step.done.1, "so many parts of so many");
            removed += step.removed.values().sum::<u64>();
            after = step.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(removed, expected.len() as u64, "{reach:?}");
        for scope in scopes() {
            for key in keys(&scope) {
                assert_eq!(rig.get(&key, 0).await.is_some(), !reach.contains(&scope), "{scope}");
            }
        }
    }
    let none = rig.backend.list(&[], None, 1, rig.at(0)).await.expect("list");
    assert!(none.items.is_empty() && none.next.is_none());
    assert_eq!(rig.backend.clear(&[], None, rig.at(0)).await.expect("clear").next, None);
}

pub(super) async fn a_joined_name_is_not_another_scope(rig: Rig) {
    let joined = Scope::tenant(format!("{T}:env:{T}")).expect("a good name");
    let nested = Scope::tenant_env(T, T).expect("good names");
    let record = rig.stored(&key(&nested), "nested", 100).await;
    assert_eq!(rig.get(&key(&joined), 0).await, None);
    assert!(rig.applied(Write::Delete { key: key(&joined) }, 0).await);
    assert_eq!(rig.get(&key(&nested), 0).await, Some(record));
}

pub(super) async fn erasing_a_scope_leaves_the_others(rig: Rig) {
    let all = scopes();
    for reach in all.iter().cloned().flat_map(|scope| [Reach::Exact(scope.clone()), Reach::Below(scope)]) {
        store_in_all(&rig).await;
        let kept: Vec<_> = all.iter().filter(|scope| !reach.contains(scope)).cloned().collect();
        let prefix = Prefix::reach(Kind::Probe, &reach).expect("a good scope");
        let removed = rig.backend.erase_all(&prefix, rig.at(0)).await.expect("erase");
        assert_eq!(removed, (all.len() - kept.len()) as u64, "{reach:?}");
        assert_eq!(holding(&rig).await, kept, "{reach:?}");
        assert_eq!(rig.backend.erase_all(&prefix, rig.at(0)).await.expect("erase"), 0);
    }
    // Erased records can be written again, and are not erased later.
    store_in_all(&rig).await;
    rig.sweep(1).await;
    assert_eq!(holding(&rig).await, all);
}
