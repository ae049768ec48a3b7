//! Answers of `/v1/grants`.

use ebbtide::stores::grants::{Grant, GrantState, IssuedGrant, Rotated, Why};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;
use crate::tokens::{Audience, ConfirmationAnswer};

/// Grant with its first refresh token.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantIssued {
    pub grant_id: String,
    pub refresh_token: String,
    /// End of the grant unless it is rotated before.
    pub expires_at: Option<u64>,
    /// End of the grant, however often it is rotated.
    pub ends_at: Option<u64>,
}

impl From<&IssuedGrant> for GrantIssued {
    fn from(grant: &IssuedGrant) -> Self {
        Self {
            grant_id: grant.grant_id.to_string(),
            refresh_token: grant.refresh_token.expose().to_owned(),
            expires_at: millis(grant.expires_at),
            ends_at: millis(grant.ends_at),
        }
    }
}

/// Successor of a refresh token.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantRotated {
    pub refresh_token: String,
    pub generation: u64,
    /// True if this answer was given before.
    pub retried: bool,
    pub grant_id: String,
    pub subject: String,
    pub client_id: String,
    pub scope: Option<String>,
    /// Resources that its access tokens are meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    pub data: Option<Value>,
    pub expires_at: Option<u64>,
    pub ends_at: Option<u64>,
    /// Access token, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// Id of the access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token_expires_at: Option<u64>,
}

impl GrantRotated {
    #[must_use]
    pub fn new(rotated: Rotated, retried: bool) -> Self {
        Self {
            refresh_token: rotated.refresh_token.expose().to_owned(),
            generation: rotated.generation,
            retried,
            grant_id: rotated.grant_id.to_string(),
            subject: rotated.subject,
            client_id: rotated.client_id,
            scope: rotated.scope,
            aud: rotated.resource.as_ref().map(Audience::from),
            access_token_expires_at: rotated.access_token.as_ref().and_then(|token| millis(token.expires_at)),
            jti: rotated.access_token.as_ref().map(|token| token.jti.to_string()),
            access_token: rotated.access_token.map(|token| token.access_token.expose().to_owned()),
            data: rotated.data.map(Payload::into_inner),
            expires_at: millis(rotated.expires_at),
            ends_at: millis(rotated.ends_at),
        }
    }
}

/// State of a grant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GrantStateAnswer {
    Active,
    Expired,
    Revoked(GrantRevoked),
}

/// Time and reason of a revocation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantRevoked {
    pub at: Option<u64>,
    pub why: String,
}

/// Name of the reason why a grant was revoked.
#[must_use]
pub fn reason(why: Why) -> &'static str {
    match why {
        Why::RefreshReused => "refresh_reused",
        Why::CodeReused => "code_reused",
        Why::SignedOut => "signed_out",
        Why::ClientRevoked => "client_revoked",
        Why::SessionEnded => "session_ended",
        _ => "requested",
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantAnswer {
    pub grant_id: String,
    pub subject: String,
    pub client_id: String,
    pub scope: Option<String>,
    pub dpop_jkt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnf: Option<ConfirmationAnswer>,
    /// Resources that its access tokens are meant for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    pub data: Option<Value>,
    /// Session that the grant came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    pub generation: u64,
    pub created_at: Option<u64>,
    pub rotated_at: Option<u64>,
    pub expires_at: Option<u64>,
    pub ends_at: Option<u64>,
    pub state: GrantStateAnswer,
}

impl From<&Grant> for GrantAnswer {
    fn from(grant: &Grant) -> Self {
        Self::from(grant.clone())
    }
}

impl From<Grant> for GrantAnswer {
    fn from(grant: Grant) -> Self {
        Self {
            state: match grant.state {
                GrantState::Active => GrantStateAnswer::Active,
                GrantState::Revoked { at, why } => {
                    GrantStateAnswer::Revoked(GrantRevoked { at: millis(at), why: reason(why).to_owned() })
                }
                _ => GrantStateAnswer::Expired,
            },
            grant_id: grant.id.to_string(),
            subject: grant.subject,
            client_id: grant.client_id,
            scope: grant.scope,
            cnf: ConfirmationAnswer::of(grant.dpop_jkt.clone(), grant.x5t_s256),
            aud: grant.resource.as_ref().map(Audience::from),
            dpop_jkt: grant.dpop_jkt,
            data: grant.data.map(Payload::into_inner),
            sid: grant.sid,
            generation: grant.generation,
            created_at: millis(grant.created_at),
            rotated_at: millis(grant.rotated_at),
            expires_at: millis(grant.expires_at),
            ends_at: millis(grant.ends_at),
        }
    }
}
