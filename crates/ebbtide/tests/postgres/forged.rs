//! What someone with SQL makes of a store: nothing that is honoured.

use std::sync::Arc;

use ebbtide::stores::approvals::Approval;
use ebbtide::stores::grants::GrantRequest;
use ebbtide::{Ebbtide, ErrorKind, Keyring, SystemRng, Timestamp};

use crate::service::{cases, migrated, open_at, sql};

cases! {
    someone_with_sql_makes_nothing_that_is_honoured
    a_strangers_keyring_is_refused
}

fn ring() -> Keyring {
    Keyring::generate(&SystemRng, Timestamp::ZERO)
}

async fn open(url: &str, keyring: &Keyring) -> ebbtide::Result<Ebbtide> {
    Ebbtide::builder(url).keyring(keyring.clone()).open().await
}

async fn someone_with_sql_makes_nothing_that_is_honoured() {
    let (url, keyring) = (migrated().await, ring());
    let db = open(&url, &keyring).await.unwrap();
    let acme = db.scope("tenant:acme").unwrap();
    for identity in ["alice", "mallory"] {
        let approval =
            Approval::new(identity, identity, "GET", "admin").ttl(ebbtide::Ttl::from_secs(600).unwrap());
        acme.approvals().grant(&approval).await.unwrap();
    }
    let grant = acme.grants().issue(GrantRequest::new("app", "alice")).await.unwrap();
    assert!(acme.approvals().check("alice", "alice", "GET").await.unwrap());
    let schema = url.split("schema=").nth(1).unwrap().split('&').next().unwrap();
    let server = crate::service::server();
    let run = async |statement: &str| sql(&server, &statement.replace("{schema}", schema)).await;
    let corrupt =
        |error: ebbtide::Error, case: &str| assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");

    // A longer life.
    run("UPDATE {schema}.approvals SET expires_at = expires_at + 1000000000").await;
    corrupt(acme.approvals().check("alice", "alice", "GET").await.unwrap_err(), "a longer life");
    corrupt(acme.approvals().list("alice", None, 10).await.unwrap_err(), "a longer life, in a list");
    run("UPDATE {schema}.approvals SET expires_at = expires_at - 1000000000").await;
    assert!(acme.approvals().check("alice", "alice", "GET").await.unwrap(), "as it was");

    // Another value, of the same length.
    run("UPDATE {schema}.grants SET value = set_byte(value, length(value) / 2, (get_byte(value, length(value) / 2) + 1) % 256)").await;
    corrupt(acme.grants().find(&grant.refresh_token).await.unwrap_err(), "another value");
    run("UPDATE {schema}.grants SET value = set_byte(value, length(value) / 2, (get_byte(value, length(value) / 2) + 255) % 256)").await;
    assert!(acme.grants().find(&grant.refresh_token).await.unwrap().is_some(), "as it was");

    // Without the tag: the store is new, so every row has one.
    run("UPDATE {schema}.grants SET value = substring(value from 22)").await;
    corrupt(acme.grants().find(&grant.refresh_token).await.unwrap_err(), "without a tag");

    // The note that says so is removed: the store does not open.
    run("DELETE FROM {schema}.system").await;
    corrupt(open(&url, &keyring).await.unwrap_err(), "without the note of the keyring");
}

async fn a_strangers_keyring_is_refused() {
    let (url, keyring) = (migrated().await, ring());
    drop(open(&url, &keyring).await.unwrap());
    let error = open(&url, &ring()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains(&keyring.active().to_string()), "{error}");
    // An older ring of the same store has one of its keys.
    let mut newer = keyring.clone();
    let added = newer.add(&SystemRng, Timestamp::ZERO).unwrap();
    newer.activate(added).unwrap();
    drop(open(&url, &newer).await.unwrap());
    let engine: Arc<dyn ebbtide::Admin> = open_at(&url).await;
    let rings =
        ebbtide::ops::ring::Rings::new(engine.as_ref(), &SystemRng, Timestamp::from_millis(1).unwrap());
    assert_eq!(rings.known().await.unwrap().unwrap().keys.len(), 2);
    rings.report(&[1; 8], &newer).await.unwrap();
    rings.check_everywhere(added).await.unwrap();
    rings.report(&[2; 8], &keyring).await.unwrap();
    let error = rings.check_everywhere(added).await.unwrap_err();
    assert!(error.message().contains("1 of 2 nodes"), "{error}");
}
