//! Single inserts that arrive together go out as one statement.
//!
//! A lone caller does not wait: when no statement is under way, its own goes out at once. What arrives meanwhile is
//! gathered, and goes out when that one comes back. Each caller gets the answer for its own row.

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

/// How many statements of one kind are under way at the most.
const LANES: usize = 2;

/// How many rows must wait for a further statement to go out beside one that is under way.
const ENOUGH_FOR_A_LANE: usize = 16;

/// The most rows, and the most bytes, of one statement.
const MOST_ROWS: usize = 512;
const MOST_BYTES: usize = 4_000_000;

/// Gathers the inserts of one kind.
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

/// One caller's insert, and where its answer goes.
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

    /// Whether the record was written: nothing was live at its key.
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
            // A task of its own: a caller that goes away takes nobody else's answer with it.
            tokio::spawn(Arc::clone(self).drive());
        }
        answered.await.unwrap_or_else(|_| Err(Error::unavailable("the statement was given up")))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the queue is half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits until nothing does.
    async fn drive(self: Arc<Self>) {
        // Closed also if a statement panics: the next caller opens the lane again.
        let mut lane = Lane { gatherer: &self, open: true };
        while let Some(group) = lane.next() {
            self.send(group).await;
            // Callers that were answered and come again at once are let in first, to share the next statement: some
            // turns for them to wake, and for what they do to reach the queue. Nobody waits for anything here.
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

    /// What was written.
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

    /// Those that came for a key behind another are judged as right after it, where that settles it; the others go
    /// to the server with the next statement.
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

/// Which inserts of a statement were written.
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

/// What became of the first insert of a key.
struct Verdict {
    written: bool,
    now: Timestamp,
    expires_at: Timestamp,
}

impl Verdict {
    /// Whether a second insert, right after the first, surely meets a live record.
    fn refuses(&self, now: Timestamp) -> bool {
        if self.written {
            now < self.expires_at
        } else {
            // Something was live at the first one's time, and so at every earlier one; how long it lives is not
            // known here.
            now <= self.now
        }
    }
}

/// One of the statements that may be under way.
struct Lane<'a> {
    gatherer: &'a Gatherer,
    open: bool,
}

impl Lane<'_> {
    /// What goes out next. If nothing waits, the lane is closed in the same step, so that whoever comes then opens
    /// one.
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

/// The first insert of each key in the order of the keys, in which the server takes them, and those behind it, in the
/// order in which they came.
fn split(group: Vec<Insert>) -> (Vec<Insert>, Vec<Insert>) {
    let mut met = HashSet::with_capacity(group.len());
    let (mut first, followers): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|insert| met.insert(insert.key.clone()));
    first.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    (first, followers)
}

/// The same error for a further caller.
fn again(error: &Error) -> Error {
    let kind = match error.kind() {
        // The statement holds the inserts of many: none of them can be mended by its caller.
        ErrorKind::Invalid => ErrorKind::Unavailable,
        kind => kind,
    };
    let copy = Error::new(kind, error.message());
    match std::error::Error::source(error) {
        Some(cause) => copy.caused_by(cause.to_string()),
        None => copy,
    }
}
