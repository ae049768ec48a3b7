//! Races between two processes, as between two nodes: exactly one winner over both.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use ebbtide::{Admin, Batch, Version, Write};

use crate::service::{at, cases, key, migrated, open_at, put, record};

cases! {
    one_insert_wins_over_two_processes
    one_take_wins_over_two_processes
    one_replace_wins_over_two_processes
    one_crossing_absence_wins_over_two_processes
    one_batch_wins_over_two_processes
}

const ROUNDS: usize = 25;
const TASKS: usize = 16;
const VERSION: Version = Version::from_bytes([7; 16]);
const VARIABLE: &str = "EBBTIDE_TEST_RACE";

/// Task of the other process.
pub(crate) struct Race {
    what: String,
    process: usize,
    url: String,
}

impl Race {
    pub(crate) fn from_environment() -> Option<Self> {
        let variable = std::env::var(VARIABLE).ok()?;
        let mut words = variable.splitn(3, ' ').map(str::to_owned);
        let (what, process, url) = (words.next()?, words.next()?, words.next()?);
        Some(Self { what, process: process.parse().unwrap(), url })
    }

    /// Begins each round when it is told to, and prints how many of its tasks won it.
    pub(crate) fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(async {
            let store = open_at(&self.url).await;
            store.get(&key("warm"), at(0)).await.unwrap();
            let mut signals = std::io::stdin().lines();
            println!("ready");
            for round in 0..ROUNDS {
                signals.next().unwrap().unwrap();
                let tasks: Vec<_> = (0..TASKS)
                    .map(|task| {
                        let (store, what, number) =
                            (Arc::clone(&store), self.what.clone(), self.process * TASKS + task);
                        tokio::spawn(async move { attempt(store.as_ref(), &what, round, number).await })
                    })
                    .collect();
                let mut won = 0;
                for task in tasks {
                    won += usize::from(task.await.unwrap());
                }
                println!("{won}");
            }
        });
        ExitCode::SUCCESS
    }
}

/// One of the contenders of a round; whether it won.
async fn attempt(store: &dyn Admin, what: &str, round: usize, number: usize) -> bool {
    let [first, second] = ["a", "b"].map(|name| key(&format!("{name}{round}")));
    let record = record(&number.to_string(), 1_000);
    let insert = |key| Write::Insert { key, record: record.clone() };
    let writes = match what {
        "take" => return store.take(&first, at(0)).await.unwrap().is_some(),
        "insert" => vec![insert(first)],
        "replace" => vec![Write::Replace { key: first, expected: VERSION, record }],
        "absence" if number.is_multiple_of(2) => vec![Write::Absent { key: first }, insert(second)],
        "absence" => vec![Write::Absent { key: second }, insert(first)],
        "batch" if number.is_multiple_of(2) => vec![insert(first), insert(second)],
        "batch" => vec![insert(second), insert(first)],
        other => panic!("no such race: {other}"),
    };
    store.commit(Batch::new(writes).unwrap(), at(0)).await.unwrap().is_applied()
}

fn start(what: &str, process: usize, url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env(VARIABLE, format!("{what} {process} {url}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the race in two processes that begin together; each round has exactly one winner.
async fn race(what: &str) {
    // A connection for each task: what is raced for are the rows.
    let url = migrated().await.replace("&pool=8", &format!("&pool={TASKS}"));
    let store = open_at(&url).await;
    if ["take", "replace"].contains(&what) {
        for round in 0..ROUNDS {
            let mut standing = record("before", 1_000);
            standing.version = VERSION;
            put(&store, key(&format!("a{round}")), standing).await;
        }
    }
    let mut processes = [start(what, 0, &url), start(what, 1, &url)];
    let mut outputs = processes.each_mut().map(|child| BufReader::new(child.stdout.take().unwrap()).lines());
    let mut signals = processes.each_mut().map(|child| child.stdin.take().unwrap());
    let mut said = |process: usize| outputs[process].next().unwrap().unwrap();
    assert_eq!([said(0), said(1)], ["ready", "ready"]);
    let mut won = [0, 0];
    for round in 0..ROUNDS {
        for signal in &mut signals {
            signal.write_all(b"go\n").unwrap();
        }
        let winners = [0, 1].map(|process| said(process).parse::<usize>().unwrap());
        assert_eq!(winners[0] + winners[1], 1, "round {round} of {what}");
        won = [won[0] + winners[0], won[1] + winners[1]];
    }
    println!("{what}: the processes won {} and {} of {ROUNDS} rounds", won[0], won[1]);
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
}

async fn one_insert_wins_over_two_processes() {
    race("insert").await;
}

async fn one_take_wins_over_two_processes() {
    race("take").await;
}

async fn one_replace_wins_over_two_processes() {
    race("replace").await;
}

async fn one_crossing_absence_wins_over_two_processes() {
    race("absence").await;
}

async fn one_batch_wins_over_two_processes() {
    race("batch").await;
}
