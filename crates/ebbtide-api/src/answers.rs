//! What several calls answer with.

use std::collections::BTreeMap;

use ebbtide::ops::explain::Explanation;
use ebbtide::stores::audit::Entry;
use ebbtide::{Kind, KindStats, Reach, Stats, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// A time as callers get it: milliseconds since 1970, or null where there is no end.
#[must_use]
pub fn millis(time: Timestamp) -> Option<u64> {
    (!time.is_never()).then(|| time.as_millis())
}

/// A page of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// Where the next page begins: the `after` of the next request. Null at the end.
    pub next: Option<String>,
}

/// How many records were deleted.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deleted {
    pub deleted: u64,
}

/// How many were good until now, and are not any more.
#[derive(Debug, Serialize, ToSchema)]
pub struct Revoked {
    pub revoked: u64,
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub struct EntryAnswer {
    /// Its number, without a gap.
    pub sequence: u64,
    pub at: Option<u64>,
    #[schema(example = "extend")]
    pub action: &'static str,
    pub actor: String,
    pub reason: String,
    pub kind: Option<&'static str>,
    /// The names of the record.
    pub target: Vec<String>,
    /// When it would have ended, for a life that was changed.
    pub before: Option<u64>,
    /// When it ends since.
    pub after: Option<u64>,
    pub detail: Option<String>,
    /// Its place in the chain: number and hash.
    pub mark: String,
}

impl From<&Entry> for EntryAnswer {
    fn from(entry: &Entry) -> Self {
        Self {
            sequence: entry.sequence,
            at: millis(entry.at),
            action: entry.action.name(),
            actor: entry.actor.clone(),
            reason: entry.reason.clone(),
            kind: entry.kind.map(Kind::name),
            target: entry.target.clone(),
            before: entry.before.and_then(millis),
            after: entry.after.and_then(millis),
            detail: entry.detail.clone(),
            mark: entry.mark().to_string(),
        }
    }
}

/// What became of a record.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExplanationAnswer {
    pub kind: &'static str,
    pub scope: String,
    /// `live`, `expired`, `used` or `revoked`.
    #[schema(example = "live")]
    pub state: &'static str,
    /// Why, in words.
    pub why: String,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
    /// The latest end that it can have.
    pub cap_at: Option<u64>,
    /// The grant that it is, hangs on, or gave.
    pub grant_id: Option<String>,
    /// What the audit log tells of it, oldest first.
    pub history: Vec<EntryAnswer>,
}

impl From<&Explanation> for ExplanationAnswer {
    fn from(explanation: &Explanation) -> Self {
        Self {
            kind: explanation.kind.name(),
            scope: explanation.scope.to_string(),
            state: explanation.state.name(),
            why: explanation.why.clone(),
            created_at: explanation.created_at.and_then(millis),
            expires_at: explanation.expires_at.and_then(millis),
            cap_at: explanation.cap_at.and_then(millis),
            grant_id: explanation.grant_id.map(|id| id.to_string()),
            history: explanation.history.iter().map(EntryAnswer::from).collect(),
        }
    }
}

/// A scope that has records.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScopeAnswer {
    #[schema(example = "tenant:acme")]
    pub scope: String,
    /// How many are live.
    pub records: u64,
}

/// An audit log that is whole.
#[derive(Debug, Serialize, ToSchema)]
pub struct WholeLog {
    #[schema(example = "tenant:acme")]
    pub scope: String,
    pub entries: u64,
    /// Where the chain ends, number and hash: kept elsewhere, it is the `mark` of a later question.
    pub head: Option<String>,
}

/// How many records a scope has, by kind.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScopeCounts {
    pub scope: String,
    /// Whether the scopes that it covers are counted too.
    pub below: bool,
    pub counts: BTreeMap<&'static str, u64>,
    pub total: u64,
}

/// How many records a scope had, by kind.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScopeDeleted {
    pub scope: String,
    /// Whether the scopes that it covers are deleted too.
    pub below: bool,
    pub deleted: BTreeMap<&'static str, u64>,
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

/// Counts by the names of kinds.
#[must_use]
pub fn by_name(counts: &BTreeMap<Kind, u64>) -> BTreeMap<&'static str, u64> {
    counts.iter().map(|(kind, count)| (kind.name(), *count)).collect()
}

/// The records of one kind, over all scopes.
#[derive(Debug, Serialize, ToSchema)]
pub struct KindStatsAnswer {
    live: u64,
    /// Expired, and still present.
    expired: u64,
    oldest_overdue_seconds: Option<u64>,
}

impl From<&KindStats> for KindStatsAnswer {
    fn from(stats: &KindStats) -> Self {
        let oldest_overdue_seconds = stats.oldest_overdue.map(|age| age.as_secs());
        Self { live: stats.live, expired: stats.expired, oldest_overdue_seconds }
    }
}

/// The state of a store.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatsAnswer {
    kinds: BTreeMap<&'static str, KindStatsAnswer>,
    /// What an operator should mend.
    warnings: Vec<String>,
}

impl StatsAnswer {
    #[must_use]
    pub fn new(stats: &Stats, warnings: Vec<String>) -> Self {
        Self { kinds: stats.iter().map(|(kind, stats)| (kind.name(), stats.into())).collect(), warnings }
    }
}
