//! Causes of refusals, kept for operators in bounded rings.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebbtide::Scope;
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::shared::refusal::RefusalCause;
use serde_json::{Map, Value};

use crate::http::route::{Route, Verb};

/// Cause of a refusal. The list is closed: a refusal has exactly one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The lifetime without use has ended.
    Idle,
    /// The lifetime has ended.
    Cap,
    /// The record was seen, used or consumed before.
    Used,
    /// Another request was faster.
    Raced,
    /// A secret for one use came twice.
    Reused,
    /// Somebody revoked it.
    Revoked,
    /// The subject signed out.
    SignOut,
    /// The owner or the client was deleted.
    Deleted,
    /// The record is from before a restore.
    Fence,
    /// The clock is in doubt.
    Clock,
    /// A quota, a rate limit or a bound of the server is reached.
    Quota,
    /// Nothing of this name was ever here.
    NeverHere,
    /// A bound value differs, or a condition does not hold.
    Condition,
    /// The request is malformed.
    Request,
    /// The key is not valid, or not sufficient.
    Key,
    /// The engine did not answer, or its data is damaged.
    Engine,
}

impl Cause {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Cap => "cap",
            Self::Used => "used",
            Self::Raced => "raced",
            Self::Reused => "reused",
            Self::Revoked => "revoked",
            Self::SignOut => "sign-out",
            Self::Deleted => "deleted",
            Self::Fence => "fence",
            Self::Clock => "clock",
            Self::Quota => "quota",
            Self::NeverHere => "never-here",
            Self::Condition => "condition",
            Self::Request => "request",
            Self::Key => "key",
            Self::Engine => "engine",
        }
    }

    /// Cause that a store noted for a problem of this type. A note that does not belong to the type is of something that
    /// the request did not fail of.
    pub(crate) fn noted(kind: &str, noted: RefusalCause) -> Option<Self> {
        match (kind, noted) {
            ("expired", RefusalCause::Idle) => Some(Self::Idle),
            ("expired" | "invalid" | "unknown", RefusalCause::Deleted) => Some(Self::Deleted),
            ("expired" | "used" | "reused" | "unavailable", RefusalCause::Fence) => Some(Self::Fence),
            ("unknown", RefusalCause::SignedOut) => Some(Self::SignOut),
            ("unknown", RefusalCause::ClientRevoked | RefusalCause::SessionEnded) => Some(Self::Revoked),
            _ => None,
        }
    }

    /// Cause of a problem type, unless the route knows better.
    pub(crate) fn of(kind: &str) -> Self {
        match kind {
            "replay" | "used" => Self::Used,
            "reused" => Self::Reused,
            "raced" => Self::Raced,
            "expired" => Self::Cap,
            "revoked" => Self::Revoked,
            "unknown" => Self::NeverHere,
            "exceeded" | "limited" | "quota" | "slow_down" | "too_many_guesses" => Self::Quota,
            "mismatch" | "conflict" | "pending" | "denied" => Self::Condition,
            "unauthorized" | "forbidden" => Self::Key,
            "unavailable" => Self::Engine,
            _ => Self::Request,
        }
    }
}

/// Refusal, as an operator asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) request_id: String,
    pub(crate) at: u64,
    pub(crate) verb: Verb,
    pub(crate) route: Arc<Route>,
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) cause: Cause,
    pub(crate) detail: String,
    pub(crate) more: Map<String, Value>,
    /// Id of the key and scope of the request; `None` if no key was accepted.
    pub(crate) caller: Option<(String, Scope)>,
    /// Revoked grant that the request was refused for.
    pub(crate) grant: Option<GrantId>,
}

/// Number of rings. A key has one of them, so that it cannot push out most refusals of others.
const RINGS: usize = 32;

/// Refusals in each ring.
const MOST: usize = 256;

/// Last refusals of this node.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    rings: [Mutex<VecDeque<Refusal>>; RINGS],
    hasher: RandomState,
}

impl Refusals {
    pub(crate) fn keep(&self, mut refusal: Refusal) {
        /// Members beyond this are left out: some list an outcome for each item of a batch.
        const MOST_MEMBERS_BYTES: usize = 1_024;
        // The value of a record that is retained after its end must not outlive the retention here.
        refusal.more.retain(|name, _| !matches!(name.as_str(), "value" | "value_base64"));
        if refusal.more.len() > 8
            || Value::Object(refusal.more.clone()).to_string().len() > MOST_MEMBERS_BYTES
        {
            refusal.more.clear();
        }
        let end =
            (0..=refusal.detail.len().min(1_024)).rev().find(|end| refusal.detail.is_char_boundary(*end));
        refusal.detail.truncate(end.unwrap_or(0));
        let caller = refusal.caller.as_ref().map(|(id, _)| id);
        let ring = usize::try_from(self.hasher.hash_one(caller) % RINGS as u64).unwrap_or_default();
        let mut ring = lock(&self.rings[ring]);
        if ring.len() >= MOST {
            ring.pop_front();
        }
        ring.push_back(refusal);
    }

    /// Returns the last refusal with this id that `scope` covers. Refusals without a caller are for the whole store's
    /// administrators.
    pub(crate) fn find(&self, request_id: &str, scope: &Scope) -> Option<Refusal> {
        let is_covered = |refusal: &&Refusal| match &refusal.caller {
            Some((_, of)) => scope.covers(of),
            None => *scope == Scope::Global,
        };
        let last = |ring| {
            lock(ring).iter().rev().filter(|one| one.request_id == request_id).find(is_covered).cloned()
        };
        self.rings.iter().filter_map(last).max_by_key(|refusal| refusal.at)
    }
}

fn lock(ring: &Mutex<VecDeque<Refusal>>) -> MutexGuard<'_, VecDeque<Refusal>> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::Routes;

    fn refusal(request_id: &str, key: &str) -> Refusal {
        let caller = Some((key.to_owned(), Scope::Global));
        Refusal {
            request_id: request_id.to_owned(),
            at: 0,
            verb: Verb::Get,
            route: Routes::new(Vec::new(), []).none(),
            status: 404,
            kind: "unknown",
            cause: Cause::NeverHere,
            detail: "ü".repeat(2_000),
            more: Map::new(),
            caller,
            grant: None,
        }
    }

    #[test]
    fn a_flood_of_one_key_leaves_most_refusals_of_others() {
        let refusals = Refusals::default();
        for other in 0..100 {
            refusals.keep(refusal(&format!("of {other}"), &format!("key {other}")));
        }
        for _ in 0..10_000 {
            refusals.keep(refusal("flood", "noisy"));
        }
        let kept =
            (0..100).filter(|other| refusals.find(&format!("of {other}"), &Scope::Global).is_some()).count();
        assert!(kept > 80, "{kept}");
        let all: usize = refusals.rings.iter().map(|ring| lock(ring).len()).sum();
        assert!(all <= MOST + 100, "{all}");
        assert!(refusals.find("flood", &Scope::Global).unwrap().detail.len() <= 1_024);
    }
}
