//! Requests that name no scope: warnings, refusals, and a report of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderValue;
use ebbtide::Timestamp;
use ebbtide_api::scopes::UnscopedAnswer;
use metrics::counter;

use crate::http::problem::Problem;

/// Header of an answer to a request without a scope.
pub(crate) const WARNING: &str = "ebbtide-warning";

/// Most entries of the report. Requests beyond them are counted by the metric alone.
const MOST_ENTRIES: usize = 10_000;

/// Treatment of requests that name no scope, and of the global scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScopeRules {
    /// Warn about a request without a scope: in the log, by a metric, and by a header of the answer.
    pub warn: bool,
    /// Refuse it.
    pub require: bool,
    /// Keep the global scope for keys with the role admin.
    pub global_for_admins: bool,
}

impl Default for ScopeRules {
    /// Warn, and refuse nothing.
    fn default() -> Self {
        Self { warn: true, require: false, global_for_admins: false }
    }
}

/// Rules, and the requests without a scope by key and route.
#[derive(Debug, Default)]
pub(crate) struct Scoping {
    pub(crate) rules: ScopeRules,
    seen: Mutex<HashMap<(String, String), Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    count: u64,
    last_at: Timestamp,
}

impl Scoping {
    pub(crate) fn new(rules: ScopeRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Counts a request without a scope, and refuses it if one is required.
    pub(crate) fn note(&self, key: &str, route: &str, now: Timestamp) -> Result<(), Problem> {
        if self.rules.warn {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let names = (key.to_owned(), route.to_owned());
            if seen.len() < MOST_ENTRIES || seen.contains_key(&names) {
                let entry = seen.entry(names).or_insert_with(|| {
                    tracing::warn!(key, route, "a request names no scope; send the header Ebbtide-Scope");
                    Seen { count: 0, last_at: now }
                });
                (entry.count, entry.last_at) = (entry.count + 1, now);
            }
            drop(seen);
            counter!("ebbtide_unscoped_requests_total", "route" => route.to_owned()).increment(1);
        }
        if self.rules.require {
            return Err(Problem::invalid("the request names no scope; send the header Ebbtide-Scope"));
        }
        Ok(())
    }

    /// Requests without a scope, most frequent first.
    pub(crate) fn report(&self) -> Vec<UnscopedAnswer> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = seen
            .iter()
            .map(|((key, route), seen)| UnscopedAnswer {
                key: key.clone(),
                route: route.clone(),
                count: seen.count,
                last_at: seen.last_at.as_millis(),
            })
            .collect();
        all.sort_by(|one, other| {
            other.count.cmp(&one.count).then_with(|| (&one.key, &one.route).cmp(&(&other.key, &other.route)))
        });
        all
    }

    /// Header of an answer to a request without a scope.
    pub(crate) fn warning() -> HeaderValue {
        HeaderValue::from_static("no scope: send the header Ebbtide-Scope")
    }
}
