//! Connections to the server: two pools, retries, and what becomes of callers that give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, Config, Row, SimpleQueryMessage};

use super::connect::Hosts;
use super::flight::{Flight, Ways, purge};
use super::gather::again;
use super::params::Params;
use super::settings::{Pooler, Settings};
use super::sql::WAITS_FOR_STANDBY;
use super::tls;
use super::turns::{HeldTurns, Turns};
use super::wire::{Failure, Job};
pub(super) use super::wire::{Repeat, StatementResult, explain};
use crate::model::error::{Error, Result};
use crate::model::rng::Rng;

/// Attempts at a statement that the server has rolled back.
const ATTEMPTS: u32 = 8;

/// Additional time allowed for the network, beyond the server's statement timeout.
const NETWORK: Duration = Duration::from_secs(5);

/// Minimum bound of the wait for a free connection.
const LEAST_WAIT: Duration = Duration::from_secs(5);

/// Share of the lock timeout after which a gathered statement gives up: each of its rows is then tried by itself.
const QUICK_SHARE: u32 = 8;

/// Share of the lock timeout after which the next gathered statement no longer waits for one in flight.
const STALL_SHARE: u32 = 100;

/// Connections to one store.
pub(super) struct Link {
    /// Connections for all work that may wait for the lock of a row.
    general: Lines,
    /// Connections that are kept for gathered gets and inserts.
    quick: Option<Lines>,
    hosts: Hosts,
    server: Arc<Server>,
    lock_timeout: Duration,
    rng: Arc<dyn Rng>,
}

/// Properties of the server that decide how statements are sent.
#[derive(Default)]
struct Server {
    /// A transaction pooler is in front of it.
    pooled: AtomicBool,
    /// Its commits wait for a standby.
    waits: AtomicBool,
}

impl Server {
    fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// Returns true if a statement that nobody waits for may be cancelled. Behind a pooler, a request that comes late
    /// could reach the statement of another. Where commits wait for a standby, it could end that wait: the commit would
    /// be visible, and a promotion would take it back.
    fn may_cancel(&self) -> bool {
        !self.is_pooled() && !self.waits.load(Ordering::Relaxed)
    }
}

/// One pool.
struct Lines {
    ways: Ways,
    /// Settings of a transaction behind a pooler.
    local: String,
}

/// Pool that serves a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Single rows, gathered.
    Quick,
    /// Everything else.
    General,
}

/// Outcome of a statement that waits for no row for long.
pub(super) enum Patient {
    Answered(StatementResult),
    /// Another transaction has locked one of its rows: it did nothing.
    LockedOut,
}

impl Link {
    pub(super) async fn new(settings: &Settings, rng: impl Rng) -> Result<Self> {
        let hosts = Hosts::new(&settings.driver, tls::connector(&settings.trust)?, settings.connect_timeout);
        let pooled = match settings.pooler {
            Pooler::None => false,
            Pooler::Transaction => true,
            Pooler::Detect => hosts.are_pooled().await.map_err(|error| explain(&error))?,
        };
        if pooled {
            tracing::info!("a transaction pooler is in front of the database; no prepared statements");
        }
        let server = Arc::new(Server { pooled: pooled.into(), ..Server::default() });
        let lines = |size: usize, lock: Duration| Lines::new(settings, &hosts, &server, size, lock);
        let quick = settings.pool / 4;
        Ok(Self {
            general: lines(settings.pool - quick, settings.lock_timeout)?,
            quick: (quick > 0).then(|| lines(quick, settings.lock_timeout / QUICK_SHARE)).transpose()?,
            hosts,
            server,
            lock_timeout: settings.lock_timeout,
            rng: Arc::new(rng),
        })
    }

    /// Runs one statement, which is a transaction by itself.
    pub(super) async fn run(&self, repeat: Repeat, sql: &str, params: Params<'_>) -> Result<StatementResult> {
        let job = Job::Statement(sql, params);
        self.repeatedly(Lane::General, repeat, job, None).await.map_err(Failure::into_error)?
    }

    /// Runs one statement that writes, in the turns of its writer.
    pub(super) async fn run_in_turn(
        &self,
        turns: Option<&HeldTurns>,
        sql: &str,
        params: Params<'_>,
    ) -> Result<StatementResult> {
        let job = Job::Statement(sql, params);
        self.repeatedly(Lane::General, Repeat::Write, job, turns).await.map_err(Failure::into_error)?
    }

    /// Runs a statement that reads, and returns its rows.
    pub(super) async fn read(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>> {
        Ok(self.run(Repeat::Read, sql, params).await?.rows)
    }

    /// Runs a statement for gathered callers, on a connection that is kept for them.
    pub(super) async fn run_quick(&self, repeat: Repeat, sql: &str, params: Params<'_>) -> Result<Patient> {
        match self.repeatedly(Lane::Quick, repeat, Job::Statement(sql, params), None).await {
            Ok(answer) => answer.map(Patient::Answered),
            Err(failure) if failure.was_locked_out() => Ok(Patient::LockedOut),
            Err(failure) => Err(failure.into_error()),
        }
    }

    /// Runs a transaction in the turns of its writer, sent at once with its `COMMIT`: the steps contain their own
    /// conditions. Returns the result of the last step.
    pub(super) async fn transact(
        &self,
        turns: &HeldTurns,
        steps: &[(&str, Params<'_>)],
    ) -> Result<StatementResult> {
        let job = Job::Transaction(steps);
        self.repeatedly(Lane::General, Repeat::Write, job, Some(turns)).await.map_err(Failure::into_error)?
    }

    /// Leases a connection for work of another shape.
    pub(super) async fn lease(&self) -> Result<Object> {
        self.general.lease().await
    }

    /// Opens a connection outside of the pools. Returns none behind a transaction pooler, where a session is not ours.
    pub(super) async fn session(&self) -> Result<Option<Client>> {
        if self.server.is_pooled() {
            return Ok(None);
        }
        self.hosts.open().await.map(|(client, _)| Some(client)).map_err(|error| explain(&error))
    }

    /// Notes that commits of the server wait for a standby, or no longer do.
    pub(super) fn note_standby(&self, waits: bool) {
        self.server.waits.store(waits, Ordering::Relaxed);
    }

    /// Time after which a statement in flight no longer holds up the next.
    pub(super) fn stall(&self) -> Duration {
        self.lock_timeout / STALL_SHARE
    }

    /// Maximum number of gathered statements of one kind in flight: one connection is left to the other kinds.
    pub(super) fn lanes(&self) -> usize {
        self.quick.as_ref().map_or(1, |lines| (lines.ways.pool.status().max_size - 1).max(1))
    }

    /// Turns of the writers that share the connections for work that may wait.
    pub(super) fn turns(&self) -> Turns {
        let patience = connection_wait(&self.hosts) + self.lock_timeout;
        Turns::new(self.general.ways.pool.status().max_size, patience)
    }

    /// Updates the metrics of the pools.
    pub(super) fn report_pool(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a pool is small")]
        let set = |state: &'static str, connections: usize| {
            metrics::gauge!("ebbtide_pool_connections", "state" => state).set(connections as f64);
        };
        let all = [Some(&self.general), self.quick.as_ref()].into_iter().flatten();
        let all: Vec<_> = all.map(|lines| lines.ways.pool.status()).collect();
        set("most", all.iter().map(|status| status.max_size).sum());
        set("idle", all.iter().map(|status| status.available).sum());
        set("in_use", all.iter().map(|status| status.size.saturating_sub(status.available)).sum());
        set("waited_for", all.iter().map(|status| status.waiting).sum());
    }

    async fn repeatedly(
        &self,
        lane: Lane,
        repeat: Repeat,
        job: Job<'_>,
        turns: Option<&HeldTurns>,
    ) -> Result<Result<StatementResult>, Failure> {
        let lines = match (lane, &self.quick) {
            (Lane::Quick, Some(quick)) => quick,
            _ => &self.general,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (pooled, host) = (self.server.is_pooled(), self.hosts.first());
            let client = match lines.lease().await {
                Ok(client) => client,
                Err(error) => return Ok(Err(again(&error))),
            };
            let ways = Ways { cancels: self.server.may_cancel(), ..lines.ways.clone() };
            let flight = Flight::new(client, ways, turns.cloned());
            let running = async {
                if pooled {
                    job.run_pooled(flight.client(), &lines.local).await
                } else {
                    job.run(flight.client()).await
                }
            };
            let Ok(outcome) = timeout(lines.ways.patience, running).await else {
                // A late answer on this connection would be taken for the answer to another statement. The others to
                // the same server will not be answered either.
                flight.discard();
                self.hosts.leave(host);
                self.purge();
                return Ok(Err(Error::unavailable("the database did not answer in time")));
            };
            let failure = match outcome {
                Ok(answer) => {
                    flight.land();
                    return Ok(Ok(answer));
                }
                Err(failure) => failure,
            };
            if failure.was_rolled_back() || failure.was_locked_out() {
                flight.land();
            } else {
                // The connection may be to a standby, to a changed schema, or in a broken state.
                flight.discard();
            }
            if failure.lost_the_connection() {
                self.purge();
            }
            let pooler = !pooled && failure.shows_a_pooler();
            if pooler {
                tracing::warn!(
                    "a transaction pooler is in front of the database; no prepared statements from now on"
                );
                self.server.pooled.store(true, Ordering::Relaxed);
                self.purge();
            }
            if attempt == ATTEMPTS || !(pooler || failure.may_be_repeated(repeat)) {
                return Err(failure);
            }
            sleep(self.pause(attempt)).await;
        }
    }

    /// A growing, random pause, so that colliding writers do not collide again.
    fn pause(&self, attempt: u32) -> Duration {
        let share = f64::from(u32::from_be_bytes(self.rng.bytes())) / f64::from(u32::MAX);
        Duration::from_millis(2 << attempt).mul_f64(share)
    }

    fn purge(&self) {
        for lines in [Some(&self.general), self.quick.as_ref()].into_iter().flatten() {
            purge(&lines.ways.pool);
        }
    }
}

impl Lines {
    fn new(
        settings: &Settings,
        hosts: &Hosts,
        server: &Arc<Server>,
        size: usize,
        lock_timeout: Duration,
    ) -> Result<Self> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(Config::new(), hosts.clone(), recycling);
        let values = |local| session(settings.statement_timeout, lock_timeout, local);
        let (set_up, server) = (values(false), Arc::clone(server));
        let wait = Some(connection_wait(hosts));
        let pool = Pool::builder(manager)
            .max_size(size)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(wait)
            .create_timeout(wait)
            .post_create(Hook::async_fn(move |client, _| {
                // Behind a pooler, the settings would stay on a connection that others are given.
                let set_up = if server.is_pooled() { String::new() } else { set_up.clone() };
                let server = Arc::clone(&server);
                Box::pin(async move {
                    let waits = set_up_connection(client, &set_up).await.map_err(HookError::Backend)?;
                    server.waits.store(waits, Ordering::Relaxed);
                    Ok(())
                })
            }))
            .build()
            .map_err(|error| Error::invalid("cannot create the connection pool").caused_by(error))?;
        let ways = Ways {
            pool,
            tls: hosts.tls(),
            connect: hosts.bound(),
            patience: settings.statement_timeout + NETWORK,
            cancels: true,
        };
        Ok(Self { ways, local: values(true) })
    }

    async fn lease(&self) -> Result<Object> {
        self.ways.pool.get().await.map_err(no_connection)
    }
}

/// Bound of the wait for a free connection: every host may be tried, in turn.
fn connection_wait(hosts: &Hosts) -> Duration {
    (hosts.all_tried() + Duration::from_secs(1)).max(LEAST_WAIT)
}

/// Applies the settings. Returns true if commits of the server wait for a standby.
async fn set_up_connection(client: &Client, set_up: &str) -> Result<bool, tokio_postgres::Error> {
    if set_up.is_empty() {
        return Ok(false);
    }
    let answer = client.simple_query(&format!("{set_up}; SELECT {WAITS_FOR_STANDBY}")).await?;
    let last = answer.iter().rev().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0) == Some("t")),
        _ => None,
    });
    Ok(last.unwrap_or_default())
}

/// Settings of every connection, or of a transaction. A setting that the server does not know is skipped.
fn session(statement_timeout: Duration, lock_timeout: Duration, local: bool) -> String {
    let (statement, lock) = (statement_timeout.as_millis(), lock_timeout.as_millis().max(1));
    // Every statement walks an index. A plan that was made while a table was small would otherwise keep reading all
    // of it after it has grown.
    format!(
        "SELECT set_config(name, value, {local}) FROM (VALUES \
         ('default_transaction_isolation', 'read committed'), \
         ('statement_timeout', '{statement}'), ('lock_timeout', '{lock}'), \
         ('idle_in_transaction_session_timeout', '{statement}'), \
         ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('jit', 'off') \
         ) AS word (name, value) WHERE current_setting(name, true) IS NOT NULL; \
         SELECT set_config('synchronous_commit', 'on', {local}) \
         WHERE current_setting('synchronous_commit', true) = 'off'"
    )
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
