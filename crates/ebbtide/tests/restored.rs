//! The restore drill: a backup that was restored un-revokes nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "fjall")]

use std::path::Path;

use ebbtide::restore::restore;
use ebbtide::stores::api_keys::{KeyRequest, Role};
use ebbtide::stores::approvals::Approval;
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{Ebbtide, ErrorKind, Scope};
use serde_json::json;

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
    let grant = acme.grants().issue(GrantRequest::new("app", "alice")).await.unwrap();
    let key = acme.api_keys().create(&KeyRequest::new(Scope::tenant("acme").unwrap(), Role::Admin), &context).await.unwrap();
    acme.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await.unwrap();
    db.engine().backup(&copy).await.unwrap();

    // After the backup, all of it is used or revoked.
    let redeem = || Redeem::new(code.clone(), "app").redirect_uri(uri);
    assert!(matches!(acme.codes().redeem(redeem()).await.unwrap(), RedeemOutcome::Redeemed(_)));
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
            (Scope::tenant("acme").unwrap(), json!({"action": entry.action.name(), "kind": kind, "target": entry.target}))
        })
        .collect();
    drop((acme, db));

    // The backup takes its place.
    let db = open(&copy).await;
    let fenced = restore(&db, &log).await.unwrap();
    assert_eq!(fenced.revoked, 2, "the key and the approval");
    let acme = db.scope(ACME).unwrap();
    assert!(!matches!(acme.codes().redeem(redeem()).await.unwrap(), RedeemOutcome::Redeemed(_)), "it was used");
    let rotated = acme.grants().rotate(Rotate::new(grant.refresh_token, "app")).await.unwrap();
    assert_eq!(rotated, RotateOutcome::Expired, "everybody signs in again, and nobody is a thief");
    assert_eq!(db.stores().find_api_key(&key.key).await.unwrap(), None);
    assert!(!acme.approvals().check("alice", "doc", "GET").await.unwrap());
    let refused = acme.replays().check(&proof).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "it was seen, and the backup does not know");
    drop((acme, db));

    // The fence holds after a restart.
    let db = open(&copy).await;
    let refused = db.scope(ACME).unwrap().replays().check(&proof).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}
