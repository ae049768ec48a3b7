//! Clients are changed, keep the secrets that were promised to them, and end if nobody uses them.

use std::time::Duration;

use serde_json::json;

use super::clients::{find, is_good, register};
use super::grants::{access_token, is_active};
use super::owned_records::context;
use super::rig::{StoreRig, secs};
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Timestamp;
use ebbtide::stores::access_tokens::AccessRequest;
use ebbtide::stores::clients::{
    Client, ClientRequest, ClientUpdate, RevokeReach, RotateSecretOutcome, UpdateOutcome,
};
use ebbtide::stores::codes::CodeRequest;
use ebbtide::stores::device_codes::DeviceRequest;
use ebbtide::stores::grants::{GrantRequest, GrantState, Revoke};
use ebbtide::stores::shared::payload::Payload;

const DAY: u64 = 24 * 3600;
const MONTH: i64 = 30 * 24 * 3600;

async fn rotate(rig: &StoreRig, client_id: &str, overlap: u64) -> RotateSecretOutcome {
    let clients = rig.stores.clients(&rig.scope);
    clients.rotate_secret(client_id, Duration::from_secs(overlap)).await.expect("rotate")
}

async fn update(rig: &StoreRig, client_id: &str, update: ClientUpdate) -> Option<Client> {
    match rig.stores.clients(&rig.scope).update(client_id, update).await.expect("update") {
        UpdateOutcome::Updated(client) => Some(*client),
        _ => None,
    }
}

pub(super) async fn a_promised_overlap_is_kept_whatever_follows(rig: StoreRig) {
    let registered = register(&rig, ClientRequest::confidential().client_id("app")).await;
    let first = registered.client_secret.expect("it keeps one");
    let mut secrets = vec![first.clone()];
    for _ in 0..5 {
        let RotateSecretOutcome::Rotated { client_secret, .. } = rotate(&rig, "app", 30 * DAY).await else {
            panic!("it keeps one")
        };
        secrets.push(client_secret);
        rig.pass(60);
    }
    let RotateSecretOutcome::Rotated { client_secret, .. } = rotate(&rig, "app", 60).await else { panic!() };
    for secret in secrets.iter().chain([&client_secret]) {
        assert!(is_good(&rig, "app", secret).await, "a shorter overlap cuts no promise short");
    }
    rig.pass(60);
    assert!(!is_good(&rig, "app", &secrets[5]).await, "its own overlap has ended");
    assert!(is_good(&rig, "app", &first).await);
    rig.pass(30 * DAY - 360);
    assert!(!is_good(&rig, "app", &first).await, "thirty days after its rotation");
    assert!(is_good(&rig, "app", &secrets[1]).await);
    let mut rotations = 0;
    while matches!(rotate(&rig, "app", 30 * DAY).await, RotateSecretOutcome::Rotated { .. }) {
        rotations += 1;
    }
    assert_eq!(rotate(&rig, "app", 1).await, RotateSecretOutcome::TooMany, "after {rotations} rotations");
    assert!(is_good(&rig, "app", &secrets[1]).await, "no secret is pushed out");
    assert!(matches!(rotate(&rig, "app", 0).await, RotateSecretOutcome::Rotated { .. }));
    assert!(!is_good(&rig, "app", &secrets[1]).await, "without an overlap the new one alone is good");
}

/// Test vector of the reference implementation: `password`, with 256 KiB and two passes.
const PHC: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

pub(super) async fn an_imported_hash_verifies_its_secret(rig: StoreRig) {
    let request = ClientRequest::confidential().client_id("app").client_secret_hash(PHC);
    let registered = register(&rig, request).await;
    assert!(registered.client_secret.is_none() && registered.client.confidential);
    assert!(is_good(&rig, "app", &Secret::new("password")).await);
    for wrong in ["passwor", "", PHC] {
        assert!(!is_good(&rig, "app", &Secret::new(wrong)).await);
    }
    let RotateSecretOutcome::Rotated { client_secret, .. } = rotate(&rig, "app", 100).await else { panic!() };
    assert!(is_good(&rig, "app", &Secret::new("password")).await, "for the overlap");
    rig.pass(100);
    assert!(!is_good(&rig, "app", &Secret::new("password")).await);
    assert!(is_good(&rig, "app", &client_secret).await);
    let clients = rig.stores.clients(&rig.scope);
    for bad in [
        ClientRequest::public().client_secret_hash(PHC),
        ClientRequest::confidential()
            .client_secret_hash("$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo"),
        ClientRequest::confidential().client_secret_hash("$2b$12$abc"),
    ] {
        let error = clients.register(bad).await.expect_err("not a hash for a client");
        assert!(error.message().contains("client_secret_hash"), "{error}");
    }
}

pub(super) async fn a_client_is_changed_and_the_change_is_audited(rig: StoreRig) {
    let request = ClientRequest::confidential()
        .client_id("app")
        .owner("ada")
        .name("An App")
        .redirect_uris(["https://app.example/cb"])
        .metadata(json!({"logo": 1}));
    let registered = register(&rig, request).await;
    let change = ClientUpdate::new().redirect_uris(["https://app.example/new"]).require_pkce(true);
    let changed = update(&rig, "app", change).await.expect("it is there");
    assert_eq!(changed.redirect_uris, ["https://app.example/new"]);
    assert!(changed.require_pkce);
    assert_eq!(changed.name.as_deref(), Some("An App"), "what is left out stays as it is");
    assert_eq!(changed.metadata.clone().map(Payload::into_inner), Some(json!({"logo": 1})));
    assert_eq!(find(&rig, "app").await, Some(changed));
    let secret = registered.client_secret.expect("it keeps one");
    assert!(is_good(&rig, "app", &secret).await, "its secret stays");
    let mut nameless = ClientUpdate::new().metadata(json!(null)).revoke(RevokeReach::Grant);
    nameless.name = Some(None);
    let changed = update(&rig, "app", nameless).await.expect("it is there");
    assert_eq!((changed.name, changed.revoke), (None, RevokeReach::Grant));
    assert_eq!(changed.metadata.map(Payload::into_inner), Some(json!(null)));
    assert_eq!(update(&rig, "nobody", ClientUpdate::new()).await, None);
    let code = CodeRequest::new("app", "bob", "https://app.example/new");
    let error = rig.stores.codes(&rig.scope).issue(code).await.expect_err("it requires PKCE now");
    assert!(error.message().contains("code_challenge"), "{error}");
    let entries = rig.stores.audit(&rig.scope).list(None, 100).await.expect("list").items;
    let changes = entries.iter().filter(|entry| entry.reason == "a client was changed");
    assert_eq!(changes.count(), 2);
}

async fn end(rig: &StoreRig, client_id: &str) -> Option<Timestamp> {
    find(rig, client_id).await.map(|client| client.expires_at)
}

pub(super) async fn a_client_that_nobody_uses_ends(rig: StoreRig) {
    let unused = |id: &str| ClientRequest::public().client_id(id).owner("ada").unused_ttl(secs(3_600));
    let registered = register(&rig, unused("idle")).await;
    assert!(!registered.client.used);
    let own = register(&rig, ClientRequest::confidential().client_id("own").unused_ttl(secs(3_600))).await;
    let secret = own.client_secret.expect("it keeps one");
    for id in ["code", "device", "grant", "token", "wrong"] {
        register(&rig, unused(id).ttl(secs(MONTH))).await;
    }
    let begin = registered.client.created_at.as_millis();
    let (stores, scope) = (&rig.stores, &rig.scope);
    // A process that has met the name before it was registered does not miss the first use.
    let _ = stores.grants(scope).issue(GrantRequest::new("bob", "early")).await.expect("issue");
    stores.settle().await;
    register(&rig, unused("early")).await;
    let _ = stores.grants(scope).issue(GrantRequest::new("bob", "grant")).await.expect("issue");
    let _ = stores.grants(scope).issue(GrantRequest::new("bob", "early")).await.expect("issue");
    let code = CodeRequest::new("code", "bob", "https://app.example/cb");
    let _ = stores.codes(scope).issue(code).await.expect("issue");
    let _ = stores.device_codes(scope).start(DeviceRequest::new("device")).await.expect("start");
    let _ = stores.access_tokens(scope).issue(AccessRequest::alone("bob", "token")).await.expect("issue");
    assert!(is_good(&rig, "own", &secret).await);
    assert!(!is_good(&rig, "wrong", &secret).await, "a wrong secret is no use");
    stores.settle().await;
    let month = Timestamp::from_millis(begin + 30 * DAY * 1_000).expect("a time of this century");
    for id in ["code", "device", "grant", "token"] {
        assert_eq!(end(&rig, id).await, Some(month), "{id}: the lifetime that was asked for");
    }
    for id in ["own", "early"] {
        let client = find(&rig, id).await.expect("it is there");
        assert!(client.used && client.expires_at.is_never());
    }
    rig.go_to(registered.client.expires_at, 1);
    assert!(find(&rig, "idle").await.is_some_and(|client| !client.used));
    rig.go_to(registered.client.expires_at, 0);
    rig.sweep().await;
    let listed = stores.clients(scope).list("ada", None, 100).await.expect("list").items;
    let mut ids: Vec<_> = listed.into_iter().map(|client| client.client_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["code", "device", "early", "grant", "token"], "the index lives as long as the client");
    for id in ["idle", "wrong"] {
        assert_eq!(end(&rig, id).await, None, "{id}");
    }
    let short = ClientRequest::public().unused_ttl(secs(59));
    assert!(stores.clients(scope).register(short).await.is_err());
}

pub(super) async fn an_access_token_takes_its_grant_along_where_that_is_asked_for(rig: StoreRig) {
    let grants = rig.stores.grants(&rig.scope);
    register(&rig, ClientRequest::public().client_id("all").revoke(RevokeReach::Grant)).await;
    for (client_id, reach, ends) in [
        ("app", None, false),
        ("app", Some(RevokeReach::Grant), true),
        ("all", None, true),
        ("all", Some(RevokeReach::Token), false),
    ] {
        let grant = grants.issue(GrantRequest::new("ada", client_id)).await.expect("issue");
        let token = access_token(&rig, grant.grant_id).await;
        let other = access_token(&rig, grant.grant_id).await;
        let evil = Revoke::Token { token: &token, client_id: Some("evil"), reach };
        assert_eq!(grants.revoke(evil, Some(&context())).await.expect("revoke"), 0);
        assert!(is_active(&rig, &token).await, "another client's token is left as it is");
        let what = Revoke::Token { token: &token, client_id: Some(client_id), reach };
        assert_eq!(grants.revoke(what, Some(&context())).await.expect("revoke"), 1);
        assert!(!is_active(&rig, &token).await);
        assert_eq!(is_active(&rig, &other).await, !ends, "{client_id} {reach:?}");
        let state = grants.get(grant.grant_id).await.expect("get").expect("it is there").state;
        assert_eq!(state != GrantState::Active, ends, "{client_id} {reach:?}");
    }
}
