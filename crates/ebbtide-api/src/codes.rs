//! Answers of `/v1/codes`.

use ebbtide::stores::codes::{IssuedCode, Redeemed};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;
use crate::grants::GrantIssued;
use crate::tokens::Audience;

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
    /// Resources that its access tokens are meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantIssued>,
    /// Access token, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// Id of the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token_expires_at: Option<u64>,
    /// Session that the code was issued in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
}

impl From<Redeemed> for CodeRedeemed {
    fn from(redeemed: Redeemed) -> Self {
        Self {
            grant: redeemed.grant.as_ref().map(GrantIssued::from),
            aud: redeemed.resource.as_ref().map(Audience::from),
            access_token_expires_at: redeemed
                .access_token
                .as_ref()
                .and_then(|token| millis(token.expires_at)),
            jti: redeemed.access_token.as_ref().map(|token| token.jti.to_string()),
            access_token: redeemed.access_token.map(|token| token.access_token.expose().to_owned()),
            subject: redeemed.subject,
            client_id: redeemed.client_id,
            scope: redeemed.scope,
            data: redeemed.data.map(Payload::into_inner),
            sid: redeemed.sid,
        }
    }
}
