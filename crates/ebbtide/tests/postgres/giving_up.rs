//! Callers that give up: their statements are cancelled, and nobody else waits for what they waited for.

use std::sync::Arc;
use std::time::Duration;

use ebbtide::engines::postgres::migrate;
use ebbtide::{Admin, Backend as _, BackendExt as _, Batch, ErrorKind, Stopwatch, Write};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::service::{
    OwnServer, at, cases, connect, fresh_on, key, open_at, put, record, schema_of, server, within,
};

cases! {
    callers_that_give_up_on_a_locked_row_leave_no_statement_behind
    callers_that_give_up_where_nothing_is_cancelled_leave_connections_for_others
    checks_of_a_locked_row_hold_up_no_other_check
    callers_that_give_up_on_a_quiet_server_hold_up_no_check
    writes_that_wait_for_a_row_leave_connections_for_single_rows
    writes_that_wait_for_a_row_hold_up_no_other_write
    a_row_that_stays_locked_is_unavailable_within_the_lock_timeout
    a_batch_whose_caller_goes_away_leaves_no_transaction_open
}

const CALLERS: usize = 64;

/// A store with a record, and another transaction that has locked it.
struct Locked {
    store: Arc<dyn Admin>,
    other: Client,
    schema: String,
    server: String,
}

impl Locked {
    async fn new(options: &str) -> Self {
        Self::on(&server(), options).await
    }

    async fn on(server: &str, options: &str) -> Self {
        let url = fresh_on(server).await;
        migrate(&url).await.unwrap();
        let url = format!("{url}{options}");
        let (store, other, schema) = (open_at(&url).await, connect(server).await, schema_of(&url));
        for name in ["locked", "free"] {
            put(&store, key(name), record("v", 1_000)).await;
        }
        // Connections are there, and statements prepared.
        let _ = store.insert(key("warm"), record("v", 1_000), at(0)).await.unwrap();
        let lock = format!("BEGIN; SELECT 1 FROM {schema}.probes WHERE key = $1 FOR UPDATE");
        let (begin, lock) = lock.split_once("; ").unwrap();
        other.batch_execute(begin).await.unwrap();
        other.query(lock, &[&key("locked").as_bytes()]).await.unwrap();
        Self { store, other, schema, server: server.to_owned() }
    }

    async fn release(&self) {
        self.other.batch_execute("ROLLBACK").await.unwrap();
    }

    /// Statements on the store's tables that wait for a lock.
    async fn waiting(&self) -> i64 {
        let spy = connect(&self.server).await;
        let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
        spy.query_one(count, &[&format!("%\"{}\"%", self.schema)]).await.unwrap().get(0)
    }

    async fn until_waiting(&self, count: impl Fn(i64) -> bool) {
        within(30, async {
            while !count(self.waiting().await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// The time of unrelated work.
    async fn unrelated(&self, number: usize) -> Duration {
        let began = Stopwatch::start();
        assert!(
            self.store
                .insert(key(&format!("new-{number}")), record("v", 1_000), at(0))
                .await
                .unwrap()
                .is_applied()
        );
        assert!(self.store.get(&key("free"), at(0)).await.unwrap().is_some());
        began.elapsed()
    }
}

/// Starts so many calls, each of which gives up after a while.
fn giving_up<F>(call: impl Fn() -> F, after: Duration) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let call = call();
        calls.spawn(async move {
            let _ = tokio::time::timeout(after, call).await;
        });
    }
    calls
}

async fn callers_that_give_up_on_a_locked_row_leave_no_statement_behind() {
    // Nothing but a cancellation ends them within the test.
    let locked = Locked::new("&lock_timeout_ms=60000&statement_timeout_ms=60000").await;
    let store = Arc::clone(&locked.store);
    let version = store.get(&key("locked"), at(0)).await.unwrap().unwrap().version;
    let replace = || {
        let store = Arc::clone(&store);
        async move {
            let _ = store.replace(key("locked"), version, record("w", 1_000), at(0)).await;
        }
    };
    giving_up(replace, Duration::from_millis(300)).join_all().await;
    let began = Stopwatch::start();
    let version = locked.store.get(&key("free"), at(0)).await.unwrap().unwrap().version;
    let replaced = locked.store.replace(key("free"), version, record("w", 1_000), at(0));
    assert!(within(5, replaced).await.unwrap().is_applied());
    println!("an unrelated replace after {CALLERS} callers gave up: {:?}", began.elapsed());
    within(5, locked.until_waiting(|count| count == 0)).await;
    locked.release().await;
}

/// As behind a transaction pooler, or where commits wait for a standby: the statements go on, and others must not join them.
async fn callers_that_give_up_where_nothing_is_cancelled_leave_connections_for_others() {
    let options = "&pooler=transaction&lock_timeout_ms=60000&statement_timeout_ms=60000";
    let locked = Locked::new(options).await;
    let store = Arc::clone(&locked.store);
    let version = store.get(&key("locked"), at(0)).await.unwrap().unwrap().version;
    for round in 0..6 {
        let write = || {
            let store = Arc::clone(&store);
            async move {
                match round % 3 {
                    0 => drop(store.replace(key("locked"), version, record("w", 1_000), at(0)).await),
                    1 => drop(store.take(&key("locked"), at(0)).await),
                    _ => {
                        let put = |name: &str| Write::Put { key: key(name), record: record("w", 1_000) };
                        let batch = Batch::new(vec![put("locked"), put("another")]).unwrap();
                        drop(store.commit(batch, at(0)).await);
                    }
                }
            }
        };
        giving_up(write, Duration::from_millis(200)).join_all().await;
    }
    // A quarter of the twelve connections for such work.
    locked.until_waiting(|count| count > 0).await;
    let waiting = locked.waiting().await;
    assert!(waiting <= 3, "{waiting} statements wait for the row");
    let version = store.get(&key("free"), at(0)).await.unwrap().unwrap().version;
    let replaced = store.replace(key("free"), version, record("w", 1_000), at(0));
    assert!(within(5, replaced).await.unwrap().is_applied());
    locked.release().await;
    // Their turns end with them.
    let put = within(20, store.put(key("locked"), record("x", 1_000), at(0)));
    assert!(put.await.unwrap().is_applied());
}

async fn checks_of_a_locked_row_hold_up_no_other_check() {
    let locked = Locked::new("").await;
    let store = Arc::clone(&locked.store);
    let check = || {
        let store = Arc::clone(&store);
        async move {
            let _ = store.insert(key("locked"), record("w", 1_000), at(0)).await;
        }
    };
    let mut calls = giving_up(check, Duration::from_secs(1));
    locked.until_waiting(|count| count > 0).await;
    let mut took = Vec::new();
    for number in 0..20 {
        took.push(locked.unrelated(number).await);
    }
    while calls.join_next().await.is_some() {}
    took.push(locked.unrelated(20).await);
    took.sort_unstable();
    println!(
        "unrelated checks beside {CALLERS} of a locked row: median {:?}, longest {:?}",
        took[10], took[20]
    );
    assert!(took[10] < Duration::from_millis(50), "{took:?}");
    assert!(took[20] < Duration::from_millis(500), "{took:?}");
    locked.release().await;
}

/// On a server of its own, so that the time of a check is that of a check. `make proof` asks for 50 ms on a machine that does
/// nothing else; beside other tests the processors are taken.
async fn callers_that_give_up_on_a_quiet_server_hold_up_no_check() {
    let is_quiet = std::env::var_os("EBBTIDE_TEST_QUIET").is_some();
    let bound = Duration::from_millis(if is_quiet { 50 } else { 500 });
    let own = OwnServer::start();
    let locked = Locked::on(&own.url, "&lock_timeout_ms=60000&statement_timeout_ms=60000").await;
    let store = Arc::clone(&locked.store);
    let version = store.get(&key("locked"), at(0)).await.unwrap().unwrap().version;
    let replace = || {
        let store = Arc::clone(&store);
        async move {
            let _ = store.replace(key("locked"), version, record("w", 1_000), at(0)).await;
        }
    };
    let mut took = Vec::new();
    for round in 0..5 {
        let mut calls = giving_up(replace, Duration::from_millis(300));
        locked.until_waiting(|count| count > 0).await;
        let mut number = 0;
        // While they wait, while they give up, and afterwards.
        loop {
            let over = calls.is_empty();
            took.push(locked.unrelated(1_000 * round + number).await);
            number += 1;
            while calls.try_join_next().is_some() {}
            if over {
                break;
            }
        }
    }
    took.sort_unstable();
    let longest = took[took.len() - 1];
    println!(
        "{} checks beside {CALLERS} callers that give up: median {:?}, longest {longest:?}",
        took.len(),
        took[took.len() / 2]
    );
    assert!(longest < bound, "{took:?}");
    locked.release().await;
}

async fn writes_that_wait_for_a_row_leave_connections_for_single_rows() {
    let locked = Locked::new("").await;
    let store = Arc::clone(&locked.store);
    let put = || {
        let store = Arc::clone(&store);
        async move {
            let _ = store.put(key("locked"), record("w", 1_000), at(0)).await;
        }
    };
    let mut calls = giving_up(put, Duration::from_secs(1));
    locked.until_waiting(|count| count > 0).await;
    let took = locked.unrelated(0).await;
    println!("an unrelated check while {CALLERS} writers of a locked row wait: {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    while calls.join_next().await.is_some() {}
    locked.release().await;
}

async fn writes_that_wait_for_a_row_hold_up_no_other_write() {
    // Nothing ends their wait within the test.
    let locked = Locked::new("&lock_timeout_ms=60000&statement_timeout_ms=60000").await;
    let store = Arc::clone(&locked.store);
    let mut calls = JoinSet::new();
    for caller in 0..CALLERS {
        let store = Arc::clone(&store);
        calls.spawn(async move {
            let write = |name: &str| Write::Put { key: key(name), record: record("w", 1_000) };
            let done = match caller % 3 {
                0 => store.put(key("locked"), record("w", 1_000), at(0)).await.map(|_| ()),
                1 => store.take(&key("locked"), at(0)).await.map(|_| ()),
                _ => {
                    let batch =
                        Batch::new(vec![write("locked"), write(&format!("beside-{caller}"))]).unwrap();
                    store.commit(batch, at(0)).await.map(|_| ())
                }
            };
            drop(done);
        });
    }
    locked.until_waiting(|count| count > 0).await;
    let began = Stopwatch::start();
    let version = store.get(&key("free"), at(0)).await.unwrap().unwrap().version;
    let replaced = store.replace(key("free"), version, record("w", 1_000), at(0));
    assert!(within(20, replaced).await.unwrap().is_applied());
    let pair = ["free", "other"].map(|name| Write::Put { key: key(name), record: record("x", 1_000) });
    let committed = store.commit(Batch::new(pair.to_vec()).unwrap(), at(0));
    assert!(within(20, committed).await.unwrap().is_applied());
    println!("a read, a replace and a batch beside {CALLERS} writers of a locked row: {:?}", began.elapsed());
    calls.abort_all();
    locked.release().await;
}

async fn a_row_that_stays_locked_is_unavailable_within_the_lock_timeout() {
    let locked = Locked::new("&lock_timeout_ms=200").await;
    let began = Stopwatch::start();
    for error in [
        locked.store.insert(key("locked"), record("w", 1_000), at(0)).await.unwrap_err(),
        locked.store.put(key("locked"), record("w", 1_000), at(0)).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("lock"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    locked.release().await;
    assert!(locked.store.put(key("locked"), record("w", 1_000), at(0)).await.unwrap().is_applied());
}

async fn a_batch_whose_caller_goes_away_leaves_no_transaction_open() {
    let locked = Locked::new("&lock_timeout_ms=60000&statement_timeout_ms=60000").await;
    let store = Arc::clone(&locked.store);
    let batch = || {
        let store = Arc::clone(&store);
        let put = |name: &str| Write::Put { key: key(name), record: record("w", 1_000) };
        let batch = Batch::new(vec![put("locked"), put("another")]).unwrap();
        async move {
            let _ = store.commit(batch, at(0)).await;
        }
    };
    giving_up(batch, Duration::from_millis(300)).join_all().await;
    within(5, locked.until_waiting(|count| count == 0)).await;
    locked.release().await;
    assert_eq!(locked.store.get(&key("locked"), at(0)).await.unwrap().unwrap().value, "v");
    assert!(locked.store.get(&key("another"), at(0)).await.unwrap().is_none(), "all or nothing");
}
