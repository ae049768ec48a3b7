//! Garbage, and tokens of another kind, scope or key: unknown to every operation, and nothing is changed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, OnceLock};

use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::{
    Admin, BackendExt, Key, Keyring, Kind, ManualClock, Memory, Prefix, Record, Scope, Secret, SeededRng,
    Stores, Timestamp,
};
use proptest::prelude::*;

const AUDIENCE: &str = "as";
const URI: &str = "https://app.example/cb";

/// A store with one good secret of each kind in it.
struct World {
    backend: Arc<dyn Admin>,
    stores: Stores,
    scope: Scope,
    code: String,
    refresh: String,
    access: String,
    nonce: String,
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).unwrap()
}

fn stores(backend: &Arc<dyn Admin>, seed: u64) -> Stores {
    let keyring = Keyring::generate(&SeededRng::new(seed), now());
    let stores =
        Stores::builder_for_tests(Arc::clone(backend)).clock(ManualClock::at(now())).keyring(keyring);
    stores.rng(SeededRng::new(seed + 1_000)).build()
}

async fn fill(stores: &Stores, scope: &Scope) -> [String; 4] {
    let code = CodeRequest::new("app", "ada", URI);
    let code = stores.codes(scope).issue(code).await.unwrap().code;
    let grant = stores.grants(scope).issue(GrantRequest::new("ada", "app")).await.unwrap();
    let access = stores.access_tokens(scope).issue(AccessRequest::under(grant.grant_id)).await.unwrap();
    let IssueOutcome::Issued(access) = access else { panic!("{access:?}") };
    let nonce = stores.nonces(scope).issue(NonceRequest::new(AUDIENCE)).await.unwrap().nonce;
    [code, grant.refresh_token, access.access_token, nonce].map(|secret| secret.expose().to_owned())
}

async fn world() -> World {
    let backend: Arc<dyn Admin> = Arc::new(Memory::default());
    let stores = stores(&backend, 1);
    let scope = Scope::tenant("acme").unwrap();
    let [code, refresh, access, nonce] = fill(&stores, &scope).await;
    World { backend, stores, scope, code, refresh, access, nonce }
}

/// Every good secret of another scope, and of another keyring in this one.
async fn foreign(world: &World) -> Vec<String> {
    let elsewhere = fill(&world.stores, &Scope::tenant_env("acme", "prod").unwrap()).await;
    let other_store: Arc<dyn Admin> = Arc::new(Memory::default());
    let other_key = fill(&stores(&other_store, 2), &world.scope).await;
    [elsewhere, other_key].concat()
}

async fn contents(backend: &dyn Admin) -> Vec<(Key, Record)> {
    let mut all = Vec::new();
    for &kind in Kind::ALL {
        all.extend(backend.scan_all(&Prefix::kind_wide(kind), Timestamp::ZERO).await.unwrap());
    }
    all
}

async fn assert_unknown(world: &World, text: &str) {
    let World { stores, scope, .. } = world;
    let before = contents(world.backend.as_ref()).await;
    let secret = Secret::new(text);
    if text != world.nonce {
        let (nonces, nonce) = (stores.nonces(scope), NonceCheck::new(AUDIENCE, secret.clone()));
        assert_eq!(nonces.check(&nonce).await.unwrap(), NonceOutcome::Unknown, "{text}");
        assert_eq!(nonces.accept(&nonce).await.unwrap(), NonceOutcome::Unknown, "{text}");
    }
    if text != world.code {
        for presented in [
            Redeem::new(secret.clone(), "app").redirect_uri(URI).with_grant(),
            Redeem::new(secret.clone(), "evil").redirect_uri(URI).keep_on_mismatch(),
        ] {
            let answer = stores.codes(scope).redeem(presented.clone()).await.unwrap();
            assert_eq!(answer, RedeemOutcome::Unknown, "{text}");
        }
    }
    if text != world.refresh {
        let grants = stores.grants(scope);
        assert_eq!(
            grants.rotate(Rotate::new(&secret, "app")).await.unwrap(),
            RotateOutcome::Unknown,
            "{text}"
        );
        assert!(grants.find(&secret).await.unwrap().is_none(), "{text}");
    }
    if text != world.access {
        let tokens = stores.access_tokens(scope);
        assert_eq!(tokens.introspect(&secret).await.unwrap(), IntrospectOutcome::Inactive, "{text}");
    }
    if text != world.access && text != world.refresh {
        assert_eq!(stores.grants(scope).revoke(&secret, None).await.unwrap(), 0, "{text}");
    }
    assert!(contents(world.backend.as_ref()).await == before, "something was changed by {text}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn shared() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| runtime().block_on(world()))
}

fn check(text: &str) {
    runtime().block_on(assert_unknown(shared(), text));
}

fn prefix() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["ebc_", "ebr_", "eba_", "ebn_", "ebk_", "EBC_", ""])
}

/// One of the good secrets.
fn good() -> impl Strategy<Value = String> {
    (0..4usize).prop_map(|index| {
        let World { code, refresh, access, nonce, .. } = shared();
        [code, refresh, access, nonce][index].clone()
    })
}

#[test]
fn tokens_of_another_kind_scope_or_key_are_unknown() {
    runtime().block_on(async {
        let world = world().await;
        for text in foreign(&world).await {
            assert_unknown(&world, &text).await;
        }
        let World { code, refresh, access, nonce, .. } = &world;
        for good in [code, refresh, access, nonce] {
            assert_unknown(&world, good).await;
            for prefix in ["ebc_", "ebr_", "eba_", "ebn_"] {
                if !good.starts_with(prefix) {
                    assert_unknown(&world, &format!("{prefix}{}", &good[4..])).await;
                }
            }
        }
    });
}

#[test]
fn every_good_secret_is_still_good_after_all_that() {
    runtime().block_on(async {
        let world = world().await;
        let World { stores, scope, .. } = &world;
        assert!(matches!(
            stores.grants(scope).rotate(Rotate::new(Secret::new(&world.refresh), "app")).await.unwrap(),
            RotateOutcome::Rotated(_)
        ));
        let presented = Redeem::new(Secret::new(&world.code), "app").redirect_uri(URI);
        assert!(matches!(
            stores.codes(scope).redeem(presented.clone()).await.unwrap(),
            RedeemOutcome::Redeemed(_)
        ));
        let access = stores.access_tokens(scope).introspect(&Secret::new(&world.access)).await.unwrap();
        assert!(matches!(access, IntrospectOutcome::Active(_)));
        let nonce = NonceCheck::new(AUDIENCE, world.nonce.clone());
        let nonce = stores.nonces(scope).accept(&nonce).await.unwrap();
        assert!(matches!(nonce, NonceOutcome::Accepted { .. }));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_unknown(prefix in prefix(), body in "[A-Za-z0-9_=+/-]{0,100}|\\PC{0,60}") {
        check(&format!("{prefix}{body}"));
    }

    #[test]
    fn random_bytes_in_the_right_form_are_unknown(
        prefix in prefix(),
        body in "[A-Za-z0-9_-]{43}|[A-Za-z0-9_-]{80}",
    ) {
        check(&format!("{prefix}{body}"));
    }

    #[test]
    fn a_good_secret_cut_short_or_drawn_out_is_unknown(
        good in good(),
        at in any::<prop::sample::Index>(),
        more in "[A-Za-z0-9=]{0,3}",
    ) {
        let cut = &good[..at.index(good.len())];
        check(cut);
        check(&good[good.len() - cut.len()..]);
        if !more.is_empty() {
            check(&format!("{good}{more}"));
        }
    }

    #[test]
    fn a_good_secret_with_a_changed_character_is_unknown(
        good in good(),
        at in any::<prop::sample::Index>(),
        with in prop::char::range('-', 'z'),
    ) {
        let at = at.index(good.len());
        let mut changed: Vec<char> = good.chars().collect();
        changed[at] = with;
        let changed = String::from_iter(changed);
        if changed != good {
            check(&changed);
        }
    }
}
