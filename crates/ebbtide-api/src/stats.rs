//! Statistics of a store.

use std::collections::BTreeMap;

use ebbtide::{KindStats, Stats};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kinds to sweep.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepRequest {
    /// Names of kinds, such as `replays`, each with the index records of its store; all kinds by default.
    #[schema(example = json!(["replays"]))]
    pub kinds: Option<Vec<String>>,
    /// Share of the time that the sweep may use, 0.01 to 1; 1 by default.
    #[schema(minimum = 0.01, maximum = 1)]
    pub budget: Option<f64>,
    /// Time after which the sweep stops and answers `more`, in milliseconds; no limit by default.
    #[schema(minimum = 1)]
    pub time_limit_ms: Option<u64>,
    /// Gives way to another sweep that is running: 409 conflict. Otherwise both run, which does no harm.
    #[serde(default)]
    pub exclusive: bool,
    /// Lease of the sweep, in milliseconds, which is renewed while it makes progress; by default the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub turn_ms: Option<u64>,
    /// Age of an overdue record, in milliseconds, from which a sweep that removes nothing is a fault; by default the
    /// server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub overdue_ms: Option<u64>,
    /// Counts the removed codes, grants, access tokens and sessions by profile too; this reads every record of theirs.
    #[serde(default)]
    pub by_profile: bool,
}

/// Removed records.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SweepAnswer {
    /// By kind.
    #[serde(flatten)]
    pub removed: BTreeMap<String, u64>,
    /// True if the time limit was reached: the rest is left to the next sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<bool>,
    /// Removed codes, grants, access tokens and sessions by profile and kind, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_profile: Option<BTreeMap<String, BTreeMap<String, u64>>>,
}

/// Records of one kind, over all scopes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KindStatsAnswer {
    pub live: u64,
    /// Expired, and not yet swept.
    pub expired: u64,
    pub oldest_overdue_seconds: Option<u64>,
}

impl From<&KindStats> for KindStatsAnswer {
    fn from(stats: &KindStats) -> Self {
        let oldest_overdue_seconds = stats.oldest_overdue.map(|age| age.as_secs());
        Self { live: stats.live, expired: stats.expired, oldest_overdue_seconds }
    }
}

/// State of a store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StatsAnswer {
    pub kinds: BTreeMap<String, KindStatsAnswer>,
    /// Faults that an operator should fix.
    pub warnings: Vec<String>,
    /// True if the engine removes expired records by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reclaims_itself: bool,
}

impl StatsAnswer {
    #[must_use]
    pub fn new(stats: &Stats, warnings: Vec<String>, reclaims_itself: bool) -> Self {
        let kinds = stats.iter().map(|(kind, stats)| (kind.to_string(), stats.into())).collect();
        Self { kinds, warnings, reclaims_itself }
    }
}
