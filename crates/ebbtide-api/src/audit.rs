//! Audit log.

use ebbtide::Kind;
use ebbtide::stores::audit::Entry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;

/// Entry of the audit log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EntryAnswer {
    /// Number of the entry, without a gap.
    pub sequence: u64,
    pub at: Option<u64>,
    #[schema(example = "extend")]
    pub action: String,
    pub actor: String,
    pub reason: String,
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

impl From<&Entry> for EntryAnswer {
    fn from(entry: &Entry) -> Self {
        Self {
            sequence: entry.sequence,
            at: millis(entry.at),
            action: entry.action.name().to_owned(),
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
    /// End of the chain, number and hash. Keep it elsewhere as the `mark` of a later request.
    pub head: Option<String>,
}
