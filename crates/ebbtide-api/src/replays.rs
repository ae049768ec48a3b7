//! Answers of `/v1/replays`.

use ebbtide::Timestamp;
use ebbtide::stores::replays::ReplayOutcome;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReplayFresh {
    #[schema(example = "fresh")]
    pub outcome: String,
    /// Time until which the proof is refused.
    pub expires_at: Option<u64>,
}

impl From<Timestamp> for ReplayFresh {
    fn from(expires_at: Timestamp) -> Self {
        Self { outcome: "fresh".to_owned(), expires_at: millis(expires_at) }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReplayOutcomes {
    #[schema(example = json!(["fresh"]))]
    pub outcomes: Vec<String>,
}

impl From<Vec<ReplayOutcome>> for ReplayOutcomes {
    fn from(outcomes: Vec<ReplayOutcome>) -> Self {
        let name = |outcome| match outcome {
            ReplayOutcome::Fresh { .. } => "fresh",
            ReplayOutcome::Expired => "expired",
            _ => "replay",
        };
        Self { outcomes: outcomes.into_iter().map(|outcome| name(outcome).to_owned()).collect() }
    }
}
