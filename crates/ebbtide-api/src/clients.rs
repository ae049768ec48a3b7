//! Answers of `/v1/clients`.

use std::collections::BTreeMap;

use ebbtide::stores::clients::{Client, RegisteredClient};
use ebbtide::stores::owners::Removed;
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;

/// A client, without its secret.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClientAnswer {
    pub client_id: String,
    pub owner: Option<String>,
    pub name: Option<String>,
    pub redirect_uris: Vec<String>,
    pub metadata: Option<Value>,
    pub confidential: bool,
    pub require_pkce: bool,
    /// `token` or `grant`.
    pub revoke: String,
    /// `false` until the first use of a client that ends without one.
    pub used: bool,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
}

impl From<&Client> for ClientAnswer {
    fn from(client: &Client) -> Self {
        Self {
            client_id: client.client_id.clone(),
            owner: client.owner.clone(),
            name: client.name.clone(),
            redirect_uris: client.redirect_uris.clone(),
            metadata: client.metadata.clone().map(Payload::into_inner),
            confidential: client.confidential,
            require_pkce: client.require_pkce,
            revoke: client.revoke.name().to_owned(),
            used: client.used,
            created_at: millis(client.created_at),
            expires_at: millis(client.expires_at),
        }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClientRegistered {
    /// Shown only once; a public client has none, nor one whose hash was imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    #[serde(flatten)]
    pub client: ClientAnswer,
}

impl From<RegisteredClient> for ClientRegistered {
    fn from(registered: RegisteredClient) -> Self {
        let client_secret = registered.client_secret.map(|secret| secret.expose().to_owned());
        Self { client_secret, client: ClientAnswer::from(&registered.client) }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClientVerified {
    pub verified: bool,
    #[serde(flatten)]
    pub client: ClientAnswer,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClientRotated {
    /// Shown only once.
    pub client_secret: String,
    pub old_expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClientDeleted {
    /// Number of grants and tokens of the client.
    pub revoked: u64,
    pub deleted: u64,
    /// Deleted records by kind.
    pub kinds: BTreeMap<String, u64>,
}

impl From<&Removed> for ClientDeleted {
    fn from(removed: &Removed) -> Self {
        let kinds = removed.records.iter().map(|(kind, count)| (kind.name().to_owned(), *count));
        Self { revoked: removed.revoked, deleted: removed.total(), kinds: kinds.collect() }
    }
}
