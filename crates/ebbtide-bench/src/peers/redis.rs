//! Redis.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ebbtide::Stopwatch;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::resp::{Connection, Reply};
use crate::context::Context;
use crate::cpu::{Meter, Whose};
use crate::load::rounds::{Contender, Round};
use crate::load::{Caller, whole};
use crate::records::next;

/// First guess at the calls per second of `redis-benchmark` over one connection.
const FIRST_GUESS: usize = 300;

/// fsync policy of Redis's append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// Before it answers: the durability of Ebbtide.
    Always,
    /// Every second: a crash loses the answers of the last one or two seconds.
    EverySecond,
    /// Never: there is no append-only file.
    Off,
}

/// Redis server of the benchmark. Dropping it kills the process.
pub(crate) struct Redis {
    _process: Child,
    _folder: TempDir,
    pub(crate) pid: u32,
    pub(crate) port: u16,
    pub(crate) log: Log,
}

impl Redis {
    pub(crate) async fn start(context: &Context, log: Log) -> Result<Arc<Self>> {
        let folder = context.folder("redis")?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (append, fsync) = match log {
            Log::Always => ("yes", "always"),
            Log::EverySecond => ("yes", "everysec"),
            Log::Off => ("no", "no"),
        };
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .args(["--appendonly", append, "--appendfsync", fsync])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("redis-server does not start; scripts/bench installs it")?;
        let pid = process.id().context("it has just been started")?;
        let redis = Self { _process: process, _folder: folder, pid, port, log };
        let stopwatch = Stopwatch::start();
        while redis.connect().await.is_err() {
            ensure!(stopwatch.elapsed() < Duration::from_secs(20), "redis-server does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Arc::new(redis))
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let mut connection = Connection::open(self.port).await?;
        ensure!(connection.ask(&[b"PING"]).await? == Reply::Status("PONG".to_owned()), "it is not ready");
        Ok(connection)
    }

    pub(crate) async fn connections(&self, number: usize) -> Result<Vec<Connection>> {
        let mut connections = Vec::new();
        for _ in 0..number {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }

    /// Name in a row.
    pub(crate) fn name(&self, connections: usize) -> String {
        let log = match self.log {
            Log::Always => "always",
            Log::EverySecond => "everysec",
            Log::Off => "off",
        };
        let plural = if connections == 1 { "connection" } else { "connections" };
        format!("Redis, AOF {log}, {connections} {plural}")
    }

    /// `SET NX EX` by Redis's own load generator, one command at a time on each connection, for about `time`.
    pub(crate) fn set_nx(self: &Arc<Self>, connections: usize, time: Duration) -> Contender {
        self.set_nx_piped(connections, 1, time)
    }

    /// The same with so many commands at a time on each connection.
    pub(crate) fn set_nx_piped(
        self: &Arc<Self>,
        connections: usize,
        pipeline: usize,
        time: Duration,
    ) -> Contender {
        let redis = Arc::clone(self);
        let pace = Arc::new(AtomicU64::new((FIRST_GUESS * connections * pipeline) as u64));
        let piped = if pipeline == 1 { String::new() } else { format!(", pipeline of {pipeline}") };
        Contender::new(format!("{}{piped}", self.name(connections)), move || {
            let (redis, pace) = (Arc::clone(&redis), Arc::clone(&pace));
            Box::pin(async move {
                // It counts calls, not time: use the rate of the last round.
                let calls = whole(pace.load(Ordering::Relaxed) as f64 * time.as_secs_f64());
                let meter =
                    Meter::start(&[("client", Whose::Children), ("server", Whose::Server(redis.pid))])?;
                let held = redis.added().await?;
                let figure = benchmark(redis.port, None, connections, pipeline, calls).await?;
                pace.store(whole(figure), Ordering::Relaxed);
                let cpu = meter.stop()?;
                // An existing key is neither written nor synced, which would favour Redis.
                let added = redis.added().await? - held;
                ensure!(added * 100 >= i64::try_from(calls)? * 99, "of {calls} keys {added} were new");
                Ok(Round { figure, operations: calls, cpu })
            })
        })
    }

    /// Number of keys added since the start: those that exist plus those that have expired. Both are read together,
    /// since keys expire between two requests.
    async fn added(&self) -> Result<i64> {
        let Reply::Bulk(info) = self.connect().await?.ask(&[b"INFO"]).await? else {
            bail!("Redis does not say how many keys it has");
        };
        let info = String::from_utf8(info)?;
        let number = |before: &str, behind: char| {
            let rest = info.lines().find_map(|line| line.strip_prefix(before))?;
            rest.split(behind).next()?.trim().parse::<i64>().ok()
        };
        let expired =
            number("expired_keys:", '\n').context("Redis does not say how many keys have expired")?;
        // Without a key there is no such line.
        Ok(number("db0:keys=", ',').unwrap_or(0) + expired)
    }
}

/// Commands per second of `SET NX EX` by `redis-benchmark`, on whatever listens on the port.
pub(crate) async fn benchmark(
    port: u16,
    password: Option<&str>,
    connections: usize,
    pipeline: usize,
    calls: u64,
) -> Result<f64> {
    // Its random numbers follow from the second and its process id, and may repeat those of an earlier round.
    let key = format!("replay:{:08}:__rand_int__:aaaaaaaaaaaaaaa", next());
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string(), "-c", &connections.to_string(), "-n", &calls.to_string()]);
    command.args(["-P", &pipeline.to_string(), "-r", "1000000000", "--csv"]);
    if let Some(password) = password {
        command.args(["-a", password]);
    }
    let output = command
        .args(["SET", &key, "1", "NX", "EX", "60"])
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(output.status.success(), "redis-benchmark fails");
    let text = String::from_utf8(output.stdout)?;
    let row = text.lines().last().context("redis-benchmark says nothing")?;
    // The command in the first column may contain commas; the rate is the first number after it.
    let mut fields = row.split("\",\"").map(|field| field.trim_matches('"'));
    fields.find_map(|field| field.parse().ok()).context("redis-benchmark names no rate")
}

/// `SET NX EX` of a new key, over a connection of the benchmark.
pub(crate) struct SetNx(pub(crate) Connection);

impl Caller for SetNx {
    async fn call(&mut self) -> Result<()> {
        let key = format!("replay:{:012}:aaaaaaaaaaaaaaaaaaaaaaaa", next());
        let reply = self.0.ask(&[b"SET", key.as_bytes(), b"1", b"NX", b"EX", b"60"]).await?;
        ensure!(reply == Reply::Status("OK".to_owned()), "a new key is taken: {reply:?}");
        Ok(())
    }
}
