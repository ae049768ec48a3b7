//! Answers of `/v1/access-tokens` and `/v1/introspect`.

use ebbtide::Timestamp;
use ebbtide::stores::access_tokens::{Active, IssuedAccessToken};
use ebbtide::stores::grants::Grant;
use ebbtide::stores::shared::confirmation::Resources;
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessIssued {
    pub access_token: String,
    /// Id of the token, which revokes it and gives no access.
    pub jti: String,
    pub expires_at: Option<u64>,
}

impl From<IssuedAccessToken> for AccessIssued {
    fn from(issued: IssuedAccessToken) -> Self {
        Self {
            access_token: issued.access_token.expose().to_owned(),
            jti: issued.jti.to_string(),
            expires_at: millis(issued.expires_at),
        }
    }
}

/// Access token to revoke by its id.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessRevoke {
    /// `jti` of the answer that issued the token, or of an introspection.
    pub jti: String,
    /// Name that the caller acts for.
    #[serde(alias = "actor")]
    #[schema(min_length = 1, max_length = 256, example = "bob")]
    pub on_behalf_of: Option<String>,
    #[schema(min_length = 1, max_length = 1024, example = "it leaked")]
    pub reason: Option<String>,
}

/// Confirmation of RFC 9449 §6 or RFC 8705 §3.1.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfirmationAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jkt: Option<String>,
    #[serde(rename = "x5t#S256", skip_serializing_if = "Option::is_none")]
    pub x5t_s256: Option<String>,
}

impl ConfirmationAnswer {
    /// Confirmation by the bound keys, if there is one.
    #[must_use]
    pub fn of(jkt: Option<String>, x5t_s256: Option<String>) -> Option<Self> {
        (jkt.is_some() || x5t_s256.is_some()).then_some(Self { jkt, x5t_s256 })
    }
}

/// Audience: one resource as text, several as a list (RFC 7519 §4.1.3).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

impl From<&Resources> for Audience {
    fn from(resources: &Resources) -> Self {
        match resources.uris() {
            [one] => Self::One(one.clone()),
            many => Self::Many(many.to_vec()),
        }
    }
}

/// Members of RFC 7662 §2.2, with times in seconds. Members without a value are left out.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct IntrospectionAnswer {
    pub active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_type: Option<String>,
    /// Id of an access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnf: Option<ConfirmationAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<String>,
    /// Session that its grant came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iat: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<u64>,
}

fn seconds(time: Timestamp) -> Option<u64> {
    millis(time).map(|millis| millis / 1_000)
}

impl From<Active> for IntrospectionAnswer {
    fn from(active: Active) -> Self {
        Self {
            active: true,
            token_type: Some(if active.dpop_jkt.is_some() { "DPoP" } else { "Bearer" }.to_owned()),
            jti: Some(active.jti.to_string()),
            sub: Some(active.subject),
            client_id: Some(active.client_id),
            scope: active.scope,
            cnf: ConfirmationAnswer::of(active.dpop_jkt, active.x5t_s256),
            aud: active.resource.as_ref().map(Audience::from),
            data: active.data.map(Payload::into_inner),
            grant_id: active.grant_id.map(|id| id.to_string()),
            sid: active.sid,
            iat: seconds(active.issued_at),
            exp: seconds(active.expires_at),
        }
    }
}

impl From<Grant> for IntrospectionAnswer {
    fn from(grant: Grant) -> Self {
        Self {
            active: true,
            token_type: None,
            jti: None,
            sub: Some(grant.subject),
            client_id: Some(grant.client_id),
            scope: grant.scope,
            cnf: ConfirmationAnswer::of(grant.dpop_jkt, grant.x5t_s256),
            aud: grant.resource.as_ref().map(Audience::from),
            data: None,
            grant_id: Some(grant.id.to_string()),
            sid: grant.sid,
            iat: seconds(grant.created_at),
            exp: seconds(grant.expires_at),
        }
    }
}
