//! Properties of keys and scopes over random inputs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ebbtide::AdminExt as _;
use ebbtide::{
    Backend, BackendExt, Batch, Key, Kind, Memory, Part, Prefix, Reach, Record, Scope, SystemRng, Timestamp,
    Write,
};
use proptest::prelude::*;

/// Names with what separates and escapes in them, and what is not ASCII. Control characters are refused.
fn name() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        3 => prop::sample::select(vec!['a', 'b', ':', '/', '%', '.', ' ', '\u{FF}', 'é', '\u{10FFFF}', '2', 'F']),
        1 => any::<char>().prop_filter("no control characters", |c| !c.is_control()),
    ];
    prop::collection::vec(character, 1..8).prop_map(String::from_iter)
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        Just(Scope::Global),
        name().prop_map(|t| Scope::tenant(t).unwrap()),
        name().prop_map(|e| Scope::env(e).unwrap()),
        (name(), name()).prop_map(|(t, e)| Scope::tenant_env(t, e).unwrap()),
        prop::collection::vec(name(), 1..4).prop_map(|path| Scope::custom(path).unwrap()),
    ]
}

fn part() -> impl Strategy<Value = Part<'static>> {
    let byte = prop_oneof![Just(0u8), Just(0xFF), Just(1), any::<u8>()];
    prop_oneof![
        name().prop_map(|text| Part::Text(text.into())),
        prop::collection::vec(byte, 1..6).prop_map(|bytes| Part::Bytes(bytes.into())),
        prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(Part::Int),
    ]
}

type Parts = Vec<Part<'static>>;

fn tuple() -> impl Strategy<Value = (Scope, Parts, Parts)> {
    (scope(), prop::collection::vec(part(), 1..3), prop::collection::vec(part(), 0..3))
}

fn key((scope, partition, sort): &(Scope, Parts, Parts)) -> Key {
    Key::new(Kind::Probe, scope, partition, sort).unwrap()
}

/// A second tuple that shares much with the first, so that collisions would be met.
fn related() -> impl Strategy<Value = ((Scope, Parts, Parts), (Scope, Parts, Parts))> {
    (tuple(), tuple(), 0..4usize).prop_map(|(left, mut right, shared)| {
        if shared > 0 {
            right.0 = left.0.clone();
        }
        if shared > 1 {
            right.1 = left.1.clone();
        }
        if shared > 2 {
            right.2.splice(0..0, left.2.iter().cloned());
        }
        (left, right)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scopes_are_read_as_they_are_printed(scope in scope()) {
        prop_assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
    }

    #[test]
    fn two_scopes_never_print_alike(left in scope(), right in scope()) {
        prop_assert_eq!(left.to_string() == right.to_string(), left == right);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(tenant|env|custom|global)?[:/%a-c0]{0,12}") {
        if let Ok(scope) = text.parse::<Scope>() {
            prop_assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
        }
    }

    #[test]
    fn keys_are_decoded_as_they_were_encoded(tuple in tuple()) {
        let key = key(&tuple);
        prop_assert_eq!(&Key::decode(Kind::Probe, key.as_bytes()).unwrap(), &key);
        prop_assert_eq!((key.scope(), key.partition(), key.sort()), tuple);
    }

    #[test]
    fn no_two_keys_have_one_encoding((left, right) in related()) {
        prop_assert_eq!(key(&left).as_bytes() == key(&right).as_bytes(), left == right);
    }

    #[test]
    fn within_a_scope_encodings_sort_as_the_tuples_do((left, mut right) in related()) {
        right.0 = left.0.clone();
        let by_tuple = (&left.1, &left.2).cmp(&(&right.1, &right.2));
        prop_assert_eq!(key(&left).as_bytes().cmp(key(&right).as_bytes()), by_tuple);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(
        prop_oneof![Just(0u8), Just(2), Just(3), Just(4), Just(0x10), Just(0x11), Just(0x13), Just(0xFF), any::<u8>()],
        0..24,
    )) {
        if let Ok(key) = Key::decode(Kind::Probe, &bytes) {
            prop_assert_eq!(key.as_bytes(), bytes.as_slice());
        }
    }

    #[test]
    fn a_partition_prefix_holds_its_own_keys_and_no_others((left, right) in related()) {
        let prefix = Prefix::partition(Kind::Probe, &left.0, &left.1, &left.2).unwrap();
        let inside = left.0 == right.0 && left.1 == right.1 && right.2.starts_with(&left.2);
        prop_assert_eq!(prefix.contains(&key(&right)), inside);
        prop_assert!(prefix.contains(&key(&left)));
    }

    #[test]
    fn a_reach_holds_what_its_scope_covers((left, right) in related()) {
        for reach in [Reach::Exact(left.0.clone()), Reach::Below(left.0.clone())] {
            let prefix = Prefix::reach(Kind::Probe, &reach).unwrap();
            prop_assert_eq!(prefix.contains(&key(&right)), reach.contains(&right.0));
        }
    }
}

/// A few names, so that scopes and keys meet often.
fn common_scope() -> impl Strategy<Value = Scope> {
    let name = || prop::sample::select(vec!["a", "a:env:b", "a/env:b", "b", "%2F", "a/b"]);
    prop_oneof![
        Just(Scope::Global),
        name().prop_map(|t| Scope::tenant(t).unwrap()),
        name().prop_map(|e| Scope::env(e).unwrap()),
        (name(), name()).prop_map(|(t, e)| Scope::tenant_env(t, e).unwrap()),
        prop::collection::vec(name(), 1..4).prop_map(|path| Scope::custom(path).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_never_return_another_scopes_record(
        operations in prop::collection::vec((common_scope(), 0..5usize), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (store, now) = (Memory::default(), Timestamp::ZERO);
            for (scope, operation) in operations {
                let key = Key::new(Kind::Probe, &scope, &["p".into()], &["s".into()]).unwrap();
                let record = Record::new(scope.to_string(), Timestamp::NEVER, &SystemRng);
                let mine = Prefix::reach(Kind::Probe, &Reach::Exact(scope.clone())).unwrap();
                let seen: Vec<Record> = match operation {
                    0 => {
                        let put = Batch::try_from(Write::Put { key, record }).unwrap();
                        assert!(store.commit(put, now).await.unwrap().is_applied());
                        Vec::new()
                    }
                    1 => store.get(&key, now).await.unwrap().into_iter().collect(),
                    2 => store.take(&key, now).await.unwrap().into_iter().collect(),
                    3 => store.scan_all(&mine, now).await.unwrap().into_iter().map(|(_, record)| record).collect(),
                    _ => {
                        let expected = store.get(&key, now).await.unwrap();
                        assert_eq!(store.erase_all(&mine, now).await.unwrap(), expected.iter().len() as u64);
                        expected.into_iter().collect()
                    }
                };
                assert!(seen.iter().all(|record| record.value == scope.to_string()));
            }
        });
    }
}
