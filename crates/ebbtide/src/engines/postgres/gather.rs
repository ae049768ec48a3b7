//! Gathering of single inserts: those that arrive together go out as one statement.
//!
//! A lone caller does not wait: if no statement is in flight, its own goes out at once. Inserts that arrive meanwhile
//! are gathered, and go out when that one returns. Each caller gets the answer for its own row.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::link::{Link, Repeat};
use super::params::{Bytea, column, millis, only};
use super::sql::Sql;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Maximum number of statements of one kind in flight.
const LANES: usize = 2;

/// Number of waiting rows for which a further statement goes out beside one in flight.
const ENOUGH_FOR_A_LANE: usize = 16;

/// Maximum number of rows, and of bytes, in one statement.
const MOST_ROWS: usize = 512;
const MOST_BYTES: usize = 4_000_000;

/// Gatherer of the inserts of one kind.
pub(super) struct Gatherer {
    kind: Kind,
    link: Arc<Link>,
    sql: Arc<Sql>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Insert>,
    lanes: usize,
}

/// Insert of one caller, and the channel for its answer.
struct Insert {
    key: Key,
    record: Record,
    now: Timestamp,
    answer: oneshot::Sender<Result<bool>>,
}

impl Gatherer {
    pub(super) fn new(kind: Kind, link: Arc<Link>, sql: Arc<Sql>) -> Self {
        Self { kind, link, sql, state: Mutex::default() }
    }

    /// Returns true if the record was written, because no record was live at its key.
    pub(super) async fn insert(self: &Arc<Self>, key: Key, record: Record, now: Timestamp) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        let opens_a_lane = {
            let mut state = self.state();
            state.waiting.push(Insert { key, record, now, answer });
            let opens = state.lanes == 0 || (state.lanes < LANES && state.waiting.len() >= ENOUGH_FOR_A_LANE);
            state.lanes += usize::from(opens);
            opens
        };
        if opens_a_lane {
            // A separate task: a caller that is dropped does not cancel the other callers' answers.
            tokio::spawn(Arc::clone(self).drive());
        }
        answered.await.unwrap_or_else(|_| {
            Err(Error::unavailable("the statement was abandoned; the write may have happened"))
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the queue is in an inconsistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends waiting inserts until none is left.
    async fn drive(self: Arc<Self>) {
        // Closed on drop even if a statement panics: the next caller opens the lane again.
        let mut lane = Lane { gatherer: &self, open: true };
        while let Some(group) = lane.next() {
            self.send(group).await;
            // Let callers that were just answered enqueue their next insert, to share the next statement: yield a few
            // times for them to wake and reach the queue. This waits for nothing.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn send(&self, group: Vec<Insert>) {
        let (first, followers) = split(group);
        let outcome = self.write(&first).await;
        match outcome {
            Ok(written) => {
                let mut verdicts = HashMap::with_capacity(if followers.is_empty() { 0 } else { first.len() });
                for insert in first {
                    let written = written.holds(&insert.key);
                    if !followers.is_empty() {
                        verdicts.insert(
                            insert.key,
                            Verdict { written, now: insert.now, expires_at: insert.record.expires_at },
                        );
                    }
                    let _ = insert.answer.send(Ok(written));
                }
                self.answer_followers(followers, &verdicts);
            }
            Err(error) => {
                for insert in first.into_iter().chain(followers) {
                    let _ = insert.answer.send(Err(again(&error)));
                }
            }
        }
    }

    /// Executes the statement, and returns the inserts it wrote.
    async fn write(&self, inserts: &[Insert]) -> Result<Written> {
        let keys: Vec<_> = inserts.iter().map(|insert| Bytea(insert.key.as_bytes())).collect();
        let values: Vec<_> = inserts.iter().map(|insert| Bytea(&insert.record.value)).collect();
        let versions: Vec<_> = inserts.iter().map(|insert| Bytea(insert.record.version.as_bytes())).collect();
        let expires_at: Vec<_> = inserts.iter().map(|insert| millis(insert.record.expires_at)).collect();
        let nows: Vec<_> = inserts.iter().map(|insert| millis(insert.now)).collect();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&keys, &values, &versions, &expires_at, &nows];
        let answer = self.link.run(Repeat::Write, &self.sql.of(self.kind).insert, &params).await?;
        let some: Option<Vec<Option<Vec<u8>>>> = column(only(&answer.rows)?, 0)?;
        Ok(match some {
            None => Written::All,
            Some(keys) => Written::Some(keys.into_iter().flatten().collect()),
        })
    }

    /// Answers later inserts of the same key as if they came right after the first, if that settles them; the others
    /// go to the server with the next statement.
    fn answer_followers(&self, followers: Vec<Insert>, verdicts: &HashMap<Key, Verdict>) {
        for insert in followers {
            if verdicts.get(&insert.key).is_some_and(|first| first.refuses(insert.now)) {
                let _ = insert.answer.send(Ok(false));
            } else {
                self.state().waiting.push(insert);
            }
        }
    }
}

/// Inserts that a statement wrote.
enum Written {
    All,
    Some(HashSet<Vec<u8>>),
}

impl Written {
    fn holds(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Some(keys) => keys.contains(key.as_bytes()),
        }
    }
}

/// Outcome of the first insert of a key.
struct Verdict {
    written: bool,
    now: Timestamp,
    expires_at: Timestamp,
}

impl Verdict {
    /// Returns true if a second insert, right after the first, certainly meets a live record.
    fn refuses(&self, now: Timestamp) -> bool {
        if self.written {
            now < self.expires_at
        } else {
            // A record was live at the first insert's time, and so at every earlier one; its expiry is not known
            // here.
            now <= self.now
        }
    }
}

/// Slot for one of the statements in flight.
struct Lane<'a> {
    gatherer: &'a Gatherer,
    open: bool,
}

impl Lane<'_> {
    /// Takes the next inserts. If none waits, the lane closes in the same step, so that the next caller opens one.
    fn next(&mut self) -> Option<Vec<Insert>> {
        let mut state = self.gatherer.state();
        if state.waiting.is_empty() {
            state.lanes -= 1;
            self.open = false;
            return None;
        }
        let mut bytes = 0;
        let fits = |insert: &&Insert| {
            bytes += insert.key.as_bytes().len() + insert.record.value.len();
            bytes <= MOST_BYTES
        };
        let count = state.waiting.iter().take(MOST_ROWS).take_while(fits).count().max(1);
        Some(state.waiting.drain(..count).collect())
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if self.open {
            self.gatherer.state().lanes -= 1;
        }
    }
}

/// Splits off the first insert of each key, in the order of the keys, in which the server takes them; the rest keep
/// the order in which they arrived.
fn split(group: Vec<Insert>) -> (Vec<Insert>, Vec<Insert>) {
    let mut met = HashSet::with_capacity(group.len());
    let (mut first, followers): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|insert| met.insert(insert.key.clone()));
    first.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    (first, followers)
}

/// Copies an error for a further caller.
fn again(error: &Error) -> Error {
    let kind = match error.kind() {
        // The statement holds the inserts of many callers: none of them can fix it.
        ErrorKind::Invalid => ErrorKind::Unavailable,
        kind => kind,
    };
    let copy = Error::new(kind, error.message());
    match std::error::Error::source(error) {
        Some(cause) => copy.caused_by(cause.to_string()),
        None => copy,
    }
}
