//! Races between two processes: this binary, started twice more, plays a part in each.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use ebbtide::Backend as _;
use ebbtide::{Admin, BackendExt, Batch, Record, Version, Write};

use crate::site::{Site, at, key, open, record};

crate::trials! {
    one_insert_wins_across_processes
    one_replace_wins_across_processes
    one_take_wins_across_processes
    one_transaction_wins_across_processes
}

const PART: &str = "EBBTIDE_TEST_DYNAMODB_PART";
const STORE: &str = "EBBTIDE_TEST_DYNAMODB_PART_STORE";

/// Number of contested keys, and of tasks in each process.
const KEYS: usize = 10;
const TASKS: usize = 16;

/// The version that every raced-for record has to begin with.
const FIRST: Version = Version::from_bytes([7; 16]);

/// Plays a part if this process was started for one.
pub(crate) fn play() -> Option<ExitCode> {
    let (part, url) = (std::env::var(PART).ok()?, std::env::var(STORE).ok()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let won = runtime.block_on(race(&part, &url));
    println!("won {}", won.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    Some(ExitCode::SUCCESS)
}

/// Races for every key with many tasks, and returns the keys that were won, once for each time.
async fn race(part: &str, url: &str) -> Vec<usize> {
    let store = Arc::new(open(url).await);
    // A connection is there, and credentials are, before the start.
    store.get(&key("warm"), at(0)).await.unwrap();
    println!("ready");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    let mut won = Vec::new();
    for number in 0..KEYS {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (store, part) = (Arc::clone(&store), part.to_owned());
                tokio::spawn(async move { attempt(&*store, &part, number).await })
            })
            .collect();
        for task in tasks {
            won.extend(task.await.unwrap().then_some(number));
        }
    }
    won
}

async fn attempt(store: &dyn Admin, part: &str, number: usize) -> bool {
    let (one, two) = (key(&format!("one {number}")), key(&format!("two {number}")));
    match part {
        "insert" => store.insert(one, record("v", 100), at(0)).await.unwrap().is_applied(),
        "replace" => store.replace(one, FIRST, record("v", 100), at(0)).await.unwrap().is_applied(),
        "take" => store.take(&one, at(0)).await.unwrap().is_some(),
        "transaction" => {
            let replace = Write::Replace { key: one, expected: FIRST, record: record("v", 100) };
            let insert = Write::Insert { key: two, record: record("v", 100) };
            store.commit(Batch::new(vec![insert, replace]).unwrap(), at(0)).await.unwrap().is_applied()
        }
        part => panic!("no part {part}"),
    }
}

async fn two_processes(site: &Site, part: &str) {
    let url = site.url().await;
    let store = open(&url).await;
    if part != "insert" {
        for number in 0..KEYS {
            let first = Record { version: FIRST, ..record("first", 100) };
            let key = key(&format!("one {number}"));
            assert!(store.put(key, first, at(0)).await.unwrap().is_applied());
        }
    }
    let mut children: Vec<_> = (0..2).map(|_| start(part, &url)).collect();
    let mut answers: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for answer in &mut answers {
        assert_eq!(line(answer), "ready");
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut won = Vec::new();
    for answer in &mut answers {
        let line = line(answer);
        let numbers = line.strip_prefix("won").expect("a list").split_whitespace();
        won.extend(numbers.map(|number| number.parse::<usize>().unwrap()));
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    won.sort_unstable();
    assert_eq!(won, (0..KEYS).collect::<Vec<_>>(), "each is won exactly once, by one of the two");
}

fn start(part: &str, url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env(PART, part)
        .env(STORE, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn line(answer: &mut impl BufRead) -> String {
    let mut line = String::new();
    answer.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

async fn one_insert_wins_across_processes(site: &Site) {
    two_processes(site, "insert").await;
}

async fn one_replace_wins_across_processes(site: &Site) {
    two_processes(site, "replace").await;
}

async fn one_take_wins_across_processes(site: &Site) {
    two_processes(site, "take").await;
}

async fn one_transaction_wins_across_processes(site: &Site) {
    two_processes(site, "transaction").await;
}
