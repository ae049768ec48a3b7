//! Answers of `/v1/pushed-requests`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PushedAnswer {
    pub request_uri: String,
    pub expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PushedTaken {
    pub client_id: String,
    pub params: Value,
}
