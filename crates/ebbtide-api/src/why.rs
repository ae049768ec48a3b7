//! Causes of refusals.

use ebbtide::stores::audit::AuditEntry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Refusal and its cause.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalAnswer {
    pub request_id: String,
    /// Time of the answer.
    pub at: u64,
    pub method: String,
    /// Template of the path.
    #[schema(example = "/v1/replays/check")]
    pub route: String,
    pub status: u16,
    /// Type of the problem.
    #[schema(example = "replay")]
    pub title: String,
    /// One of `idle`, `cap`, `used`, `raced`, `reused`, `revoked`, `sign-out`, `deleted`, `fence`, `clock`, `quota`,
    /// `never-here`, `condition`, `request`, `key` and `engine`.
    #[schema(example = "used")]
    pub cause: String,
    pub detail: String,
    /// Further members of the problem.
    pub members: Map<String, Value>,
    /// Id of the key that the request was made with; null if none was accepted.
    pub key_id: Option<String>,
    pub scope: Option<String>,
    /// Author of the revocation, where a grant was revoked and the audit log has the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<RevokedBy>,
}

/// Author of a revocation, as the audit log has it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokedBy {
    /// `revoke`, or `theft` where the store revoked it by itself.
    #[schema(example = "revoke")]
    pub action: String,
    /// Id of the authenticated key; of a theft, the key that presented what was used before.
    #[schema(example = "root")]
    pub key_id: Option<String>,
    /// Name that the caller claimed to act for.
    pub on_behalf_of: Option<String>,
    pub reason: String,
    pub at: u64,
}

impl From<&AuditEntry> for RevokedBy {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            action: entry.action.name().to_owned(),
            key_id: entry.key_id.clone(),
            on_behalf_of: entry.on_behalf_of.clone(),
            reason: entry.reason.clone(),
            at: entry.at.as_millis(),
        }
    }
}
