//! Clients are verified by secrets that are not stored, and are deleted with everything they were given.

use std::time::Duration;

use serde_json::json;

use super::grants::{access_token, is_active};
use super::owned_records::context;
use super::rig::{StoreRig, secs};
use ebbtide::model::kind::Kind;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Timestamp;
use ebbtide::stores::access_tokens::{AccessRequest, IssueOutcome};
use ebbtide::stores::clients::{
    Client, ClientRequest, RegisterOutcome, RegisteredClient, RotateSecretOutcome, VerifyOutcome,
};
use ebbtide::stores::grants::{GrantRequest, IssuedGrant, Rotate, RotateOutcome};
use ebbtide::stores::owners::Removed;
use ebbtide::stores::shared::payload::Payload;

pub(super) async fn register(rig: &StoreRig, request: ClientRequest) -> RegisteredClient {
    match rig.stores.clients(&rig.scope).register(request).await.expect("register") {
        RegisterOutcome::Registered(client) => *client,
        _ => panic!("the id is free"),
    }
}

async fn verify(rig: &StoreRig, client_id: &str, secret: &Secret) -> VerifyOutcome {
    rig.stores.clients(&rig.scope).verify(client_id, secret).await.expect("verify")
}

pub(super) async fn is_good(rig: &StoreRig, client_id: &str, secret: &Secret) -> bool {
    matches!(verify(rig, client_id, secret).await, VerifyOutcome::Verified(_))
}

pub(super) async fn find(rig: &StoreRig, client_id: &str) -> Option<Client> {
    rig.stores.clients(&rig.scope).find(client_id).await.expect("find")
}

async fn rotate(rig: &StoreRig, client_id: &str, overlap: u64) -> (Secret, Timestamp) {
    let overlap = Duration::from_secs(overlap);
    match rig.stores.clients(&rig.scope).rotate_secret(client_id, overlap).await.expect("rotate") {
        RotateSecretOutcome::Rotated { client_secret, old_until } => (client_secret, old_until),
        other => panic!("the client should have a secret, but: {other:?}"),
    }
}

async fn delete(rig: &StoreRig, client_id: &str) -> Option<Removed> {
    let deletion = rig.stores.clients(&rig.scope).delete(client_id, &context()).await.expect("delete");
    match deletion {
        Some(deletion) => Some(deletion.finish().await.expect("finish")),
        None => None,
    }
}

fn secret(registered: &RegisteredClient) -> Secret {
    registered.client_secret.clone().expect("it keeps one")
}

pub(super) async fn a_client_is_registered_found_and_verified(rig: StoreRig) {
    let request = ClientRequest::confidential()
        .owner("ada")
        .name("An App")
        .redirect_uris(["https://app.example/cb"])
        .metadata(json!({"logo_uri": "https://app.example/logo"}));
    let registered = register(&rig, request).await;
    let (client, secret) = (&registered.client, secret(&registered));
    assert_eq!((client.owner.as_deref(), client.name.as_deref()), (Some("ada"), Some("An App")));
    assert_eq!(client.redirect_uris, ["https://app.example/cb"]);
    let metadata = client.metadata.clone().map(Payload::into_inner);
    assert_eq!(metadata, Some(json!({"logo_uri": "https://app.example/logo"})));
    assert!(client.confidential && client.expires_at.is_never());
    assert_eq!(find(&rig, &client.client_id).await.as_ref(), Some(client));
    let verified = verify(&rig, &client.client_id, &secret).await;
    assert_eq!(verified, VerifyOutcome::Verified(Box::new(client.clone())));
    let other = register(&rig, ClientRequest::confidential()).await;
    for wrong in [self::secret(&other), Secret::new(""), Secret::new("ebp_x")] {
        assert_eq!(verify(&rig, &client.client_id, &wrong).await, VerifyOutcome::Mismatch);
    }
    assert_eq!(verify(&rig, "nobody", &secret).await, VerifyOutcome::Unknown);
    let stored = rig.contents().await;
    let text = secret.expose().as_bytes();
    for (_, record) in &stored {
        assert!(!record.value.windows(text.len()).any(|window| window == text), "the secret is not kept");
        assert!(
            !record.value.windows(6).any(|window| window == b"An App"),
            "the client's metadata is sealed"
        );
    }
}

pub(super) async fn an_id_is_taken_once(rig: StoreRig) {
    let request = || ClientRequest::confidential().client_id("app");
    let first = register(&rig, request().owner("ada")).await;
    let again = rig.stores.clients(&rig.scope).register(request().owner("eve")).await.expect("register");
    assert_eq!(again, RegisterOutcome::Taken);
    assert!(is_good(&rig, "app", &secret(&first)).await);
    let eves = rig.stores.clients(&rig.scope).list("eve", None, 10).await.expect("list");
    assert!(eves.items.is_empty(), "and no index was written");
}

pub(super) async fn one_of_many_registrations_wins(rig: StoreRig) {
    let answers = rig.together(16, |rig, index| async move {
        let request = ClientRequest::public().client_id("app").owner(format!("{index}"));
        rig.stores.clients(&rig.scope).register(request).await.expect("register")
    });
    let answers = answers.await;
    assert_eq!(answers.iter().filter(|answer| **answer == RegisterOutcome::Taken).count(), 15);
    let contents = rig.contents().await;
    let count = |wanted: Kind| contents.iter().filter(|(key, _)| key.kind() == wanted).count();
    assert_eq!((count(Kind::Client), count(Kind::ClientIndex)), (1, 1));
    assert_eq!(count(Kind::Audit), 2, "one entry, with the head of its chain");
}

pub(super) async fn a_public_client_has_no_secret(rig: StoreRig) {
    let registered = register(&rig, ClientRequest::public().client_id("page")).await;
    assert_eq!((registered.client_secret, registered.client.confidential), (None, false));
    let some = secret(&register(&rig, ClientRequest::confidential()).await);
    assert_eq!(verify(&rig, "page", &some).await, VerifyOutcome::Mismatch);
    let clients = rig.stores.clients(&rig.scope);
    let answer = clients.rotate_secret("page", Duration::ZERO).await.expect("rotate");
    assert_eq!(answer, RotateSecretOutcome::Public);
}

pub(super) async fn a_secret_is_rotated_with_an_overlap(rig: StoreRig) {
    let first = secret(&register(&rig, ClientRequest::confidential().client_id("app")).await);
    let (second, old_until) = rotate(&rig, "app", 100).await;
    assert!(is_good(&rig, "app", &first).await && is_good(&rig, "app", &second).await);
    rig.go_to(old_until, 1);
    assert!(is_good(&rig, "app", &first).await);
    rig.go_to(old_until, 0);
    assert!(!is_good(&rig, "app", &first).await, "at the instant");
    assert!(is_good(&rig, "app", &second).await);
    let (third, _) = rotate(&rig, "app", 100).await;
    let (fourth, _) = rotate(&rig, "app", 0).await;
    for (secret, good) in [(&second, false), (&third, false), (&fourth, true)] {
        assert_eq!(is_good(&rig, "app", secret).await, good, "without an overlap the new one alone is good");
    }
    let clients = rig.stores.clients(&rig.scope);
    assert!(clients.rotate_secret("app", Duration::from_secs(31 * 24 * 3600)).await.is_err());
    let answer = clients.rotate_secret("nobody", Duration::ZERO).await.expect("rotate");
    assert_eq!(answer, RotateSecretOutcome::Unknown);
}

pub(super) async fn rotations_at_once_leave_the_newest_good(rig: StoreRig) {
    let first = secret(&register(&rig, ClientRequest::confidential().client_id("app")).await);
    let rotated = rig.together(16, |rig, _| async move { rotate(&rig, "app", 0).await.0 });
    let mut good = 0;
    for secret in rotated.await {
        good += u32::from(is_good(&rig, "app", &secret).await);
    }
    assert_eq!(good, 1);
    assert!(!is_good(&rig, "app", &first).await);
}

pub(super) async fn an_owners_clients_are_listed(rig: StoreRig) {
    for index in 0..5 {
        register(&rig, ClientRequest::public().client_id(format!("ada-{index}")).owner("ada")).await;
    }
    register(&rig, ClientRequest::public().client_id("bob-0").owner("bob")).await;
    let clients = rig.stores.clients(&rig.scope);
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = clients.list("ada", after.as_ref(), 2).await.expect("list");
        ids.extend(page.items.into_iter().map(|client| client.client_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ids.sort_unstable();
    assert_eq!(ids, ["ada-0", "ada-1", "ada-2", "ada-3", "ada-4"]);
}

pub(super) async fn a_client_ends_at_the_instant(rig: StoreRig) {
    let request = || ClientRequest::confidential().client_id("app").owner("ada").ttl(secs(100));
    let registered = register(&rig, request()).await;
    rig.go_to(registered.client.expires_at, 1);
    assert!(is_good(&rig, "app", &secret(&registered)).await);
    rig.go_to(registered.client.expires_at, 0);
    assert_eq!(verify(&rig, "app", &secret(&registered)).await, VerifyOutcome::Unknown);
    assert_eq!(find(&rig, "app").await, None);
    let clients = rig.stores.clients(&rig.scope);
    assert!(clients.list("ada", None, 10).await.expect("list").items.is_empty());
    let anew = register(&rig, request()).await;
    assert!(is_good(&rig, "app", &secret(&anew)).await);
    assert!(!is_good(&rig, "app", &secret(&registered)).await);
}

async fn issue(rig: &StoreRig, client_id: &str) -> IssuedGrant {
    rig.stores.grants(&rig.scope).issue(GrantRequest::new("bob", client_id)).await.expect("issue")
}

async fn rotation(rig: &StoreRig, grant: &IssuedGrant, client_id: &str) -> RotateOutcome {
    rig.stores.grants(&rig.scope).rotate(Rotate::new(&grant.refresh_token, client_id)).await.expect("rotate")
}

async fn alone(rig: &StoreRig, client_id: &str) -> Secret {
    let request = AccessRequest::alone("bob", client_id);
    match rig.stores.access_tokens(&rig.scope).issue(request).await.expect("issue") {
        IssueOutcome::Issued(issued) => issued.access_token,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_deleted_client_takes_its_grants_and_tokens_along(rig: StoreRig) {
    let registered = register(&rig, ClientRequest::confidential().client_id("app").owner("ada")).await;
    let (grant, other) = (issue(&rig, "app").await, issue(&rig, "other").await);
    let tokens = [access_token(&rig, grant.grant_id).await, alone(&rig, "app").await];
    let others = alone(&rig, "other").await;
    let attached = Payload::new(json!("google's"));
    let put = rig.stores.provider_tokens(&rig.scope).put(grant.grant_id, "google", &attached, None).await;
    let _ = put.expect("put");
    let removed = delete(&rig, "app").await.expect("the record exists");
    assert_eq!(removed.revoked, 2, "a grant, and a token without one");
    let kinds: Vec<_> = removed.records.iter().map(|(kind, count)| (kind.name(), *count)).collect();
    assert_eq!(kinds, [("grants", 1), ("access_tokens", 1), ("provider_tokens", 1), ("clients", 1)]);
    assert_eq!(verify(&rig, "app", &secret(&registered)).await, VerifyOutcome::Unknown);
    assert_eq!(rotation(&rig, &grant, "app").await, RotateOutcome::Expired);
    for token in &tokens {
        assert!(!is_active(&rig, token).await);
    }
    assert!(is_active(&rig, &others).await, "another client's");
    assert!(matches!(rotation(&rig, &other, "other").await, RotateOutcome::Rotated(_)));
    let left = rig.contents().await;
    let count = |wanted: Kind| left.iter().filter(|(key, _)| key.kind() == wanted).count();
    assert_eq!((count(Kind::Client), count(Kind::ClientIndex), count(Kind::ProviderToken)), (0, 0, 0));
    // Entries of another client's, and the entry of the token under the removed grant: it ends with the token.
    assert_eq!((count(Kind::Grant), count(Kind::GrantIndex)), (1, 5));
    let log = rig.stores.audit(&rig.scope).list(None, 10).await.expect("list").items;
    assert_eq!(log.len(), 3, "registered, begun and ended: {log:?}");
    assert_eq!(delete(&rig, "app").await, None, "it is gone");
    register(&rig, ClientRequest::public().client_id("app")).await;
    assert_eq!(
        rotation(&rig, &grant, "app").await,
        RotateOutcome::Expired,
        "the new client gets nothing of its predecessor"
    );
}

pub(super) async fn deleting_against_issuing_leaves_nothing_alive(rig: StoreRig) {
    for round in 0..4 {
        let client_id = format!("app-{round}");
        register(&rig, ClientRequest::public().client_id(&client_id)).await;
        let grants = rig.together(16, |rig, index| {
            let client_id = client_id.clone();
            async move {
                if index == 7 {
                    // All but the last step, which frees the name again.
                    let deletion = rig.stores.clients(&rig.scope).delete(&client_id, &context()).await;
                    let mut deletion = deletion.expect("delete").expect("the record exists");
                    assert!(deletion.step().await.expect("grants") && deletion.step().await.expect("tokens"));
                    return None;
                }
                let request = GrantRequest::new("bob", client_id);
                // A request behind the tombstone is refused.
                rig.stores.grants(&rig.scope).issue(request).await.ok()
            }
        });
        for grant in grants.await.into_iter().flatten() {
            assert_eq!(rotation(&rig, &grant, &client_id).await, RotateOutcome::Expired);
        }
        let left = rig.contents().await;
        let grants = left.iter().filter(|(key, _)| matches!(key.kind(), Kind::Grant | Kind::GrantIndex));
        assert_eq!(grants.count(), 0);
        assert_eq!(delete(&rig, &client_id).await.expect("the deletion resumes").revoked, 0);
    }
}

pub(super) async fn a_client_that_is_not_there_is_not_deleted(rig: StoreRig) {
    let grant = issue(&rig, "unregistered").await;
    assert_eq!(delete(&rig, "unregistered").await, None);
    assert!(matches!(rotation(&rig, &grant, "unregistered").await, RotateOutcome::Rotated(_)));
}

pub(super) async fn clients_of_another_scope_are_unknown(rig: StoreRig) {
    let registered = register(&rig, ClientRequest::confidential().client_id("app").owner("ada")).await;
    let other = rig.elsewhere();
    assert_eq!(find(&other, "app").await, None);
    assert_eq!(delete(&other, "app").await, None);
    let theirs = register(&other, ClientRequest::confidential().client_id("app").owner("ada")).await;
    delete(&other, "app").await.expect("theirs is there");
    assert!(!is_good(&other, "app", &secret(&theirs)).await);
    assert!(is_good(&rig, "app", &secret(&registered)).await);
}
