//! Gathering of gets: those that arrive together go out as one statement. Each sees everything that was committed
//! before its call.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::gather::again;
use super::lanes::{Lanes, Pick};
use super::link::{Link, Patient, Repeat};
use super::params::{Bytea, Param, column, malformed, millis, record};
use super::sql::Sql;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Maximum number of gets in one statement.
const MOST_GETS: usize = 512;

/// Gatherer of the gets of one kind.
pub(super) struct Getter {
    kind: Kind,
    link: Arc<Link>,
    sql: Arc<Sql>,
    lanes: Lanes<Get>,
}

/// Get of one caller, and the channel for its answer.
struct Get {
    key: Key,
    now: Timestamp,
    answer: oneshot::Sender<Result<Option<Record>>>,
}

impl Getter {
    pub(super) fn new(kind: Kind, link: Arc<Link>, sql: Arc<Sql>) -> Self {
        let lanes = Lanes::new(link.lanes());
        Self { kind, link, sql, lanes }
    }

    /// Reads the live record at a key.
    pub(super) async fn get(self: &Arc<Self>, key: Key, now: Timestamp) -> Result<Option<Record>> {
        let (answer, answered) = oneshot::channel();
        if self.lanes.push(Get { key, now, answer }) {
            self.open_a_lane();
        }
        answered.await.unwrap_or_else(|_| Err(Error::unavailable("the statement was abandoned; retry")))
    }

    /// A separate task: a caller that is dropped does not cancel the other callers' answers.
    fn open_a_lane(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).drive());
    }

    /// Sends waiting gets until none is left.
    async fn drive(self: Arc<Self>) {
        let mut lane = self.lanes.lane();
        loop {
            let mut rows = 0;
            let pick = |get: &Get| {
                if get.answer.is_closed() {
                    return Pick::Drop;
                }
                rows += 1;
                if rows > MOST_GETS { Pick::Stop } else { Pick::Take }
            };
            let Some(group) = lane.next(pick) else { return };
            {
                let mut sent = pin!(self.send(group));
                if timeout(self.link.stall(), sent.as_mut()).await.is_err() {
                    if lane.stall() {
                        self.open_a_lane();
                    }
                    sent.await;
                    lane.go_on();
                }
            }
            // Callers that were just answered reach the queue again, to share the next statement.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn send(&self, group: Vec<Get>) {
        match self.read(&group).await {
            Ok(records) => {
                for (get, record) in group.into_iter().zip(records) {
                    let _ = get.answer.send(record);
                }
            }
            Err(error) => {
                for get in group {
                    let _ = get.answer.send(Err(again(&error)));
                }
            }
        }
    }

    /// Executes the statement. A record that cannot be decoded is the error of its own callers.
    async fn read(&self, gets: &[Get]) -> Result<Vec<Result<Option<Record>>>> {
        let sql = self.sql.of(self.kind);
        if let [get] = gets {
            let (key, now) = (Bytea(get.key.as_bytes()), millis(get.now));
            let rows = self.rows(&sql.get, &[&key, &now]).await?;
            return Ok(vec![rows.first().map(|row| record(row, 0)).transpose()]);
        }
        let keys: Vec<_> = gets.iter().map(|get| Bytea(get.key.as_bytes())).collect();
        let nows: Vec<_> = gets.iter().map(|get| millis(get.now)).collect();
        let rows = self.rows(&sql.get_many, &[&keys, &nows]).await?;
        let mut records: Vec<_> = gets.iter().map(|_| Ok(None)).collect();
        for row in &rows {
            let place: i64 = column(row, 0)?;
            let index = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
            let slot =
                index.and_then(|index| records.get_mut(index)).ok_or_else(|| malformed("an answer"))?;
            *slot = record(row, 1).map(Some);
        }
        Ok(records)
    }

    async fn rows(&self, sql: &str, params: &[&dyn Param]) -> Result<Vec<tokio_postgres::Row>> {
        match self.link.run_quick(Repeat::Read, sql, params).await? {
            Patient::Answered(answer) => Ok(answer.rows),
            // A table that is being changed, not a row: gets wait for no row.
            Patient::LockedOut => self.link.read(sql, params).await,
        }
    }
}
