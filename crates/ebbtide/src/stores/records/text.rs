//! Numbers in the values of records: as the Redis protocol counts, where a counter is a text.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Records;
use super::request::Modification;
use super::types::{IncrementTextOutcome, RecordId, RecordValue};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::Key;
use crate::model::ttl::check_collection;
use crate::stores::shared::life::RecordTtl;

/// Additions that wait for the one before, by record. Those that wait together are written together.
#[derive(Debug, Default)]
pub struct TextCounters(Mutex<HashMap<Key, Vec<Waiter>>>);

#[derive(Debug)]
struct Waiter {
    by: i64,
    answer: oneshot::Sender<Result<IncrementTextOutcome>>,
}

impl TextCounters {
    fn queues(&self) -> MutexGuard<'_, HashMap<Key, Vec<Waiter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue of a record. Returns true if nobody serves it yet.
    fn join(&self, key: &Key, waiter: Waiter) -> bool {
        let mut queues = self.queues();
        let first = !queues.contains_key(key);
        queues.entry(key.clone()).or_default().push(waiter);
        first
    }

    /// Everybody who waits; none, and the queue is closed, if nobody does.
    fn next(&self, key: &Key) -> Option<Vec<Waiter>> {
        let mut queues = self.queues();
        let waiting = queues.get_mut(key).map(std::mem::take).filter(|waiting| !waiting.is_empty());
        if waiting.is_none() {
            queues.remove(key);
        }
        waiting
    }
}

impl Records {
    /// Adds to the whole number that the value of a record is in decimal text, and keeps its end; an absent record is
    /// zero. Additions of one process to one record are gathered, so that a busy record costs few writes.
    pub async fn increment_text(
        &self,
        collection: &str,
        id: &RecordId,
        by: i64,
    ) -> Result<IncrementTextOutcome> {
        check_collection(collection)?;
        id.check("an id")?;
        let key = self.naming().await?.record(collection, id.as_bytes())?;
        let (answer, answered) = oneshot::channel();
        if self.stores.text_counters().join(&key, Waiter { by, answer }) {
            // In a task of its own: a caller that goes away takes no answer from the others.
            let (records, collection, id) = (self.clone(), collection.to_owned(), id.clone());
            tokio::spawn(async move {
                while let Some(waiting) = records.stores.text_counters().next(&key) {
                    records.add_all(&collection, &id, waiting).await;
                }
            });
        }
        answered
            .await
            .map_err(|_| Error::unavailable("the addition was abandoned; it may have been written"))?
    }

    /// Adds for everybody who waits, in one write.
    async fn add_all(&self, collection: &str, id: &RecordId, waiting: Vec<Waiter>) {
        let mut outcomes = Vec::with_capacity(waiting.len());
        let added = self.modify(collection, id, |found| {
            let number = found.map_or(Some(0), |found| parse(found.value.as_bytes()));
            let Some(before) = number else {
                outcomes = vec![IncrementTextOutcome::NotANumber; waiting.len()];
                return Ok(Modification::Keep);
            };
            let mut count = before;
            outcomes = waiting
                .iter()
                .map(|waiter| match count.checked_add(waiter.by) {
                    Some(sum) => {
                        count = sum;
                        IncrementTextOutcome::Counted(sum)
                    }
                    None => IncrementTextOutcome::Overflow,
                })
                .collect();
            if outcomes.iter().all(|outcome| *outcome == IncrementTextOutcome::Overflow) {
                return Ok(Modification::Keep);
            }
            Ok(Modification::Put { value: RecordValue::from_bytes(count.to_string()), life: RecordTtl::Keep })
        });
        let error = added.await.err();
        for (waiter, outcome) in
            waiting.into_iter().zip(outcomes.into_iter().map(Some).chain(std::iter::repeat(None)))
        {
            let answer = match (&error, outcome) {
                (None, Some(outcome)) => Ok(outcome),
                (Some(error), _) => Err(again(error)),
                (None, None) => Err(Error::unavailable("the addition was abandoned")),
            };
            // A caller that has gone away needs no answer.
            let _ = waiter.answer.send(answer);
        }
    }
}

/// The same error, for another caller.
pub(super) fn again(error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Invalid => Error::invalid(error.message()),
        ErrorKind::Unavailable => Error::unavailable(error.message()),
        ErrorKind::Corrupt => Error::corrupt(error.message()),
        ErrorKind::Expired => Error::expired(error.message()),
    }
}

/// Reads a whole number as it is written without a sign in front of a positive one, or zeros.
fn parse(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}
