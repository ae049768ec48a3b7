//! How what the stores answer is written as JSON, over HTTP and on the command line alike.

use std::collections::BTreeMap;

use ebbtide::audit::Entry;
use ebbtide::stores::api_keys::ApiKey;
use ebbtide::stores::explain::Explanation;
use ebbtide::{Kind, KindStats, Reach, Stats, Timestamp};
use serde_json::{Map, Value, json};

/// A time: milliseconds, or null where there is no end.
#[must_use]
pub fn millis(time: Timestamp) -> Value {
    if time.is_never() { Value::Null } else { time.as_millis().into() }
}

/// A key; never the secret.
#[must_use]
pub fn api_key(key: &ApiKey) -> Value {
    json!({
        "id": key.id.to_string(),
        "scope": key.scope.to_string(),
        "role": key.role.name(),
        "name": key.name,
        "rate_limit": key.rate_limit,
        "created_at": millis(key.created_at),
        "expires_at": millis(key.expires_at),
    })
}

/// An entry of the audit log.
#[must_use]
pub fn entry(entry: &Entry) -> Value {
    json!({
        "sequence": entry.sequence,
        "at": millis(entry.at),
        "action": entry.action.name(),
        "actor": entry.actor,
        "reason": entry.reason,
        "kind": entry.kind.map(Kind::name),
        "target": entry.target,
        "before": entry.before.map(millis),
        "after": entry.after.map(millis),
        "detail": entry.detail,
        "mark": entry.mark().to_string(),
    })
}

/// What became of a record.
#[must_use]
pub fn explanation(explanation: &Explanation) -> Value {
    json!({
        "kind": explanation.kind.name(),
        "scope": explanation.scope.to_string(),
        "state": explanation.state.name(),
        "why": explanation.why,
        "created_at": explanation.created_at.map(millis),
        "expires_at": explanation.expires_at.map(millis),
        "cap_at": explanation.cap_at.map(millis),
        "grant_id": explanation.grant_id.map(|id| id.to_string()),
        "history": explanation.history.iter().map(entry).collect::<Vec<_>>(),
    })
}

/// Counts by kind of what a scope has, or had: `what` is `counts` or `deleted`.
#[must_use]
pub fn counts(reach: &Reach, what: &str, counts: &BTreeMap<Kind, u64>) -> Value {
    let by_kind: Map<_, _> =
        counts.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
    let (below, total) = (matches!(reach, Reach::Below(_)), counts.values().sum::<u64>());
    json!({"scope": reach.scope().to_string(), "below": below, what: by_kind, "total": total})
}

/// The state of a store, and what its operator should know.
#[must_use]
pub fn stats(stats: &Stats, warnings: &[String]) -> Value {
    let of = |(kind, stats): (&Kind, &KindStats)| {
        let overdue = stats.oldest_overdue.map(|age| age.as_secs());
        let value = json!({"live": stats.live, "expired": stats.expired, "oldest_overdue_seconds": overdue});
        (kind.name().to_owned(), value)
    };
    json!({"kinds": stats.iter().map(of).collect::<Map<_, _>>(), "warnings": warnings})
}
