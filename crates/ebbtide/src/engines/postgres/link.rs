//! Connections to the server: a pool, one round trip for a statement or a whole transaction, and retries.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use futures_util::TryStreamExt as _;
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::settings::Settings;
use super::tls;
use crate::model::error::{Error, ErrorKind, Result};

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Attempts at a statement that the server has rolled back.
const ATTEMPTS: u32 = 8;

/// Additional time allowed for the network, beyond the server's statement timeout.
const NETWORK: Duration = Duration::from_secs(5);

/// Maximum number of prepared statements per connection. Batches over different sets of kinds are different
/// statements.
const MOST_PREPARED: usize = 512;

/// Connections to one store.
pub(super) struct Link {
    pool: Pool,
    patience: Duration,
}

/// Result of a statement.
pub(super) struct Answer {
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

impl Link {
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let connector = tls::connector(&settings.trust)?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(settings.driver.clone(), connector, recycling);
        let set_up = session(settings.statement_timeout);
        let wait = settings.driver.get_connect_timeout().copied();
        let pool = Pool::builder(manager)
            .max_size(settings.pool)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(wait)
            .create_timeout(wait)
            .post_create(Hook::async_fn(move |client, _| {
                let set_up = set_up.clone();
                Box::pin(async move { client.batch_execute(&set_up).await.map_err(HookError::Backend) })
            }))
            .build()
            .map_err(|error| Error::invalid("cannot create the connection pool").caused_by(error))?;
        Ok(Self { pool, patience: settings.statement_timeout + NETWORK })
    }

    /// Runs one statement, which is a transaction by itself.
    pub(super) async fn run(&self, repeat: Repeat, sql: &str, params: Params<'_>) -> Result<Answer> {
        self.repeatedly(repeat, Job::Statement(sql, params)).await
    }

    /// Runs a statement that reads, and returns its rows.
    pub(super) async fn read(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>> {
        Ok(self.run(Repeat::Read, sql, params).await?.rows)
    }

    /// Runs a transaction, sent at once with its `COMMIT`: the steps contain their own conditions. Returns the result
    /// of the last step.
    pub(super) async fn transact(&self, steps: &[(&str, Params<'_>)]) -> Result<Answer> {
        self.repeatedly(Repeat::Write, Job::Transaction(steps)).await
    }

    /// Leases a connection for work of another shape.
    pub(super) async fn lease(&self) -> Result<Object> {
        self.pool.get().await.map_err(no_connection)
    }

    /// Updates the metrics of the pool.
    pub(super) fn report_pool(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a pool is small")]
        let set = |state: &'static str, connections: usize| {
            metrics::gauge!("ebbtide_pool_connections", "state" => state).set(connections as f64);
        };
        let status = self.pool.status();
        set("most", status.max_size);
        set("idle", status.available);
        set("in_use", status.size.saturating_sub(status.available));
        set("waited_for", status.waiting);
    }

    async fn repeatedly(&self, repeat: Repeat, job: Job<'_>) -> Result<Answer> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let client = self.lease().await?;
            let Ok(outcome) = timeout(self.patience, job.run(&client)).await else {
                // A late answer on this connection would be taken for the answer to another statement.
                drop(Object::take(client));
                return Err(Error::unavailable("the database did not answer in time"));
            };
            let failure = match outcome {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !failure.was_rolled_back() {
                // The connection may be to a standby, to a changed schema, or in a broken state.
                drop(Object::take(client));
            }
            if attempt == ATTEMPTS || !failure.may_be_repeated(repeat) {
                return Err(failure.into_error());
            }
            sleep(Duration::from_millis(1 << attempt)).await;
        }
    }
}

/// Session settings of every connection. A setting that the server does not know is skipped.
fn session(statement_timeout: Duration) -> String {
    let millis = statement_timeout.as_millis();
    // Every statement walks an index. A plan that was made while a table was small would otherwise keep reading all
    // of it after it has grown.
    format!(
        "SELECT set_config(name, value, false) FROM (VALUES \
         ('default_transaction_isolation', 'read committed'), \
         ('statement_timeout', '{millis}'), \
         ('idle_in_transaction_session_timeout', '{millis}'), \
         ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('jit', 'off') \
         ) AS word (name, value) WHERE current_setting(name, true) IS NOT NULL; \
         SELECT set_config('synchronous_commit', 'on', false) \
         WHERE current_setting('synchronous_commit', true) = 'off'"
    )
}

enum Job<'a> {
    Statement(&'a str, Params<'a>),
    Transaction(&'a [(&'a str, Params<'a>)]),
}

impl Job<'_> {
    async fn run(&self, client: &Object) -> Result<Answer, Failure> {
        if client.statement_cache.size() > MOST_PREPARED {
            client.statement_cache.clear();
        }
        match *self {
            Self::Statement(sql, params) => {
                let prepared = client.prepare_cached(sql).await.map_err(Failure::before)?;
                query(client, &prepared, params).await.map_err(Failure::after)
            }
            Self::Transaction(steps) => transaction(client, steps).await,
        }
    }
}

async fn query(
    client: &Object,
    prepared: &tokio_postgres::Statement,
    params: Params<'_>,
) -> Result<Answer, tokio_postgres::Error> {
    let mut stream = pin!(client.query_raw(prepared, params.iter().copied()).await?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok(Answer { rows, affected: stream.rows_affected().unwrap_or(0) })
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Answer, tokio_postgres::Error>> + Send + 'a>>;

async fn transaction(client: &Object, steps: &[(&str, Params<'_>)]) -> Result<Answer, Failure> {
    let mut prepared = Vec::with_capacity(steps.len());
    for (sql, _) in steps {
        prepared.push(client.prepare_cached(sql).await.map_err(Failure::before)?);
    }
    let mut sending: Vec<Sent<'_>> = Vec::with_capacity(steps.len() + 2);
    sending.push(command(client, "BEGIN ISOLATION LEVEL READ COMMITTED"));
    for (statement, (_, params)) in prepared.iter().zip(steps) {
        sending.push(Box::pin(query(client, statement, params)));
    }
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
    let last = steps.len();
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

fn command<'a>(client: &'a Object, text: &'static str) -> Sent<'a> {
    Box::pin(async move {
        client.batch_execute(text).await?;
        Ok(Answer { rows: Vec::new(), affected: 0 })
    })
}

/// Failure of a statement.
struct Failure {
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

    /// Returns true if the server reports that the transaction was rolled back.
    fn was_rolled_back(&self) -> bool {
        let rolled_back = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        self.error.code().is_some_and(|code| rolled_back.contains(code))
    }

    fn may_be_repeated(&self, repeat: Repeat) -> bool {
        // The server sends 57P01 to 57P03 when it ends a connection.
        let connection_lost = self.error.code().is_none_or(|code| code.code().starts_with("57P0"));
        self.was_rolled_back() || (connection_lost && (repeat == Repeat::Read || !self.sent))
    }

    fn into_error(self) -> Error {
        explain(&self.error)
    }
}

fn no_connection(error: PoolError) -> Error {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => explain(&error),
        PoolError::Timeout(_) => {
            Error::unavailable("timed out waiting for a free connection to the database")
        }
        error => Error::unavailable("cannot connect to the database").caused_by(error.to_string()),
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
        "57014" => (ErrorKind::Unavailable, "the statement timed out in the database"),
        // Tables that do not match the schema version, and data that the server itself finds damaged.
        _ if code.starts_with("42") || code.starts_with("XX") => {
            (ErrorKind::Corrupt, "the tables do not match the schema version, or are damaged")
        }
        _ => (ErrorKind::Unavailable, "the database failed to execute the statement"),
    };
    Error::new(kind, message).caused_by(format!("{} ({code})", server.message()))
}
