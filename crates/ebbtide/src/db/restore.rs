//! The fence of a restored backup: nothing that was issued, used or revoked before it comes back.
//!
//! A backup does not know what happened since. Codes in it may have been used, grants revoked, proofs seen. A restored
//! store therefore forgets what was issued (a code is refused, a refresh token is answered `Expired`, and everybody signs
//! in again), and refuses replay checks until every proof from before the fence has ended. Revocations that an exported
//! audit log knows are repeated.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Ebbtide;
use crate::admin::AdminExt as _;
use crate::backend::BackendExt as _;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::SystemRng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::stores::api_keys::KeyId;
use crate::stores::audit::{Action, AuditContext, Note};
use crate::stores::relationships::Edge;

/// Kinds of what was issued before the fence.
const ISSUED: [Kind; 11] = [
    Kind::Code,
    Kind::Nonce,
    Kind::DeviceCode,
    Kind::UserCode,
    Kind::PushedRequest,
    Kind::AccessToken,
    Kind::ProviderToken,
    Kind::Grant,
    Kind::GrantIndex,
    Kind::Session,
    Kind::SessionIndex,
];

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Fenced {
    /// Records that were removed, by kind.
    pub removed: BTreeMap<Kind, u64>,
    /// Revocations of the audit log that were repeated.
    pub revoked: u64,
    /// Time until which replay checks are refused.
    pub until: Option<Timestamp>,
}

/// Key of the fence.
fn place() -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["fence".into()], &[])
}

/// End of the fence that a store has; none if it has none.
pub(crate) async fn fence(engine: &dyn crate::admin::Admin, now: Timestamp) -> Result<Option<Timestamp>> {
    Ok(engine.get(&place()?, now).await?.map(|record| record.expires_at))
}

/// Sets the fence of a restored store. Call it before the store is served; after an error, call it again.
///
/// `log` has lines of an exported audit log, each with the scope that it was exported from.
pub async fn restore(db: &Ebbtide, log: &[(Scope, Value)]) -> Result<Fenced> {
    let engine = db.engine();
    let present = db.time().now()?;
    let (now, until) = (present.latest(), present.end(db.stores().profile().replay)?);
    let record = Record::new("", until, &SystemRng);
    let _ = engine.put(place()?, record, now).await?;
    db.stores().set_fence(until);
    let mut fenced = Fenced { until: Some(until), ..Fenced::default() };
    for kind in ISSUED {
        let removed = engine.erase_all(&Prefix::kind_wide(kind), now).await?;
        if removed > 0 {
            fenced.removed.insert(kind, removed);
        }
    }
    for (scope, entry) in log {
        if entry["action"] == "revoke" {
            fenced.revoked += u64::from(revoke(db, scope, entry).await?);
        }
    }
    let note = Note::of(Action::Restore, &AuditContext::because("a backup was restored")?)?;
    let total: u64 = fenced.removed.values().sum();
    let note = note.with_detail(format!("{total} records removed, {} revocations repeated", fenced.revoked));
    db.at(&Scope::Global).audit().append(&note).await?;
    Ok(fenced)
}

/// Repeats one revocation; false if there is nothing to revoke.
async fn revoke(db: &Ebbtide, scope: &Scope, entry: &Value) -> Result<bool> {
    let names: Vec<_> = entry["target"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let context = AuditContext::because("revoked before the backup was restored")?;
    let there = db.at(scope);
    match (entry["kind"].as_str(), names.as_slice()) {
        (Some("api_keys"), [id]) => {
            let id: KeyId = id.parse()?;
            db.at(&Scope::Global).api_keys().revoke(&id, &context).await
        }
        (Some("approvals"), [identity, resource, action]) => {
            there.approvals().revoke(identity, resource, action, &context).await
        }
        (Some("relationships"), [subject, relation_type, relation, object]) => {
            let relation_type = relation_type.parse().map_err(|_| Error::invalid("no type of relation"))?;
            let edge = Edge::new(*subject, *relation, *object, relation_type);
            there.relationships().remove(&edge, &context).await
        }
        _ => Ok(false),
    }
}
