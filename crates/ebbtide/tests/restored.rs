//! The restore drill: a backup that was restored un-revokes nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "fjall")]

use std::path::Path;
use std::time::Duration;

use ebbtide::restore::restore;
use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::{Action, AuditContext, AuditEntry};
use ebbtide::stores::challenges::{ChallengeRequest, Form, Verify, VerifyOutcome};
use ebbtide::stores::clients::{ClientRequest, RegisterOutcome, RotateSecretOutcome};
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide::stores::records::{GetOutcome, PutOutcome, PutRecord, RecordAddress};
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{Clock as _, Ebbtide, ErrorKind, Reach, Scope, SystemClock};
use serde_json::{Value, json};

const ACME: &str = "tenant:acme";

async fn open(folder: &Path) -> Ebbtide {
    Ebbtide::open(&format!("fjall:{}", folder.display())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_unrevokes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let db = open(&live).await;
    let acme = db.scope(ACME).unwrap();
    let context = AuditContext::new("bob", "a drill").unwrap();
    let uri = "https://app/cb";
    let code = acme.codes().issue(CodeRequest::new("app", "alice", uri)).await.unwrap().code;
    let grant = acme.grants().issue(GrantRequest::new("alice", "app")).await.unwrap();
    let key = acme
        .api_keys()
        .create(&KeyRequest::new(Scope::tenant("acme").unwrap(), Role::Admin), &context)
        .await
        .unwrap();
    acme.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    let (nonces, challenges) = (acme.nonces(), acme.challenges());
    let mut checks = Vec::new();
    for request in [NonceRequest::new("as"), NonceRequest::new("as").stateless()] {
        checks.push(NonceCheck::new("as", nonces.issue(request).await.unwrap().nonce));
    }
    let link = challenges.issue(ChallengeRequest::new("reset", "alice", Form::Token)).await.unwrap();
    let link = Verify::new("reset", &link.secret).id(link.id.to_string());
    db.engine().backup(&copy).await.unwrap();

    // After the backup, all of it is used or revoked.
    let redeem = || Redeem::new(code.clone(), "app").redirect_uri(uri);
    assert!(matches!(acme.codes().redeem(redeem()).await.unwrap(), RedeemOutcome::Redeemed(_)));
    for check in &checks {
        assert!(matches!(nonces.accept(check).await.unwrap(), NonceOutcome::Accepted { .. }));
    }
    assert!(matches!(challenges.verify(&link).await.unwrap(), VerifyOutcome::Verified(_)));
    assert_eq!(acme.grants().revoke(grant.grant_id, Some(&context)).await.unwrap(), 1);
    assert!(acme.api_keys().revoke(&key.about.id, &context).await.unwrap());
    assert!(acme.approvals().revoke("alice", "doc", "GET", &context).await.unwrap());
    let proof = Proof::new("dpop", "j");
    assert!(matches!(acme.replays().check(&proof).await.unwrap(), ReplayOutcome::Fresh { .. }));
    let log: Vec<_> = acme.audit().list(None, 100).await.unwrap().items;
    let log: Vec<_> = log
        .iter()
        .map(|entry| {
            let kind = entry.kind.map(ebbtide::Kind::name);
            let chain = entry.chain.map(|chain| chain.to_string());
            (Scope::tenant("acme").unwrap(), json!({"chain": chain, "sequence": entry.sequence, "action": entry.action.name(), "kind": kind, "target": entry.target}))
        })
        .collect();
    drop((nonces, challenges, acme, db));

    // The backup takes its place.
    let db = open(&copy).await;
    let fenced = restore(&db, &log).await.unwrap();
    assert_eq!(fenced.revoked, 2, "the key and the approval");
    let acme = db.scope(ACME).unwrap();
    let redeemed = acme.codes().redeem(redeem()).await.unwrap();
    assert_eq!(
        redeemed,
        RedeemOutcome::Reused { grant_id: None },
        "it was used, and nothing is revoked for it"
    );
    for check in &checks {
        assert_eq!(acme.nonces().accept(check).await.unwrap(), NonceOutcome::Used);
        assert_eq!(acme.nonces().check(check).await.unwrap(), NonceOutcome::Used);
    }
    assert_eq!(acme.challenges().verify(&link).await.unwrap(), VerifyOutcome::Used);
    for request in [NonceRequest::new("as"), NonceRequest::new("as").stateless()] {
        let new = NonceCheck::new("as", acme.nonces().issue(request).await.unwrap().nonce);
        assert!(
            matches!(acme.nonces().accept(&new).await.unwrap(), NonceOutcome::Accepted { .. }),
            "a new one is good"
        );
    }
    let rotated = acme.grants().rotate(Rotate::new(grant.refresh_token, "app")).await.unwrap();
    assert_eq!(rotated, RotateOutcome::Expired, "everybody signs in again, and nobody is a thief");
    assert_eq!(db.stores().find_api_key(&key.key).await.unwrap(), None);
    assert!(!acme.approvals().check("alice", "doc", "GET").await.unwrap());
    let refused = acme.replays().check(&proof).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "it was seen, and the backup does not know");
    let second = SystemClock.now().as_millis() / 1_000;
    let old = Proof::new("dpop", "k").iat(second - 1);
    assert_eq!(acme.replays().check(&old).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let new = Proof::new("dpop", "k").iat(second + 1);
    assert!(
        matches!(acme.replays().check(&new).await.unwrap(), ReplayOutcome::Fresh { .. }),
        "made after the fence"
    );
    assert_eq!(acme.replays().check(&new).await.unwrap(), ReplayOutcome::Replay);
    let theft = acme.audit().list(None, 100).await.unwrap().items;
    assert!(theft.iter().all(|entry| entry.action != Action::Theft));
    drop((acme, db));

    // The fence holds after a restart.
    let db = open(&copy).await;
    let refused = db.scope(ACME).unwrap().replays().check(&proof).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_from_before_the_backup_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("live")).await;
    let acme = db.scope(ACME).unwrap();
    let context = AuditContext::new("bob", "a drill").unwrap();
    let approval = Approval::new("alice", "doc", "GET", "admin");
    acme.approvals().grant(&approval).await.unwrap();
    assert!(acme.approvals().revoke("alice", "doc", "GET", &context).await.unwrap());
    acme.approvals().grant(&approval).await.unwrap();
    let lines = |entries: Vec<AuditEntry>| -> Vec<_> {
        let line = |entry: &AuditEntry| {
            json!({"chain": entry.chain.map(|chain| chain.to_string()), "sequence": entry.sequence,
                "action": entry.action.name(), "kind": entry.kind.map(ebbtide::Kind::name), "target": entry.target})
        };
        entries.iter().map(|entry| (Scope::tenant("acme").unwrap(), line(entry))).collect()
    };
    let log = lines(acme.audit().list(None, 100).await.unwrap().items);
    let copy = dir.path().join("copy");
    db.engine().backup(&copy).await.unwrap();
    let restored = open(&copy).await;
    assert_eq!(restore(&restored, &log).await.unwrap().revoked, 0);
    assert!(restored.scope(ACME).unwrap().approvals().check("alice", "doc", "GET").await.unwrap());
    // A deletion after the backup is repeated.
    acme.owners().delete("alice", &context).await.unwrap().finish().await.unwrap();
    let log = lines(acme.audit().list(None, 100).await.unwrap().items);
    let log: Vec<_> = log
        .into_iter()
        .map(|(scope, mut line)| {
            line["detail"] = json!("begins");
            (scope, line)
        })
        .collect();
    restore(&restored, &log).await.unwrap();
    assert!(!restored.scope(ACME).unwrap().approvals().check("alice", "doc", "GET").await.unwrap());
}

/// The export has lines of many years, and the store drops its own entries after one.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_older_than_the_log_keeps_entries_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("live")).await;
    let acme = db.scope(ACME).unwrap();
    let context = AuditContext::new("bob", "a drill").unwrap();
    acme.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    let request = KeyRequest::new(acme.scope().clone(), Role::Admin);
    let key = acme.api_keys().create(&request, &context).await.unwrap();
    let line = |days: u64, line: Value| {
        let mut line = line;
        let at = SystemClock.now().as_millis() - days * 24 * 3_600 * 1_000;
        (line["chain"], line["sequence"], line["at"]) = (json!("00000000000000ff-0"), json!(1), json!(at));
        (acme.scope().clone(), line)
    };
    let deleted = json!({"action": "delete_scope", "target": ["exactly", ACME], "detail": "exactly: begins"});
    let revoked = json!({"action": "revoke", "kind": "api_keys", "target": [key.about.id.to_string()]});
    let fenced = restore(&db, &[line(366, deleted.clone()), line(366, revoked)]).await.unwrap();
    assert_eq!((fenced.revoked, fenced.outdated), (1, 1), "an id of a key is never given again");
    assert!(acme.approvals().check("alice", "doc", "GET").await.unwrap(), "the tenant came back since");
    assert_eq!(db.stores().find_api_key(&key.key).await.unwrap(), None);
    let fenced = restore(&db, &[line(364, deleted)]).await.unwrap();
    assert_eq!((fenced.revoked, fenced.outdated), (1, 0));
    assert!(!acme.approvals().check("alice", "doc", "GET").await.unwrap());
}

/// Entries of the audit logs of these scopes, as lines of an export.
async fn exported(db: &Ebbtide, scopes: &[&str]) -> Vec<(Scope, Value)> {
    let mut lines = Vec::new();
    for scope in scopes {
        for entry in db.scope(scope).unwrap().audit().list(None, 500).await.unwrap().items {
            let line = json!({"chain": entry.chain.map(|chain| chain.to_string()), "sequence": entry.sequence,
                "action": entry.action.name(), "kind": entry.kind.map(ebbtide::Kind::name),
                "target": entry.target, "detail": entry.detail});
            lines.push((scope.parse().unwrap(), line));
        }
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_scope_and_mass_deletions_stay_deleted() {
    const PROD: &str = "tenant:acme/env:prod";
    const BETA: &str = "tenant:beta";
    let dir = tempfile::tempdir().unwrap();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let db = open(&live).await;
    let context = AuditContext::new("bob", "a drill").unwrap();
    let mut keys = Vec::new();
    for scope in [ACME, PROD, BETA] {
        let request = KeyRequest::new(scope.parse().unwrap(), Role::Admin);
        keys.push(db.scope(scope).unwrap().api_keys().create(&request, &context).await.unwrap().key);
    }
    let (prod, beta) = (db.scope(PROD).unwrap(), db.scope(BETA).unwrap());
    let edge = Edge::new("alice", "owner", "doc", RelationType::Ownership);
    for there in [&prod, &beta] {
        there.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
        there.relationships().add(&Relationship::new(edge.clone(), "admin")).await.unwrap();
    }
    for (id, group) in [("a", "gone"), ("b", "kept")] {
        let put = PutRecord::new("c", id, json!(1)).group(group);
        assert!(matches!(beta.records().put(&put).await.unwrap(), PutOutcome::Stored { .. }));
    }
    let registered = beta.clients().register(ClientRequest::confidential().client_id("app")).await.unwrap();
    assert!(matches!(registered, RegisterOutcome::Registered(_)));
    db.engine().backup(&copy).await.unwrap();

    let below = Reach::Below(ACME.parse().unwrap());
    db.scope(ACME).unwrap().scopes().delete(&below, &context).await.unwrap().finish().await.unwrap();
    assert_eq!(beta.approvals().delete_all(false, &context).await.unwrap(), 1);
    assert_eq!(beta.relationships().delete_all(false, &context).await.unwrap(), 1);
    beta.records().revoke_group("c", "gone", Some(&context)).await.unwrap();
    let rotated = beta.clients().rotate_secret("app", Duration::ZERO).await.unwrap();
    assert!(matches!(rotated, RotateSecretOutcome::Rotated { .. }));
    let log = exported(&db, &[ACME, PROD, BETA]).await;
    drop((prod, beta, db));

    let db = open(&copy).await;
    let fenced = restore(&db, &log).await.unwrap();
    assert_eq!(fenced.revoked, 4, "a scope, approvals, relationships and a group");
    assert_eq!(fenced.unrepeated, ["rotate_secret clients app in tenant:beta"]);
    let mut valid = Vec::new();
    for key in &keys {
        valid.push(db.stores().find_api_key(key).await.unwrap().is_some());
    }
    assert_eq!(valid, [false, false, true], "the key of the other tenant is as it was");
    for scope in [PROD, BETA] {
        let there = db.scope(scope).unwrap();
        assert!(!there.approvals().check("alice", "doc", "GET").await.unwrap(), "{scope}");
        assert!(!there.relationships().check(&edge).await.unwrap(), "{scope}");
    }
    let beta = db.scope(BETA).unwrap();
    let found = async |id: &str| {
        let found = beta.records().get(&RecordAddress::id("c", id)).await.unwrap();
        matches!(found, GetOutcome::Found(_))
    };
    assert_eq!((found("a").await, found("b").await), (false, true));
    assert!(beta.clients().find("app").await.unwrap().is_some());
}
