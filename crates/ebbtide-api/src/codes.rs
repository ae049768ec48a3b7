//! Answers of `/v1/codes`.

use ebbtide::stores::codes::{IssuedCode, Redeemed};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;
use crate::grants::GrantIssued;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CodeIssued {
    pub code: String,
    pub expires_at: Option<u64>,
}

impl From<IssuedCode> for CodeIssued {
    fn from(issued: IssuedCode) -> Self {
        Self { code: issued.code.expose().to_owned(), expires_at: millis(issued.expires_at) }
    }
}

/// Content of a redeemed code, and its grant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CodeRedeemed {
    pub subject: String,
    pub client_id: String,
    pub scope: Option<String>,
    pub data: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantIssued>,
}

impl From<Redeemed> for CodeRedeemed {
    fn from(redeemed: Redeemed) -> Self {
        Self {
            grant: redeemed.grant.as_ref().map(GrantIssued::from),
            subject: redeemed.subject,
            client_id: redeemed.client_id,
            scope: redeemed.scope,
            data: redeemed.data.map(Payload::into_inner),
        }
    }
}
