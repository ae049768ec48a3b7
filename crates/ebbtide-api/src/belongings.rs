//! Records that belong to others.

use ebbtide::stores::shared::belongings::{Belonging, Reconciled};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Record that would be removed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BelongingAnswer {
    pub kind: String,
    /// Names of the record, such as owner, bucket and name.
    pub names: Vec<String>,
}

impl From<&Belonging> for BelongingAnswer {
    fn from(belonging: &Belonging) -> Self {
        Self { kind: belonging.kind.to_string(), names: belonging.names.clone() }
    }
}

/// Scopes to reconcile.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileRequest {
    /// Includes the scopes that the request's covers.
    #[serde(default)]
    pub below: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReconciledAnswer {
    /// Links and index records that were removed since their record is gone.
    pub links: u64,
    /// Records that were removed since what they belonged to is gone.
    pub records: u64,
}

impl From<Reconciled> for ReconciledAnswer {
    fn from(done: Reconciled) -> Self {
        Self { links: done.links, records: done.records }
    }
}
