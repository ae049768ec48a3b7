//! Answers of `/v1/keys`.

use ebbtide::stores::api_keys::{ApiKey, CreatedKey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;

/// An API key, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAnswer {
    pub id: String,
    pub scope: String,
    #[schema(example = "writer")]
    pub role: String,
    pub name: Option<String>,
    /// Maximum requests per second, on each node.
    pub rate_limit: Option<u32>,
    /// Calls that it is limited to.
    pub allow: Option<Vec<String>>,
    /// Id of the key that created it, and with which it ends.
    pub parent: Option<String>,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
}

impl From<&ApiKey> for KeyAnswer {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            scope: key.scope.to_string(),
            role: key.role.to_string(),
            name: key.name.clone(),
            rate_limit: key.rate_limit,
            allow: key.allow.clone(),
            parent: key.parent.as_ref().map(ToString::to_string),
            created_at: millis(key.created_at),
            expires_at: millis(key.expires_at),
        }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct KeyCreated {
    /// The key. It is shown only once.
    pub key: String,
    #[serde(flatten)]
    pub about: KeyAnswer,
}

impl From<CreatedKey> for KeyCreated {
    fn from(created: CreatedKey) -> Self {
        Self { key: created.key.expose().to_owned(), about: KeyAnswer::from(&created.about) }
    }
}
