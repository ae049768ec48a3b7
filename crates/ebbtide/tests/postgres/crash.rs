//! The server killed under load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::engines::postgres;
use ebbtide::model::alteration::decode_count;
use ebbtide::{Add, Admin, Alteration, BackendExt, Batch, Commit, ErrorKind, SystemRng, Version, Write};

use crate::proxy::Proxy;
use crate::service::{OwnServer, at, cases, fresh_on, key, migrated, open_at, record, within};

cases! {
    a_server_killed_under_load_loses_no_answer_and_has_no_double_winner
    a_write_whose_answer_is_lost_is_not_done_twice
    an_addition_whose_answer_is_lost_is_counted_once_and_not_answered
    a_server_that_hangs_is_unavailable_in_time
}

pub(crate) const WRITERS: usize = 32;
const KILLS: usize = 3;

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) acknowledged: AtomicUsize,
    pub(crate) unavailable: AtomicUsize,
    contended: AtomicUsize,
    pub(crate) stop: AtomicBool,
}

/// Answers that one writer received.
#[derive(Default)]
pub(crate) struct Told {
    inserted: Vec<String>,
    batches: Vec<String>,
    taken: Vec<String>,
    won: Vec<String>,
}

/// Sums of what the writers were told.
pub(crate) fn summary(told: &[Told]) -> String {
    let count = |of: fn(&Told) -> usize| told.iter().map(of).sum::<usize>();
    format!(
        "{} inserts, {} batches, {} takes, {} contended inserts won",
        count(|told| told.inserted.len()),
        count(|told| told.batches.len()),
        count(|told| told.taken.len()),
        count(|told| told.won.len()),
    )
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
    let unavailable = tally.unavailable.load(Ordering::SeqCst);
    println!("{KILLS} kills: {}; {unavailable} calls unavailable", summary(&told));
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
        // The server carries out what it received, and the connection breaks before the answer.
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

async fn an_addition_whose_answer_is_lost_is_counted_once_and_not_answered() {
    let direct = migrated().await;
    let proxy = Proxy::start(&direct).await;
    // One connection: that on which the statement is prepared is the one that breaks.
    let (store, past) = (open_at(&proxy.url.replace("pool=8", "pool=1")).await, open_at(&direct).await);
    let addition = || {
        let version = Version::mint(&SystemRng);
        Alteration::Add(Add { by: 1, limit: 100, expires_if_new: at(1_000), version })
    };
    let count = async || {
        let counter = past.get(&key("n"), at(0)).await.unwrap();
        counter.map_or(0, |counter| decode_count(&counter.value).unwrap())
    };
    let mut counted = 0;
    for _ in 0..8 {
        let before = count().await;
        assert!(within(30, store.alter(&key("n"), &addition(), at(0))).await.unwrap().applied);
        assert_eq!(count().await, before + 1);
        proxy.lose_answers(true);
        let error = within(30, store.alter(&key("n"), &addition(), at(0))).await.unwrap_err();
        proxy.lose_answers(false);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "it cannot be known again");
        // The connection breaks once the server has answered, so that nothing is under way.
        let lost = count().await - before - 1;
        assert!(lost == 0 || lost == 1, "{lost}: an addition whose answer was lost was repeated");
        counted += lost;
        // The broken connection is replaced.
        within(30, async { while store.get(&key("n"), at(0)).await.is_err() {} }).await;
    }
    assert!(counted > 0, "no addition was lost behind the server");
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
pub(crate) async fn more(counter: &AtomicUsize, more: usize) {
    let target = counter.load(Ordering::SeqCst) + more;
    within(60, async {
        while counter.load(Ordering::SeqCst) < target {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

pub(crate) async fn write(store: Arc<dyn Admin>, tally: Arc<Tally>, writer: usize) -> Told {
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

pub(crate) async fn verify(store: &dyn Admin, told: &[Told]) {
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
