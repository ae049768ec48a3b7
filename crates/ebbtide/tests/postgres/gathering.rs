//! Inserts that arrive together: one statement, each caller's own answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ebbtide::{Admin, BackendExt, ErrorKind, Result};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::proxy::Proxy;
use crate::service::{at, cases, connect, key, migrated, open_at, put, record, schema_of, server, within};

cases! {
    inserts_that_arrive_together_are_one_statement
    many_that_wait_are_not_held_up_by_one_statement
    gets_that_arrive_together_are_one_statement
    a_lone_insert_is_a_statement_of_its_own
    duplicates_in_one_statement_have_one_winner
    each_insert_is_judged_at_its_own_time
    a_duplicate_is_judged_after_the_one_before_it
    a_caller_that_goes_away_takes_nobodys_answer_with_it
    a_statement_that_fails_is_unavailable_to_all_and_the_next_goes_on
}

/// Inserts that must wait for a second statement to go out beside the first.
const ENOUGH_FOR_A_LANE: usize = 16;

/// A store whose inserts can be held up, and their statements counted.
struct Held {
    store: Arc<dyn Admin>,
    spy: Client,
    schema: String,
}

impl Held {
    async fn new(options: &str) -> Self {
        // A held table holds up no statement for long enough to be noticed.
        let url = format!("{}&lock_timeout_ms=600000{options}", migrated().await);
        let (store, schema, spy) = (open_at(&url).await, schema_of(&url), connect(&server()).await);
        let count = format!(
            "CREATE TABLE {schema}.statements (); \
             CREATE FUNCTION {schema}.count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO {schema}.statements DEFAULT VALUES; RETURN NULL; END $$; \
             CREATE TRIGGER count AFTER INSERT ON {schema}.probes FOR EACH STATEMENT \
             EXECUTE FUNCTION {schema}.count()"
        );
        spy.batch_execute(&count).await.unwrap();
        // So that the statement is prepared, and is held where it is carried out.
        let _ = store.insert(key("warm"), record("v", 1), at(0)).await.unwrap();
        spy.batch_execute(&format!("DELETE FROM {schema}.statements")).await.unwrap();
        Self { store, spy, schema }
    }

    async fn hold(&self) {
        let lock = format!("BEGIN; LOCK TABLE {}.probes IN SHARE MODE", self.schema);
        self.spy.batch_execute(&lock).await.unwrap();
    }

    async fn release(&self) {
        self.spy.batch_execute("COMMIT").await.unwrap();
    }

    /// Holds the table, sends one insert ahead that waits there, and lets `inserts` gather behind it, in this order. The
    /// first sixteen go out in a second statement, which waits at the table too.
    async fn gather(&self, inserts: &[(&str, &str, u64, u64)]) -> Vec<JoinHandle<Result<bool>>> {
        self.hold().await;
        let mut tasks = vec![self.insert("ahead", "v", 1_000, 0).await];
        self.until_waiting(1, &tasks).await;
        for &(name, value, expires_at, now) in inserts {
            tasks.push(self.insert(name, value, expires_at, now).await);
            if tasks.len() == 1 + ENOUGH_FOR_A_LANE {
                self.until_waiting(2, &tasks).await;
            }
        }
        tasks
    }

    /// Begins an insert, and returns once it is in the queue: its first poll puts it there.
    async fn insert(&self, name: &str, value: &str, expires_at: u64, now: u64) -> JoinHandle<Result<bool>> {
        let (store, key, record) = (Arc::clone(&self.store), key(name), record(value, expires_at));
        let mut insert = Box::pin(async move { Ok(store.insert(key, record, at(now)).await?.is_applied()) });
        match poll_fn(|context| Poll::Ready(insert.as_mut().poll(context))).await {
            Poll::Pending => tokio::spawn(insert),
            Poll::Ready(answer) => panic!("the table is held: {answer:?}"),
        }
    }

    /// Waits until so many statements wait for the table, or until an insert has ended without.
    async fn until_waiting(&self, count: i64, tasks: &[JoinHandle<Result<bool>>]) {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass";
        let table = format!("{}.probes", self.schema);
        within(60, async {
            while self.spy.query_one(waiting, &[&table]).await.unwrap().get::<_, i64>(0) < count
                && !tasks[0].is_finished()
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn statements(&self) -> i64 {
        let count = format!("SELECT count(*) FROM {}.statements", self.schema);
        self.spy.query_one(&count, &[]).await.unwrap().get(0)
    }
}

async fn answers(tasks: Vec<JoinHandle<Result<bool>>>) -> Vec<bool> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(within(60, task).await.unwrap().unwrap());
    }
    answers
}

async fn inserts_that_arrive_together_are_one_statement() {
    let held = Held::new("").await;
    let _ = held.store.insert(key("7"), record("before", 1_000), at(0)).await.unwrap();
    let names: Vec<String> = (0..15).map(|n| n.to_string()).collect();
    let inserts: Vec<_> = names.iter().map(|name| (name.as_str(), "v", 1_000, 0)).collect();
    let tasks = held.gather(&inserts).await;
    held.release().await;
    let answers = answers(tasks).await;
    for (number, applied) in answers.iter().skip(1).enumerate() {
        assert_eq!(*applied, number != 7, "each caller has its own answer: {number}");
    }
    assert_eq!(held.statements().await, 3, "the one before, the one ahead, and one for fifteen");
}

async fn many_that_wait_are_not_held_up_by_one_statement() {
    let held = Held::new("").await;
    let names: Vec<String> = (0..80).map(|n| n.to_string()).collect();
    let inserts: Vec<_> = names.iter().map(|name| (name.as_str(), "v", 1_000, 0)).collect();
    let tasks = held.gather(&inserts).await;
    held.release().await;
    assert!(answers(tasks).await.into_iter().all(|applied| applied));
    assert_eq!(held.statements().await, 3, "the one ahead, sixteen beside it, and the others together");
}

async fn gets_that_arrive_together_are_one_statement() {
    const GETS: usize = 15;
    let url = migrated().await;
    let proxy = Proxy::start(&url).await;
    let plain = format!("{}&sslmode=disable", proxy.url);
    let (store, schema, spy) = (open_at(&plain).await, schema_of(&url), connect(&server()).await);
    put(&store, key("there"), record("v", 1_000)).await;
    // The statement is prepared, and the connection is there.
    assert!(store.get(&key("there"), at(0)).await.unwrap().is_some());
    let lock = format!("BEGIN; LOCK TABLE {schema}.probes IN ACCESS EXCLUSIVE MODE");
    spy.batch_execute(&lock).await.unwrap();
    let before = proxy.executed();
    let mut gets = Vec::new();
    for number in 0..=GETS {
        let (store, key) = (Arc::clone(&store), key(if number % 2 == 0 { "there" } else { "missing" }));
        let mut get = Box::pin(async move { store.get(&key, at(0)).await });
        // Its first poll puts it in the queue.
        match poll_fn(|context| Poll::Ready(get.as_mut().poll(context))).await {
            Poll::Pending => gets.push(tokio::spawn(get)),
            Poll::Ready(answer) => panic!("the table is held: {answer:?}"),
        }
        // The first goes out by itself, and waits at the table.
        within(60, async {
            while number == 0 && proxy.executed() == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    spy.batch_execute("COMMIT").await.unwrap();
    for (number, get) in gets.into_iter().enumerate() {
        let found = within(60, get).await.unwrap().unwrap();
        assert_eq!(found.is_some(), number % 2 == 0, "each caller has its own answer: {number}");
    }
    assert_eq!(proxy.executed() - before, 2, "the one ahead, and one for fifteen");
}

async fn a_lone_insert_is_a_statement_of_its_own() {
    let held = Held::new("").await;
    for number in 0..10 {
        let inserted = held.store.insert(key(&number.to_string()), record("v", 1_000), at(0));
        assert!(within(60, inserted).await.unwrap().is_applied());
    }
    assert_eq!(held.statements().await, 10);
}

async fn duplicates_in_one_statement_have_one_winner() {
    let held = Held::new("").await;
    let values: Vec<String> = (0..15).map(|n| n.to_string()).collect();
    let names = ["a", "b", "c", "d"];
    let inserts: Vec<_> =
        values.iter().enumerate().map(|(n, value)| (names[n % 4], value.as_str(), 1_000, 0)).collect();
    let tasks = held.gather(&inserts).await;
    held.release().await;
    let answers = answers(tasks).await;
    for (n, name) in names.iter().enumerate() {
        let winners: Vec<_> = (0..15).filter(|i| i % 4 == n && answers[i + 1]).collect();
        assert_eq!(winners.len(), 1, "{name}");
        assert_eq!(held.store.get(&key(name), at(0)).await.unwrap().unwrap().value, winners[0].to_string());
    }
    assert_eq!(held.statements().await, 2, "the duplicates need no statement of their own");
}

async fn each_insert_is_judged_at_its_own_time() {
    let held = Held::new("").await;
    for name in ["early", "late"] {
        put(&held.store, key(name), record("before", 100)).await;
    }
    let tasks = held.gather(&[("late", "w", 1_000, 100), ("early", "w", 1_000, 99)]).await;
    held.release().await;
    assert_eq!(answers(tasks).await, [true, true, false], "one of them comes when the record has expired");
}

async fn a_duplicate_is_judged_after_the_one_before_it() {
    let held = Held::new("").await;
    put(&held.store, key("stands"), record("before", 100)).await;
    let tasks = held
        .gather(&[
            ("fresh", "first", 50, 0),
            ("fresh", "second", 500, 49),
            ("fresh", "third", 500, 50),
            ("stands", "first", 500, 10),
            ("stands", "second", 500, 5),
            ("stands", "third", 500, 100),
        ])
        .await;
    held.release().await;
    // The third of each comes when what was before it has expired, and takes its place.
    assert_eq!(answers(tasks).await, [true, true, false, true, false, false, true]);
    for name in ["fresh", "stands"] {
        assert_eq!(held.store.get(&key(name), at(100)).await.unwrap().unwrap().value, "third");
    }
}

async fn a_caller_that_goes_away_takes_nobodys_answer_with_it() {
    let held = Held::new("").await;
    let mut tasks = held.gather(&[("a", "v", 1_000, 0), ("b", "v", 1_000, 0), ("c", "v", 1_000, 0)]).await;
    // The one whose call sends the statements, and one that waits.
    tasks.remove(0).abort();
    tasks.remove(0).abort();
    held.release().await;
    assert_eq!(answers(tasks).await, [true, true]);
}

async fn a_statement_that_fails_is_unavailable_to_all_and_the_next_goes_on() {
    let held = Held::new("&statement_timeout_ms=500").await;
    let tasks = held.gather(&[("a", "v", 1_000, 0)]).await;
    for task in tasks {
        let error = within(60, task).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    held.release().await;
    assert!(held.store.insert(key("a"), record("v", 1_000), at(0)).await.unwrap().is_applied());
}
