//! What the stores answer, as JSON: on the command line as over HTTP.

use std::collections::BTreeMap;

use ebbtide::ops::explain::Explanation;
use ebbtide::stores::api_keys::ApiKey;
use ebbtide::stores::audit::{Break, Entry};
use ebbtide::{Kind, Reach, Stats, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::answers::{self, EntryAnswer, ExplanationAnswer, ScopeCounts, ScopeDeleted, StatsAnswer};
use crate::keys::KeyAnswer;

fn json(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer is made of names, numbers and lists")
}

/// A time: milliseconds, or null where there is no end.
#[must_use]
pub fn millis(time: Timestamp) -> Value {
    answers::millis(time).into()
}

/// A key; never the secret.
#[must_use]
pub fn api_key(key: &ApiKey) -> Value {
    json(KeyAnswer::from(key))
}

/// An entry of the audit log.
#[must_use]
pub fn entry(entry: &Entry) -> Value {
    json(EntryAnswer::from(entry))
}

/// What became of a record.
#[must_use]
pub fn explanation(explanation: &Explanation) -> Value {
    json(ExplanationAnswer::from(explanation))
}

/// What is wrong with an entry of the audit log, in words.
#[must_use]
pub fn broken(why: Break) -> &'static str {
    match why {
        Break::Changed => "is not what was written",
        Break::Missing => "is missing",
        Break::Added => "was not written by the log",
    }
}

/// Counts by kind of what a scope has, or had: `what` is `counts` or `deleted`.
#[must_use]
pub fn counts(reach: &Reach, what: &str, counts: &BTreeMap<Kind, u64>) -> Value {
    if what == "deleted" {
        json(ScopeDeleted::new(reach, counts))
    } else {
        json(ScopeCounts::new(reach, counts))
    }
}

/// The state of a store, and what its operator should know.
#[must_use]
pub fn stats(stats: &Stats, warnings: &[String]) -> Value {
    json(StatsAnswer::new(stats, warnings.to_vec()))
}
