//! Causes of refusals.

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
}
