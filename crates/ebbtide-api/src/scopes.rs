//! Scopes.

use std::collections::BTreeMap;

use ebbtide::{Kind, Reach};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::by_name;

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
}

/// Deleted records of a scope, by kind.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeDeleted {
    pub scope: String,
    /// Includes the scopes that it covers.
    pub below: bool,
    pub deleted: BTreeMap<String, u64>,
    pub total: u64,
}

impl ScopeCounts {
    #[must_use]
    pub fn new(reach: &Reach, counts: &BTreeMap<Kind, u64>) -> Self {
        Self {
            scope: reach.scope().to_string(),
            below: matches!(reach, Reach::Below(_)),
            counts: by_name(counts),
            total: counts.values().sum(),
        }
    }
}

impl ScopeDeleted {
    #[must_use]
    pub fn new(reach: &Reach, deleted: &BTreeMap<Kind, u64>) -> Self {
        let ScopeCounts { scope, below, counts, total } = ScopeCounts::new(reach, deleted);
        Self { scope, below, deleted: counts, total }
    }
}
