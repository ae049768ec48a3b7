//! One round trip for a statement or a whole transaction, directly or behind a transaction pooler.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use deadpool_postgres::Object;
use futures_util::TryStreamExt as _;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::gather::again;
use super::params::Params;
use crate::model::error::{Error, ErrorKind, Result};

/// Maximum number of prepared statements per connection. Batches over different sets of kinds are different
/// statements.
const MOST_PREPARED: usize = 512;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Result of a statement.
pub(super) struct StatementResult {
    pub(super) rows: Vec<Row>,
    pub(super) affected: u64,
}

/// Repeatability of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Always: it changes nothing.
    Read,
    /// Only if it certainly did not happen. A write whose answer was lost may have.
    Write,
}

/// Work that is sent in one round trip.
pub(super) enum Job<'a> {
    Statement(&'a str, Params<'a>),
    Transaction(&'a [(&'a str, Params<'a>)]),
}

impl Job<'_> {
    /// Runs with prepared statements, on a connection of our own.
    pub(super) async fn run(&self, client: &Object) -> Result<StatementResult, Failure> {
        if client.statement_cache.size() > MOST_PREPARED {
            client.statement_cache.clear();
        }
        match *self {
            Self::Statement(sql, params) => {
                let prepared = client.prepare_cached(sql).await.map_err(Failure::before)?;
                query(client, &prepared, params).await.map_err(Failure::after)
            }
            Self::Transaction(steps) => {
                let mut sending = vec![command(client, BEGIN)];
                for (sql, params) in steps {
                    let prepared = client.prepare_cached(sql).await.map_err(Failure::before)?;
                    sending.push(Box::pin(async move { query(client, &prepared, params).await }));
                }
                send(client, sending).await
            }
        }
    }

    /// Runs in one transaction that brings its settings along, with statements that leave nothing behind: the next
    /// transaction may be served by another connection of the pooler.
    pub(super) async fn run_pooled(
        &self,
        client: &Object,
        settings: &str,
    ) -> Result<StatementResult, Failure> {
        let begin = format!("{BEGIN}; {settings}");
        let mut sending = vec![command(client, &begin)];
        match *self {
            Self::Statement(sql, params) => sending.push(unnamed(client, sql, params)),
            Self::Transaction(steps) => {
                sending.extend(steps.iter().map(|(sql, params)| unnamed(client, sql, params)));
            }
        }
        send(client, sending).await
    }
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<StatementResult, tokio_postgres::Error>> + Send + 'a>>;

async fn query(
    client: &Object,
    prepared: &tokio_postgres::Statement,
    params: Params<'_>,
) -> Result<StatementResult, tokio_postgres::Error> {
    let params = params.iter().map(|param| param.as_sql());
    collect(client.query_raw(prepared, params).await?).await
}

fn unnamed<'a>(client: &'a Object, sql: &'a str, params: Params<'a>) -> Sent<'a> {
    Box::pin(async move {
        let params = params.iter().map(|param| (param.as_sql(), param.of_type()));
        collect(client.query_typed_raw(sql, params).await?).await
    })
}

async fn collect(stream: tokio_postgres::RowStream) -> Result<StatementResult, tokio_postgres::Error> {
    let mut stream = pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(StatementResult { rows, affected: stream.rows_affected().unwrap_or(0) })
}

fn command<'a>(client: &'a Object, text: &'a str) -> Sent<'a> {
    Box::pin(async move {
        client.batch_execute(text).await?;
        Ok(StatementResult { rows: Vec::new(), affected: 0 })
    })
}

/// Sends these and a `COMMIT` in one round trip. Returns the answer of the last.
async fn send<'a>(client: &'a Object, mut sending: Vec<Sent<'a>>) -> Result<StatementResult, Failure> {
    let last = sending.len() - 1;
    sending.push(command(client, "COMMIT"));
    // The first poll of each future puts it on the wire, in this order and with no point in between at which this
    // future could be dropped: no transaction is left open, and no step is left out before the commit.
    let mut done = Vec::with_capacity(sending.len());
    for sent in &mut sending {
        match poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await {
            Poll::Ready(Err(error)) => {
                let _ = client.batch_execute("ROLLBACK").await;
                return Err(Failure::before(error));
            }
            Poll::Ready(Ok(answer)) => done.push(Some(answer)),
            Poll::Pending => done.push(None),
        }
    }
    let mut answer = None;
    for (index, (sent, done)) in sending.into_iter().zip(done).enumerate() {
        let done = match done {
            Some(done) => done,
            None => sent.await.map_err(Failure::after)?,
        };
        if index == last {
            answer = Some(done);
        }
    }
    Ok(answer.expect("a transaction has a last step"))
}

/// Failure of a statement.
pub(super) struct Failure {
    error: tokio_postgres::Error,
    sent: bool,
}

impl Failure {
    /// Failure before anything that writes was sent.
    fn before(error: tokio_postgres::Error) -> Self {
        Self { error, sent: false }
    }

    fn after(error: tokio_postgres::Error) -> Self {
        Self { error, sent: true }
    }

    fn is(&self, codes: &[SqlState]) -> bool {
        self.error.code().is_some_and(|code| codes.contains(code))
    }

    /// Returns true if the server reports that the transaction was rolled back.
    pub(super) fn was_rolled_back(&self) -> bool {
        self.is(&[SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED])
    }

    /// Returns true if a row was locked for longer than the statement may wait: it did nothing.
    pub(super) fn was_locked_out(&self) -> bool {
        self.is(&[SqlState::LOCK_NOT_AVAILABLE])
    }

    /// Returns true if a pooler gave the connection's prepared statements to another: the statement did nothing.
    pub(super) fn shows_a_pooler(&self) -> bool {
        self.is(&[SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT])
    }

    /// Returns true if the server has become a standby: the statement did nothing.
    fn met_a_standby(&self) -> bool {
        self.is(&[SqlState::READ_ONLY_SQL_TRANSACTION])
    }

    /// Returns true if the connection is gone, or is of no use.
    pub(super) fn lost_the_connection(&self) -> bool {
        // The server sends 57P01 to 57P03 when it ends a connection.
        self.met_a_standby() || self.error.code().is_none_or(|code| code.code().starts_with("57P0"))
    }

    pub(super) fn may_be_repeated(&self, repeat: Repeat) -> bool {
        self.was_rolled_back()
            || self.met_a_standby()
            || (self.lost_the_connection() && (repeat == Repeat::Read || !self.sent))
    }

    /// Error of a call. While the store serves no request is to blame for it; whoever opens a store gets it as
    /// [`explain`] has it.
    pub(super) fn into_error(self) -> Error {
        again(&explain(&self.error))
    }
}

/// Maps the driver's error. Of the server's own error only the code and the message are kept: its details may quote a
/// key.
pub(super) fn explain(error: &tokio_postgres::Error) -> Error {
    let Some(server) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
        return Error::unavailable("the database cannot be reached").caused_by(format!("{error}{cause}"));
    };
    let code = server.code().code();
    let (kind, message) = match code {
        _ if code.starts_with("28") => (ErrorKind::Invalid, "the database refuses this user"),
        "3D000" => (ErrorKind::Invalid, "the database of the store URL does not exist"),
        "42501" => (ErrorKind::Invalid, "the database user lacks a privilege"),
        "55P03" => (ErrorKind::Unavailable, "another transaction holds a lock on the record; retry"),
        "57014" => (ErrorKind::Unavailable, "the statement timed out in the database"),
        // Tables that do not match the schema version, and data that the server itself finds damaged.
        _ if code.starts_with("42") || code.starts_with("XX") => {
            (ErrorKind::Corrupt, "the tables do not match the schema version, or are damaged")
        }
        _ => (ErrorKind::Unavailable, "the database failed to execute the statement"),
    };
    Error::new(kind, message).caused_by(format!("{} ({code})", server.message()))
}
