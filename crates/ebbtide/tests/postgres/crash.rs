//! The server killed under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::engines::postgres;
use ebbtide::{Admin, BackendExt, Batch, Commit, ErrorKind, Write};

use crate::proxy::Proxy;
use crate::service::{OwnServer, at, cases, fresh_on, key, migrated, open_at, record, within};

cases! {
    a_server_killed_under_load_loses_no_answer_and_has_no_double_winner
    a_write_whose_answer_is_lost_is_not_done_twice
    a_server_that_hangs_is_unavailable_in_time
}

const WRITERS: usize = 32;
const KILLS: usize = 3;

#[derive(Default)]
struct Tally {
    acknowledged: AtomicUsize,
    unavailable: AtomicUsize,
    contended: AtomicUsize,
    stop: AtomicBool,
}

/// What one writer was told.
#[derive(Default)]
struct Told {
    inserted: Vec<String>,
    batches: Vec<String>,
    taken: Vec<String>,
    won: Vec<String>,
}

async fn a_server_killed_under_load_loses_no_answer_and_has_no_double_winner() {
    let server = OwnServer::start();
    let url = fresh_on(&server.url).await;
    postgres::migrate(&url).await.unwrap();
    let store = open_at(&url).await;
    let tally = Arc::new(Tally::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(Arc::clone(&store), Arc::clone(&tally), writer)))
        .collect();
    for _ in 0..KILLS {
        more(&tally.acknowledged, 2_000).await;
        tokio::task::block_in_place(|| server.kill());
        more(&tally.unavailable, WRITERS).await;
        tokio::task::block_in_place(|| server.restart());
        // The same store goes on.
        more(&tally.acknowledged, 500).await;
    }
    tally.stop.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for writer in writers {
        told.push(within(60, writer).await.unwrap());
    }
    verify(store.as_ref(), &told).await;
    let count = |of: fn(&Told) -> usize| told.iter().map(of).sum::<usize>();
    println!(
        "{KILLS} kills: {} inserts, {} batches, {} takes, {} contended inserts won; {} calls unavailable",
        count(|told| told.inserted.len()),
        count(|told| told.batches.len()),
        count(|told| told.taken.len()),
        count(|told| told.won.len()),
        tally.unavailable.load(Ordering::SeqCst)
    );
}

async fn a_write_whose_answer_is_lost_is_not_done_twice() {
    let direct = migrated().await;
    let proxy = Proxy::start(&direct).await;
    let store = open_at(&proxy.url).await;
    let tally = Arc::new(Tally::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(Arc::clone(&store), Arc::clone(&tally), writer)))
        .collect();
    for _ in 0..20 {
        more(&tally.acknowledged, 100).await;
        // What is sent is carried out, and the connection breaks before its answer.
        proxy.lose_answers(true);
        more(&tally.unavailable, 4).await;
        proxy.lose_answers(false);
    }
    tally.stop.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for writer in writers {
        told.push(within(30, writer).await.unwrap());
    }
    verify(store.as_ref(), &told).await;
}

async fn a_server_that_hangs_is_unavailable_in_time() {
    let direct = format!("{}&statement_timeout_ms=2000", migrated().await);
    let proxy = Proxy::start(&direct).await;
    let store = open_at(&proxy.url).await;
    proxy.hang(true);
    let error = within(60, store.get(&key("a"), at(0))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    proxy.hang(false);
    assert_eq!(within(60, store.get(&key("a"), at(0))).await.unwrap(), None, "on a new connection");
}

/// Waits until there are so many more.
async fn more(counter: &AtomicUsize, more: usize) {
    let target = counter.load(Ordering::SeqCst) + more;
    within(60, async {
        while counter.load(Ordering::SeqCst) < target {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

async fn write(store: Arc<dyn Admin>, tally: Arc<Tally>, writer: usize) -> Told {
    let mut told = Told::default();
    for number in 0.. {
        if tally.stop.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("{writer}-{number}");
        let mine = || record(&name, 1_000);
        let answered = match number % 4 {
            0 => store.insert(key(&name), mine(), at(0)).await.map(|commit| {
                assert!(commit.is_applied(), "nobody else writes {name}");
                told.inserted.push(name.clone());
            }),
            1 => {
                let pair = ["x", "y"]
                    .map(|half| Write::Insert { key: key(&format!("{half}{name}")), record: mine() });
                store.commit(Batch::new(pair.to_vec()).unwrap(), at(0)).await.map(|commit| {
                    assert_eq!(commit, Commit::Applied);
                    told.batches.push(name.clone());
                })
            }
            2 => match told.inserted.pop() {
                Some(earlier) => store.take(&key(&earlier), at(0)).await.map(|taken| {
                    assert!(taken.is_some(), "{earlier} was acknowledged, and nobody else takes it");
                    told.taken.push(earlier);
                }),
                None => continue,
            },
            _ => {
                // About as many at once as there are writers contend for each of these.
                let shared = format!("c{}", tally.contended.fetch_add(1, Ordering::SeqCst) / WRITERS);
                store.insert(key(&shared), mine(), at(0)).await.map(|commit| {
                    if commit.is_applied() {
                        told.won.push(format!("{shared} {name}"));
                    }
                })
            }
        };
        match answered {
            Ok(()) => tally.acknowledged.fetch_add(1, Ordering::SeqCst),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
                tally.unavailable.fetch_add(1, Ordering::SeqCst)
            }
        };
    }
    told
}

async fn verify(store: &dyn Admin, told: &[Told]) {
    let mut winners: BTreeMap<&str, &str> = BTreeMap::new();
    for told in told {
        for name in &told.inserted {
            assert!(store.get(&key(name), at(0)).await.unwrap().is_some(), "{name} is lost");
        }
        for name in &told.batches {
            for half in ["x", "y"] {
                let there = store.get(&key(&format!("{half}{name}")), at(0)).await.unwrap();
                assert!(there.is_some(), "half {half} of {name} is lost");
            }
        }
        for name in &told.taken {
            assert_eq!(store.get(&key(name), at(0)).await.unwrap(), None, "{name} was taken and is back");
        }
        for won in &told.won {
            let (shared, name) = won.split_once(' ').unwrap();
            assert_eq!(winners.insert(shared, name), None, "{shared} has two winners");
        }
    }
    for (shared, name) in winners {
        let stored = store.get(&key(shared), at(0)).await.unwrap().expect("the winner's record is there");
        assert_eq!(stored.value, name, "the stored record is the winner's");
    }
}
