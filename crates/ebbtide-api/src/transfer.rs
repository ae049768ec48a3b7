//! Requests and answers of `/v1/export` and `/v1/import`. The items are the lines of `ebbtide export`.

use std::collections::BTreeMap;

use ebbtide::ops::transfer::ImportOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Most items of one import.
pub const MAX_IMPORT_ITEMS: usize = 500;

/// Records to import.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// Items of an export, or lines of another system: 1 to 500. One that is no object is skipped with the reason.
    #[schema(value_type = Vec<Value>, min_items = 1, max_items = 500)]
    pub items: Vec<Value>,
    /// Scope of the items that name none; that of the request by default. An item that names another one is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "tenant:acme")]
    pub scope: Option<String>,
    /// Scopes that items name, each with the scope that these items are imported into.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scope_map: BTreeMap<String, String>,
    /// Imports the other items into the scopes that they name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_scopes: bool,
    /// Writes nothing, and answers as if it had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Name that the caller claims to act for; the audit log has it beside the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// Reason for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Outcome of importing an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImportedItem {
    /// Kind of the record that was written, or would have been.
    Written(String),
    /// Reason why nothing was written.
    Skipped(String),
}

impl From<ImportOutcome> for ImportedItem {
    fn from(outcome: ImportOutcome) -> Self {
        match outcome {
            ImportOutcome::Written(kind) => Self::Written(kind.name().to_owned()),
            ImportOutcome::Skipped(why) => Self::Skipped(why),
            other => Self::Skipped(format!("{other:?}")),
        }
    }
}

/// Outcomes of an import.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportAnswer {
    /// One for each item, in their order.
    pub outcomes: Vec<ImportedItem>,
    /// Number of items that were written, or would have been.
    pub written: u64,
    pub skipped: u64,
}

impl From<Vec<ImportedItem>> for ImportAnswer {
    fn from(outcomes: Vec<ImportedItem>) -> Self {
        let is_written = |outcome: &&ImportedItem| matches!(outcome, ImportedItem::Written(_));
        let written = outcomes.iter().filter(is_written).count() as u64;
        Self { written, skipped: outcomes.len() as u64 - written, outcomes }
    }
}
