//! Tokens of upstream providers.

use ebbtide::stores::grants::GrantId;
use ebbtide::stores::provider_tokens::Tie;
use ebbtide::stores::shared::belongings::Parent;
use ebbtide::stores::shared::payload::Payload;
use ebbtide::{Error, Result, Secret, Ttl};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Tokens to store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderTokenPut {
    /// Grant that they are tied to; either this or `access_token`.
    pub grant_id: Option<String>,
    /// Access token that they are tied to: its grant, or itself where it has none.
    #[schema(value_type = Option<String>)]
    pub access_token: Option<Secret>,
    #[schema(min_length = 1, max_length = 256, example = "google")]
    pub provider: String,
    /// Tokens of the provider, as any JSON. They are stored sealed.
    #[schema(value_type = Value)]
    pub data: Payload,
    /// Lifetime; that of the grant or the access token by default and at most.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub ttl: Option<Ttl>,
    /// Trust, client or owner that they belong to besides, and are removed with.
    pub belongs_to: Option<Parent>,
}

/// Tokens to read, to delete, or to refresh.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderTokenName {
    /// Grant that they are tied to; either this or `access_token`.
    pub grant_id: Option<String>,
    #[schema(value_type = Option<String>)]
    pub access_token: Option<Secret>,
    #[schema(min_length = 1, max_length = 256, example = "google")]
    pub provider: String,
    /// For `acquire`: lifetime of the lease; 30 seconds by default, 300 at most.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 300)]
    pub ttl: Option<Ttl>,
    /// For `release`: the lease.
    pub lease: Option<String>,
}

/// Grant or access token that a request names.
pub fn tie(grant_id: Option<&str>, access_token: Option<&Secret>) -> Result<Tie> {
    match (grant_id, access_token) {
        (Some(id), None) => Ok(Tie::Grant(id.parse::<GrantId>()?)),
        (None, Some(token)) => Ok(Tie::AccessToken(token.clone())),
        _ => Err(Error::invalid("either grant_id or access_token is given")),
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProviderTokenStored {
    pub expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProviderTokenAnswer {
    pub provider: String,
    pub data: Value,
    pub expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RefreshLeaseAnswer {
    pub lease: String,
    pub expires_at: Option<u64>,
}
