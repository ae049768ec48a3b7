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
}

impl StatsAnswer {
    #[must_use]
    pub fn new(stats: &Stats, warnings: Vec<String>) -> Self {
        Self { kinds: stats.iter().map(|(kind, stats)| (kind.to_string(), stats.into())).collect(), warnings }
    }
}
