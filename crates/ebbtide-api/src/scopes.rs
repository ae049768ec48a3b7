//! Scopes.

use std::collections::BTreeMap;

use ebbtide::stores::scopes::{Migrated, Statistics};
use ebbtide::{Kind, Reach, Scope, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::{by_name, millis};

/// Scope that has records.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeAnswer {
    #[schema(example = "tenant:acme")]
    pub scope: String,
    /// Number of live records.
    pub records: u64,
}

/// Records of a scope, by kind.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeCounts {
    pub scope: String,
    /// Includes the scopes that it covers.
    pub below: bool,
    pub counts: BTreeMap<String, u64>,
    pub total: u64,
    /// By scope and kind, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statistics: Option<BTreeMap<String, BTreeMap<String, ScopeStatistics>>>,
}

/// Live records of a kind in a scope.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeStatistics {
    pub live: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Records that do not expire.
    pub without_end: u64,
    pub first_ends_at: Option<u64>,
    pub last_ends_at: Option<u64>,
}

impl From<&Statistics> for ScopeStatistics {
    fn from(of: &Statistics) -> Self {
        Self {
            live: of.live,
            bytes: of.bytes,
            without_end: of.without_end,
            first_ends_at: of.first_ends_at.and_then(millis),
            last_ends_at: of.last_ends_at.and_then(millis),
        }
    }
}

/// Deleted records of a scope, by kind.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeDeleted {
    pub scope: String,
    /// Includes the scopes that it covers.
    pub below: bool,
    pub deleted: BTreeMap<String, u64>,
    pub total: u64,
    /// Beginning of the deletion that was resumed, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<u64>,
}

impl ScopeCounts {
    #[must_use]
    pub fn new(reach: &Reach, counts: &BTreeMap<Kind, u64>) -> Self {
        Self {
            scope: reach.scope().to_string(),
            below: matches!(reach, Reach::Below(_)),
            counts: by_name(counts),
            total: counts.values().sum(),
            statistics: None,
        }
    }

    /// Adds statistics by scope and kind.
    #[must_use]
    pub fn with_statistics(mut self, found: &BTreeMap<Scope, BTreeMap<Kind, Statistics>>) -> Self {
        let kinds = |kinds: &BTreeMap<Kind, Statistics>| {
            kinds.iter().map(|(kind, of)| (kind.name().to_owned(), of.into())).collect()
        };
        self.statistics = Some(found.iter().map(|(scope, of)| (scope.to_string(), kinds(of))).collect());
        self
    }
}

impl ScopeDeleted {
    #[must_use]
    pub fn new(reach: &Reach, deleted: &BTreeMap<Kind, u64>) -> Self {
        let ScopeCounts { scope, below, counts, total, .. } = ScopeCounts::new(reach, deleted);
        Self { scope, below, deleted: counts, total, resumed_from: None }
    }

    /// Adds the beginning of the deletion that was resumed.
    #[must_use]
    pub fn resumed_from(mut self, began_at: Option<Timestamp>) -> Self {
        self.resumed_from = began_at.and_then(millis);
        self
    }
}

/// Records to move from one scope to another.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeMigrate {
    #[schema(example = "global")]
    pub from: String,
    #[schema(example = "tenant:acme")]
    pub to: String,
    /// The `next` of the call before.
    pub after: Option<String>,
    /// Moves nothing, and counts what would be moved.
    #[serde(default)]
    pub dry_run: bool,
    /// Name that the caller acts for, in the audit log.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    pub actor: Option<String>,
    pub reason: Option<String>,
}

/// Records that one call has moved.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeMigrated {
    /// By kind.
    pub moved: BTreeMap<String, u64>,
    /// Records that exist in the other scope already, and were left.
    pub conflicts: u64,
    /// Records that stay, by kind: API keys, provider tokens that only the holder of an access token can
    /// open, and records that a sign-out or a deletion has ended.
    pub left: BTreeMap<String, u64>,
    pub done: bool,
    /// Position for the next call; null when it is done.
    pub next: Option<String>,
}

impl From<Migrated> for ScopeMigrated {
    fn from(migrated: Migrated) -> Self {
        Self {
            moved: by_name(&migrated.moved),
            conflicts: migrated.conflicts,
            left: by_name(&migrated.left),
            done: migrated.next.is_none(),
            next: migrated.next.map(|next| next.to_string()),
        }
    }
}

/// Requests without a scope, of one key to one route.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct UnscopedAnswer {
    /// Id of the key; `root` for the root key.
    pub key: String,
    pub route: String,
    pub count: u64,
    pub last_at: u64,
}
