//! Audit log.

use ebbtide::Kind;
use ebbtide::stores::audit::AuditEntry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;

/// Entry of the audit log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EntryAnswer {
    /// Number of the entry in its chain, without a gap.
    pub sequence: u64,
    /// Chain of the process that wrote it; null in a log from before there were chains.
    pub chain: Option<String>,
    pub at: Option<u64>,
    #[schema(example = "extend")]
    pub action: String,
    /// Id of the authenticated key: `root` for the root key, `local` for a process that has the store open itself.
    #[schema(example = "root")]
    pub key_id: Option<String>,
    /// Name that the caller claimed to act for. Nobody has checked it.
    pub on_behalf_of: Option<String>,
    /// Name to show: `on_behalf_of`, else `key_id`.
    pub actor: String,
    pub reason: String,
    /// Subject that is affected, where the target does not name it.
    pub subject: Option<String>,
    pub kind: Option<String>,
    /// Names of the record.
    pub target: Vec<String>,
    /// Previous expiry, where the lifetime was changed.
    pub before: Option<u64>,
    /// New expiry.
    pub after: Option<u64>,
    pub detail: Option<String>,
    /// Place in the chain: number and hash.
    pub mark: String,
}

impl From<&AuditEntry> for EntryAnswer {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            sequence: entry.sequence,
            at: millis(entry.at),
            action: entry.action.name().to_owned(),
            chain: entry.chain.map(|chain| chain.to_string()),
            key_id: entry.key_id.clone(),
            on_behalf_of: entry.on_behalf_of.clone(),
            subject: entry.subject.clone(),
            actor: entry.actor.clone(),
            reason: entry.reason.clone(),
            kind: entry.kind.map(Kind::name).map(str::to_owned),
            target: entry.target.clone(),
            before: entry.before.and_then(millis),
            after: entry.after.and_then(millis),
            detail: entry.detail.clone(),
            mark: entry.mark().to_string(),
        }
    }
}

/// Audit log whose chain is intact.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WholeLog {
    #[schema(example = "tenant:acme")]
    pub scope: String,
    pub entries: u64,
    /// Ends of the chains. Keep it elsewhere as the `mark` of a later request.
    pub head: Option<String>,
}
