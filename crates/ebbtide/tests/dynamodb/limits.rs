//! Limits of the engine that no emulator has: transactions that conflict over an item, items that are throttled, and
//! batches that are dealt with in part.

use std::collections::{HashMap, HashSet};

use ebbtide::Stopwatch;
use serde_json::{Value, json};

/// Writes to one item within a second, beyond which it is throttled.
const WRITES: usize = 1_000;

/// Model of the limits, between the SDK and an emulator.
#[derive(Default)]
pub(crate) struct Limits {
    /// Items of the transactions in flight.
    taken: HashSet<String>,
    writes: HashMap<String, (Option<Stopwatch>, usize)>,
    /// Tokens of the transactions so far: one that was sent again has the token that it had.
    tokens: HashSet<String>,
    /// Number of transactions that wrote or checked each item.
    touched: HashMap<String, usize>,
    batches: usize,
    pub(crate) conflicts: usize,
    pub(crate) throttled: usize,
    pub(crate) partial: usize,
}

/// Decision about a request.
pub(crate) enum Verdict {
    /// It is passed on; these items are taken until it is answered.
    Pass(Vec<String>),
    /// This error is answered.
    Refuse(String),
    /// A part of it is passed on, and these keys are answered as not dealt with.
    Part { body: Vec<u8>, left: Value },
}

impl Limits {
    pub(crate) fn judge(&mut self, operation: &str, body: &[u8]) -> Verdict {
        let Ok(request) = serde_json::from_slice::<Value>(body) else { return Verdict::Pass(Vec::new()) };
        match operation {
            "TransactWriteItems" => self.judge_transaction(&request),
            "PutItem" | "UpdateItem" | "DeleteItem" => self.judge_write(&request),
            "BatchGetItem" => self.judge_batch(request),
            _ => Verdict::Pass(Vec::new()),
        }
    }

    /// Largest number of transactions that wrote or checked one item.
    pub(crate) fn most_touched(&self) -> usize {
        self.touched.values().copied().max().unwrap_or_default()
    }

    /// The answer has been sent.
    pub(crate) fn release(&mut self, items: &[String]) {
        for item in items {
            self.taken.remove(item);
        }
    }

    fn judge_transaction(&mut self, request: &Value) -> Verdict {
        let writes = request["TransactItems"].as_array().expect("a transaction has items");
        let items: Vec<String> = writes.iter().map(|write| item(only(write))).collect();
        if self.tokens.insert(request["ClientRequestToken"].to_string()) {
            for item in &items {
                *self.touched.entry(item.clone()).or_default() += 1;
            }
        }
        let conflicts: Vec<bool> = items.iter().map(|item| self.taken.contains(item)).collect();
        if conflicts.contains(&true) {
            self.conflicts += 1;
            let code = |conflict: &bool| if *conflict { "TransactionConflict" } else { "None" };
            let reasons: Vec<_> = conflicts.iter().map(|conflict| json!({"Code": code(conflict)})).collect();
            let answer = json!({
                "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "Message": "made up", "CancellationReasons": reasons,
            });
            return Verdict::Refuse(answer.to_string());
        }
        if items.iter().any(|item| self.is_throttled(item)) {
            return refuse("ThrottlingException");
        }
        self.taken.extend(items.iter().cloned());
        Verdict::Pass(items)
    }

    fn judge_write(&mut self, request: &Value) -> Verdict {
        let item = item(request);
        if self.taken.contains(&item) {
            self.conflicts += 1;
            return refuse("TransactionConflictException");
        }
        if self.is_throttled(&item) {
            return refuse("ProvisionedThroughputExceededException");
        }
        Verdict::Pass(Vec::new())
    }

    /// Every other batch is dealt with in part.
    fn judge_batch(&mut self, mut request: Value) -> Verdict {
        self.batches += 1;
        let tables = request["RequestItems"].as_object_mut().expect("a batch has tables");
        let (name, wanted) = tables.iter_mut().next().expect("one table");
        let keys = wanted["Keys"].as_array_mut().expect("keys");
        if self.batches.is_multiple_of(2) || keys.len() < 2 {
            return Verdict::Pass(Vec::new());
        }
        self.partial += 1;
        let rest = keys.split_off(keys.len() / 2);
        let mut left = wanted.clone();
        left["Keys"] = Value::Array(rest);
        let left = json!({ name: left });
        Verdict::Part { body: request.to_string().into_bytes(), left }
    }

    fn is_throttled(&mut self, item: &str) -> bool {
        let (since, count) = self.writes.entry(item.to_owned()).or_default();
        if since.as_ref().is_none_or(|since| since.elapsed().as_secs() >= 1) {
            (*since, *count) = (Some(Stopwatch::start()), 0);
        }
        *count += 1;
        let throttled = *count > WRITES;
        self.throttled += usize::from(throttled);
        throttled
    }
}

/// The write inside of an item of a transaction.
fn only(write: &Value) -> &Value {
    write.as_object().and_then(|write| write.values().next()).expect("one write")
}

/// Name of the item that a write concerns.
fn item(write: &Value) -> String {
    let key = if write["Item"].is_object() { &write["Item"] } else { &write["Key"] };
    format!("{} {}", key["pk"]["B"], key["sk"]["B"])
}

fn refuse(code: &str) -> Verdict {
    let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
    Verdict::Refuse(json!({"__type": kind, "message": "made up"}).to_string())
}

/// Adds what was left to the answer of a part.
pub(crate) fn with_left(answer: &[u8], left: Value) -> Vec<u8> {
    let mut answer: Value = serde_json::from_slice(answer).expect("an answer is JSON");
    answer["UnprocessedKeys"] = left;
    answer.to_string().into_bytes()
}
