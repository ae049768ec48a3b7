//! Explanations.

use ebbtide::ops::explain::Explanation;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;
use crate::audit::EntryAnswer;

/// State of a record.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplanationAnswer {
    pub kind: String,
    pub scope: String,
    /// `live`, `expired`, `used` or `revoked`.
    #[schema(example = "live")]
    pub state: String,
    /// Reason for the state, in words.
    pub why: String,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
    /// Latest expiry that it can have.
    pub cap_at: Option<u64>,
    /// Grant that it is, belongs to, or issued.
    pub grant_id: Option<String>,
    /// Entries about it in the audit log, oldest first.
    pub history: Vec<EntryAnswer>,
}

impl From<&Explanation> for ExplanationAnswer {
    fn from(explanation: &Explanation) -> Self {
        Self {
            kind: explanation.kind.to_string(),
            scope: explanation.scope.to_string(),
            state: explanation.state.name().to_owned(),
            why: explanation.why.clone(),
            created_at: explanation.created_at.and_then(millis),
            expires_at: explanation.expires_at.and_then(millis),
            cap_at: explanation.cap_at.and_then(millis),
            grant_id: explanation.grant_id.map(|id| id.to_string()),
            history: explanation.history.iter().map(EntryAnswer::from).collect(),
        }
    }
}
