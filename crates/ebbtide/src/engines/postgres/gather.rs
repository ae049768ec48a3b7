//! Gathering of single inserts: those that arrive together go out as one statement. Each caller gets the answer for
//! its own row.
//!
//! A row that another transaction has locked holds up its own callers alone: the statement gives up soon, its rows are
//! tried one by one, and no other statement takes a key that is still tried.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::lanes::{Lanes, Pick};
use super::link::{Link, Patient, Repeat};
use super::params::{Bytea, Param, column, millis, only};
use super::sql::Sql;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Maximum number of rows, and of bytes, in one statement.
const MOST_ROWS: usize = 512;
const MOST_BYTES: usize = 4_000_000;

/// Gatherer of the inserts of one kind.
pub(super) struct Gatherer {
    kind: Kind,
    link: Arc<Link>,
    sql: Arc<Sql>,
    lanes: Lanes<Insert>,
    /// Keys of the statements in flight.
    in_flight: Mutex<HashSet<Key>>,
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
        let lanes = Lanes::new(link.lanes());
        Self { kind, link, sql, lanes, in_flight: Mutex::default() }
    }

    /// Returns true if the record was written, because no record was live at its key.
    pub(super) async fn insert(self: &Arc<Self>, key: Key, record: Record, now: Timestamp) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        if self.lanes.push(Insert { key, record, now, answer }) {
            self.open_a_lane();
        }
        answered.await.unwrap_or_else(|_| {
            Err(Error::unavailable("the statement was abandoned; the write may have happened"))
        })
    }

    /// A separate task: a caller that is dropped does not cancel the other callers' answers.
    fn open_a_lane(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).drive());
    }

    fn in_flight(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends waiting inserts until none is left.
    async fn drive(self: Arc<Self>) {
        let mut lane = self.lanes.lane();
        loop {
            let mut keys = Taken { gatherer: Arc::clone(&self), keys: HashSet::new() };
            let Some(group) = lane.next(keys.picker()) else { return };
            {
                let mut sent = pin!(self.send(group, keys));
                if timeout(self.link.stall(), sent.as_mut()).await.is_err() {
                    if lane.stall() {
                        self.open_a_lane();
                    }
                    sent.await;
                    lane.go_on();
                }
            }
            // Let callers that were just answered enqueue their next insert, to share the next statement: yield a few
            // times for them to wake and reach the queue. This waits for nothing.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn send(self: &Arc<Self>, group: Vec<Insert>, keys: Taken) {
        let (first, followers) = split(group);
        match self.write(&first, Patience::Little).await {
            Ok(Some(written)) => self.tell(first, followers, &written),
            Ok(None) => {
                let gatherer = Arc::clone(self);
                tokio::spawn(async move { gatherer.send_each(first, followers, keys).await });
            }
            Err(error) => fail(first.into_iter().chain(followers), &error),
        }
    }

    /// Sends each of the inserts by itself: one of their rows is locked.
    async fn send_each(self: Arc<Self>, first: Vec<Insert>, followers: Vec<Insert>, keys: Taken) {
        let mut of: HashMap<Key, Vec<Insert>> = HashMap::new();
        for insert in followers {
            of.entry(insert.key.clone()).or_default().push(insert);
        }
        let alone = first.into_iter().map(|insert| {
            let followers = of.remove(&insert.key).unwrap_or_default();
            self.send_alone(insert, followers)
        });
        futures_util::future::join_all(alone).await;
        drop(keys);
    }

    async fn send_alone(&self, insert: Insert, followers: Vec<Insert>) {
        let mut all = std::iter::once(&insert).chain(&followers);
        if all.all(|insert| insert.answer.is_closed()) {
            return;
        }
        let one = [insert];
        match self.write(&one, Patience::Full).await {
            Ok(Some(written)) => self.tell(one.into(), followers, &written),
            Ok(None) => {
                let error = Error::unavailable("another transaction holds a lock on the record; retry");
                fail(one.into_iter().chain(followers), &error);
            }
            Err(error) => fail(one.into_iter().chain(followers), &error),
        }
    }

    fn tell(&self, first: Vec<Insert>, followers: Vec<Insert>, written: &Written) {
        let mut verdicts = HashMap::with_capacity(if followers.is_empty() { 0 } else { first.len() });
        for Insert { key, record, now, answer } in first {
            let written = written.holds(&key);
            if !followers.is_empty() {
                verdicts.insert(key, InsertDecision { written, now, expires_at: record.expires_at });
            }
            let _ = answer.send(Ok(written));
        }
        self.answer_followers(followers, &verdicts);
    }

    /// Executes the statement, and returns the inserts it wrote; none if one of its rows is locked.
    async fn write(&self, inserts: &[Insert], patience: Patience) -> Result<Option<Written>> {
        let keys: Vec<_> = inserts.iter().map(|insert| Bytea(insert.key.as_bytes())).collect();
        let values: Vec<_> = inserts.iter().map(|insert| Bytea(&insert.record.value)).collect();
        let versions: Vec<_> = inserts.iter().map(|insert| Bytea(insert.record.version.as_bytes())).collect();
        let expires_at: Vec<_> = inserts.iter().map(|insert| millis(insert.record.expires_at)).collect();
        let nows: Vec<_> = inserts.iter().map(|insert| millis(insert.now)).collect();
        let params: [&dyn Param; 5] = [&keys, &values, &versions, &expires_at, &nows];
        let sql = &self.sql.of(self.kind).insert;
        let answer = match patience {
            Patience::Full => self.link.run(Repeat::Write, sql, &params).await?,
            Patience::Little => match self.link.run_quick(Repeat::Write, sql, &params).await? {
                Patient::Answered(answer) => answer,
                Patient::LockedOut => return Ok(None),
            },
        };
        let some: Option<Vec<Option<Vec<u8>>>> = column(only(&answer.rows)?, 0)?;
        Ok(Some(match some {
            None => Written::All,
            Some(keys) => Written::Some(keys.into_iter().flatten().collect()),
        }))
    }

    /// Answers later inserts of the same key as if they came right after the first, if that settles them; the others
    /// go to the server with a later statement.
    fn answer_followers(&self, followers: Vec<Insert>, verdicts: &HashMap<Key, InsertDecision>) {
        for insert in followers {
            if verdicts.get(&insert.key).is_some_and(|first| first.refuses(insert.now)) {
                let _ = insert.answer.send(Ok(false));
            } else {
                self.lanes.put_back(insert);
            }
        }
    }
}

/// Time that a statement waits for a locked row.
#[derive(Clone, Copy)]
enum Patience {
    Little,
    Full,
}

/// Keys of a statement in flight.
struct Taken {
    gatherer: Arc<Gatherer>,
    keys: HashSet<Key>,
}

impl Taken {
    /// Picks the inserts of the next statement, and notes their keys.
    fn picker(&mut self) -> impl FnMut(&Insert) -> Pick {
        let (mut rows, mut bytes) = (0, 0);
        move |insert| {
            if insert.answer.is_closed() {
                return Pick::Drop;
            }
            bytes += insert.key.as_bytes().len() + insert.record.value.len();
            if rows == MOST_ROWS || (rows > 0 && bytes > MOST_BYTES) {
                return Pick::Stop;
            }
            if !self.keys.contains(&insert.key) {
                if !self.gatherer.in_flight().insert(insert.key.clone()) {
                    return Pick::Leave;
                }
                self.keys.insert(insert.key.clone());
            }
            rows += 1;
            Pick::Take
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        {
            let mut in_flight = self.gatherer.in_flight();
            for key in &self.keys {
                in_flight.remove(key);
            }
        }
        // Others may have waited for these keys.
        if self.gatherer.lanes.nudge() {
            self.gatherer.open_a_lane();
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
struct InsertDecision {
    written: bool,
    now: Timestamp,
    expires_at: Timestamp,
}

impl InsertDecision {
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

/// Splits off the first insert of each key, in the order of the keys, in which the server takes them; the rest keep
/// the order in which they arrived.
fn split(group: Vec<Insert>) -> (Vec<Insert>, Vec<Insert>) {
    let mut met = HashSet::with_capacity(group.len());
    let (mut first, followers): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|insert| met.insert(insert.key.clone()));
    first.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    (first, followers)
}

fn fail(inserts: impl Iterator<Item = Insert>, error: &Error) {
    for insert in inserts {
        let _ = insert.answer.send(Err(again(error)));
    }
}

/// Copies an error for a caller whose request is not to blame.
pub(super) fn again(error: &Error) -> Error {
    let kind = match error.kind() {
        // The database is at fault, and no caller can mend that.
        ErrorKind::Invalid => ErrorKind::Unavailable,
        kind => kind,
    };
    let copy = Error::new(kind, error.message());
    match std::error::Error::source(error) {
        Some(cause) => copy.caused_by(cause.to_string()),
        None => copy,
    }
}
