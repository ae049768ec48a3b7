//! Requests that name no scope: warnings, refusals, and a report of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use axum::http::HeaderValue;
use ebbtide::Timestamp;
use ebbtide_api::scopes::UnscopedAnswer;

use crate::http::problem::Problem;
use crate::http::route::Route;

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
    seen: RwLock<Seen>,
}

/// Requests without a scope.
#[derive(Debug, Default)]
struct Seen {
    /// By key, then by route.
    entries: HashMap<String, HashMap<String, UnscopedUse>>,
    count: usize,
}

#[derive(Debug)]
struct UnscopedUse {
    count: AtomicU64,
    /// In milliseconds.
    last_at: AtomicU64,
}

impl UnscopedUse {
    fn note(&self, now: Timestamp) {
        self.count.fetch_add(1, Ordering::Relaxed);
        // Most requests come within the millisecond of another.
        if self.last_at.load(Ordering::Relaxed) < now.as_millis() {
            self.last_at.fetch_max(now.as_millis(), Ordering::Relaxed);
        }
    }
}

impl Seen {
    fn entry(&self, key: &str, route: &str) -> Option<&UnscopedUse> {
        self.entries.get(key)?.get(route)
    }

    /// Adds an entry, if there is room. Answers whether it did.
    fn add(&mut self, key: &str, route: &str, now: Timestamp) -> bool {
        if let Some(entry) = self.entry(key, route) {
            entry.note(now);
            return false;
        }
        if self.count >= MOST_ENTRIES {
            return false;
        }
        self.count += 1;
        let entry = UnscopedUse { count: AtomicU64::new(1), last_at: AtomicU64::new(now.as_millis()) };
        self.entries.entry(key.to_owned()).or_default().insert(route.to_owned(), entry);
        true
    }
}

impl Scoping {
    pub(crate) fn new(rules: ScopeRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Counts a request without a scope, and refuses it if one is required.
    pub(crate) fn note(&self, key: &str, route: &Route, now: Timestamp) -> Result<(), Problem> {
        if self.rules.warn {
            let template = route.template();
            let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
            let is_known = seen.entry(key, template).map(|entry| entry.note(now)).is_some();
            let is_new = !is_known && seen.count < MOST_ENTRIES;
            drop(seen);
            if is_new && self.seen.write().unwrap_or_else(PoisonError::into_inner).add(key, template, now) {
                tracing::warn!(
                    key,
                    route = template,
                    "a request names no scope; send the header Ebbtide-Scope, or AUTH SCOPE KEY over the Redis protocol"
                );
            }
            route.count_unscoped();
        }
        if self.rules.require {
            return Err(Problem::invalid("the request names no scope; send the header Ebbtide-Scope")
                .with("member", "Ebbtide-Scope"));
        }
        Ok(())
    }

    /// Requests without a scope, most frequent first.
    pub(crate) fn report(&self) -> Vec<UnscopedAnswer> {
        let seen = self.seen.read().unwrap_or_else(PoisonError::into_inner);
        let routes = seen.entries.iter().flat_map(|(key, routes)| routes.iter().map(move |one| (key, one)));
        let mut all: Vec<_> = routes
            .map(|(key, (route, entry))| UnscopedAnswer {
                key: key.clone(),
                route: route.clone(),
                count: entry.count.load(Ordering::Relaxed),
                last_at: entry.last_at.load(Ordering::Relaxed),
            })
            .collect();
        drop(seen);
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
