//! Measures the PostgreSQL engine beside plain statements on the same server, in alternating rounds.
//!
//! `EBBTIDE_TEST_POSTGRES=postgres://… cargo bench -p ebbtide --features postgres --bench postgres [-- gather|sweep]`;
//! `scripts/services/postgres start DIR` starts a server and prints the variable.

#![expect(clippy::unwrap_used, reason = "a measurement that fails has no result")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::backend::postgres;
use ebbtide::{
    Backend, BackendExt, Budget, Clock, Key, Kind, Record, Scope, Stopwatch, SystemChance, SystemClock,
};
use tokio_postgres::{Client, NoTls};

const CALLERS: usize = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);
const SCHEMA: &str = "ebbtide_bench";
const MILLION: u64 = 1_000_000;

#[tokio::main]
async fn main() {
    let Ok(server) = std::env::var("EBBTIDE_TEST_POSTGRES") else {
        println!("EBBTIDE_TEST_POSTGRES is not set: nothing is measured");
        return;
    };
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |what: &str| asked.is_empty() || asked.iter().any(|arg| arg == what);
    if wants("gather") {
        gather(&server).await;
    }
    if wants("sweep") {
        sweep(&server).await;
    }
}

async fn connect(server: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn fresh(server: &str) -> (Arc<dyn Backend>, Client) {
    let client = connect(server).await;
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await.unwrap();
    // Neither side encrypts.
    let url = format!("{server}?schema={SCHEMA}&sslmode=disable");
    postgres::migrate(&url).await.unwrap();
    (ebbtide::open(&url).await.unwrap(), client)
}

/// A key that was not used before.
fn next_key() -> Key {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Keys are digests in real life: spread over the whole index.
    let spread = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let digest = [spread.to_be_bytes(); 4].concat();
    Key::new(Kind::Replay, &Scope::Global, &[digest.as_slice().into()], &[]).unwrap()
}

fn record() -> Record {
    Record::new("", SystemClock.now().checked_add(Duration::from_secs(3_600)).unwrap(), &SystemChance)
}

/// Calls per second of `CALLERS` callers, and how long each call took.
async fn measure<F>(stop: Arc<AtomicBool>, call: impl Fn(usize) -> F + Clone + Send + 'static) -> Outcome
where
    F: Future<Output = ()> + Send,
{
    let stopwatch = Stopwatch::start();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (stop, call) = (Arc::clone(&stop), call.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let stopwatch = Stopwatch::start();
                    call(caller).await;
                    took.push(stopwatch.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.unwrap());
    }
    let seconds = stopwatch.elapsed().as_secs_f64();
    took.sort_unstable();
    Outcome { seconds, took }
}

async fn measure_for<F>(time: Duration, call: impl Fn(usize) -> F + Clone + Send + 'static) -> Outcome
where
    F: Future<Output = ()> + Send,
{
    let stop = Arc::new(AtomicBool::new(false));
    let timer = Arc::clone(&stop);
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        timer.store(true, Ordering::Relaxed);
    });
    measure(stop, call).await
}

struct Outcome {
    seconds: f64,
    took: Vec<Duration>,
}

impl Outcome {
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    fn rate(&self) -> f64 {
        self.took.len() as f64 / self.seconds
    }

    fn millis(&self, per_mille: usize) -> f64 {
        self.took[(self.took.len() * per_mille / 1_000).min(self.took.len() - 1)].as_secs_f64() * 1_000.0
    }

    fn print(&self, what: &str) {
        println!(
            "  {what:<34} {:>8.0} calls/s   p50 {:>7.2} ms   p99 {:>7.2} ms   p99.9 {:>7.2} ms",
            self.rate(),
            self.millis(500),
            self.millis(990),
            self.millis(999)
        );
    }
}

async fn gather(server: &str) {
    println!("\ninsert-if-absent, {CALLERS} callers, every call answered when it is durable");
    let (store, client) = fresh(server).await;
    let peer = format!("{SCHEMA}.peer");
    client
        .batch_execute(&format!(
            "CREATE TABLE {peer} (key bytea PRIMARY KEY, value bytea NOT NULL, version bytea NOT NULL, \
             expires_at bigint NOT NULL); CREATE INDEX ON {peer} (expires_at)"
        ))
        .await
        .unwrap();
    let insert = format!(
        "INSERT INTO {peer} (key, value, version, expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
    );
    let mut connections = Vec::new();
    for _ in 0..CALLERS {
        let client = connect(server).await;
        let statement = client.prepare(&insert).await.unwrap();
        connections.push((client, statement));
    }
    let connections = Arc::new(connections);
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let ours = Arc::clone(&store);
        let gathered = measure_for(ROUND, move |_| {
            let store = Arc::clone(&ours);
            async move {
                let now = SystemClock.now();
                assert!(store.insert(next_key(), record(), now).await.unwrap().is_applied());
            }
        })
        .await;
        let theirs = Arc::clone(&connections);
        let plain = measure_for(ROUND, move |caller| {
            let connections = Arc::clone(&theirs);
            async move {
                let (client, statement) = &connections[caller];
                let (key, record) = (next_key(), record());
                let expires_at = i64::try_from(record.expires_at.as_millis()).unwrap();
                let version = record.version.as_bytes().as_slice();
                let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                    [&key.as_bytes(), &record.value.as_ref(), &version, &expires_at];
                assert_eq!(client.execute(statement, &params).await.unwrap(), 1);
            }
        })
        .await;
        if round == 0 {
            continue; // warms both up
        }
        gathered.print("gathered, pool of 16");
        plain.print("one INSERT per call, 64 connections");
        ratios.push(gathered.rate() / plain.rate());
    }
    ratios.sort_unstable_by(f64::total_cmp);
    println!(
        "  gathered / one per call: median {:.2}, from {:.2} to {:.2} over {ROUNDS} rounds (bar: 4)",
        ratios[ROUNDS / 2],
        ratios[0],
        ratios[ROUNDS - 1]
    );
}

/// A million expired records and a million live ones, in the table of sessions.
async fn fill(client: &Client) {
    let table = format!("{SCHEMA}.sessions");
    client.batch_execute(&format!("TRUNCATE {table}")).await.unwrap();
    for (first, expires) in [(0, 1_000), (MILLION, 5_000_000_000_000u64)] {
        client
            .batch_execute(&format!(
                "INSERT INTO {table} (key, value, version, expires_at, written_at) \
                 SELECT decode(md5(n::text), 'hex'), decode(repeat('00', 64), 'hex'), decode(md5(n::text), 'hex'), \
                 {expires} + n, 0 FROM generate_series({first} + 1, {first} + {MILLION}) AS n"
            ))
            .await
            .unwrap();
    }
    client.batch_execute(&format!("VACUUM ANALYZE {table}")).await.unwrap();
    client.batch_execute("CHECKPOINT").await.unwrap();
}

/// What the callers do all the while: write, read, and take what they wrote.
fn work(
    store: &Arc<dyn Backend>,
) -> impl Fn(usize) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Clone + Send + 'static {
    let store = Arc::clone(store);
    move |_| {
        let store = Arc::clone(&store);
        Box::pin(async move {
            let (key, record, now) = (next_key(), record(), SystemClock.now());
            assert!(store.insert(key.clone(), record, now).await.unwrap().is_applied());
            assert!(store.get(&key, now).await.unwrap().is_some());
        })
    }
}

/// Lets the callers work until `job` is done.
async fn beside<T>(store: &Arc<dyn Backend>, job: impl Future<Output = T>) -> (Outcome, T, f64) {
    let stop = Arc::new(AtomicBool::new(false));
    let callers = tokio::spawn(measure(Arc::clone(&stop), work(store)));
    let stopwatch = Stopwatch::start();
    let done = job.await;
    let seconds = stopwatch.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    (callers.await.unwrap(), done, seconds)
}

async fn sweep(server: &str) {
    println!("\na million expired among a million live, {CALLERS} callers that insert and read");
    let (store, client) = fresh(server).await;
    let (_, (), _) = beside(&store, tokio::time::sleep(ROUND)).await;
    for round in 1..=2 {
        println!(" round {round}");
        fill(&client).await;
        let (alone, (), _) = beside(&store, tokio::time::sleep(2 * ROUND)).await;
        alone.print("nothing beside");
        let budget = Budget { kinds: vec![Kind::Session], ..Budget::default() };
        let (beside_sweep, swept, seconds) =
            beside(&store, store.sweep_all(SystemClock.now(), &budget)).await;
        assert_eq!(swept.unwrap().total(), MILLION);
        beside_sweep.print("beside a sweep without pause");
        report(seconds, &beside_sweep, &alone);
        fill(&client).await;
        let (alone, (), _) = beside(&store, tokio::time::sleep(2 * ROUND)).await;
        alone.print("nothing beside");
        let delete = format!("DELETE FROM {SCHEMA}.sessions WHERE expires_at < 1500000000000");
        let (beside_delete, deleted, seconds) = beside(&store, client.execute(&delete, &[])).await;
        assert_eq!(deleted.unwrap(), MILLION);
        beside_delete.print("beside one big DELETE");
        report(seconds, &beside_delete, &alone);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to print")]
fn report(seconds: f64, beside: &Outcome, alone: &Outcome) {
    println!(
        "    removed {:.0} records/s in {seconds:.1} s; the callers' p99 is {:.2} times what it is alone",
        MILLION as f64 / seconds,
        beside.millis(990) / alone.millis(990)
    );
}
