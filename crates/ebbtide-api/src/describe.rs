//! Answers of the stores as JSON values, for the command line.

use std::collections::BTreeMap;

use ebbtide::ops::explain::Explanation;
use ebbtide::stores::audit::{Break, Entry};
use ebbtide::timekeeping::{Accepted, ClockStatus};
use ebbtide::{Kind, Reach, Stats, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::answers;
use crate::audit::EntryAnswer;
use crate::clock::{ClockAccepted, ClockAnswer};
use crate::explain::ExplanationAnswer;
use crate::scopes::{ScopeCounts, ScopeDeleted};
use crate::stats::StatsAnswer;

fn json(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer is made of names, numbers and lists")
}

/// Time in milliseconds; null for a record that does not expire.
#[must_use]
pub fn millis(time: Timestamp) -> Value {
    answers::millis(time).into()
}

/// Entry of the audit log.
#[must_use]
pub fn entry(entry: &Entry) -> Value {
    json(EntryAnswer::from(entry))
}

/// State of a record.
#[must_use]
pub fn explanation(explanation: &Explanation) -> Value {
    json(ExplanationAnswer::from(explanation))
}

/// Fault of an entry of the audit log, in words.
#[must_use]
pub fn broken(why: Break) -> &'static str {
    match why {
        Break::Changed => "is not what was written",
        Break::Missing => "is missing",
        Break::Added => "was not written by the log",
    }
}

/// Counts by kind of the records of a scope: `what` is `counts` or `deleted`.
#[must_use]
pub fn counts(reach: &Reach, what: &str, counts: &BTreeMap<Kind, u64>) -> Value {
    if what == "deleted" {
        json(ScopeDeleted::new(reach, counts))
    } else {
        json(ScopeCounts::new(reach, counts))
    }
}

/// State of a store, with warnings.
#[must_use]
pub fn stats(stats: &Stats, warnings: &[String]) -> Value {
    json(StatsAnswer::new(stats, warnings.to_vec()))
}

/// State of the clock.
#[must_use]
pub fn clock(status: &ClockStatus) -> Value {
    json(ClockAnswer::from(status))
}

/// Acceptance of the wall clock.
#[must_use]
pub fn accepted(accepted: &Accepted) -> Value {
    json(ClockAccepted::from(accepted))
}
