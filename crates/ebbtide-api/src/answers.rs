//! Answers that several calls share.

use std::collections::BTreeMap;

use ebbtide::stores::api_keys::ApiKey;
use ebbtide::{Kind, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Time in milliseconds since 1970; null for a record that does not expire.
pub fn millis(time: Timestamp) -> Option<u64> {
    (!time.is_never()).then(|| time.as_millis())
}

/// Page of a listing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// Start of the next page: the `after` of the next request. Null at the end.
    pub next: Option<String>,
}

/// Number of deleted records.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    pub deleted: u64,
}

/// Number of records that were valid until now.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    pub revoked: u64,
}

/// API key, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAnswer {
    pub id: String,
    pub scope: String,
    #[schema(example = "writer")]
    pub role: String,
    pub name: Option<String>,
    /// Most requests in a second, on each node.
    pub rate_limit: Option<u32>,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
}

impl From<&ApiKey> for KeyAnswer {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            scope: key.scope.to_string(),
            role: key.role.name().to_owned(),
            name: key.name.clone(),
            rate_limit: key.rate_limit,
            created_at: millis(key.created_at),
            expires_at: millis(key.expires_at),
        }
    }
}

/// Counts by name of the kind.
pub fn by_name(counts: &BTreeMap<Kind, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(kind, count)| (kind.to_string(), *count)).collect()
}
