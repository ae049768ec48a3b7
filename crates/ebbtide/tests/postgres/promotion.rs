//! A primary with a synchronous standby, which takes its place under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebbtide::engines::postgres;
use ebbtide::{Admin, Backend as _, BackendExt as _, ErrorKind};

use crate::crash::{Tally, WRITERS, more, summary, verify, write};
use crate::service::{OwnServer, at, cases, connect, fresh_on, key, open_at, put, record, within};

cases! {
    a_standby_promoted_under_load_loses_no_answer_and_has_no_double_winner
    a_primary_that_lost_its_standby_is_left_for_the_promoted_one
    a_write_that_no_standby_has_is_not_seen_when_its_caller_gives_up
}

/// A primary and its synchronous standby.
struct Pair {
    primary: OwnServer,
    standby: OwnServer,
}

impl Pair {
    fn start() -> Self {
        tokio::task::block_in_place(|| {
            let primary = OwnServer::start();
            let standby = OwnServer::standby_of(&primary);
            Self { primary, standby }
        })
    }

    /// A migrated store, with both hosts in its URL.
    async fn store(&self, options: &str) -> String {
        let url = fresh_on(&self.primary.url).await;
        postgres::migrate(&url).await.unwrap();
        let host =
            |server: &OwnServer| server.url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
        let both = format!("{},{}", host(&self.primary), host(&self.standby));
        format!("{}{options}", url.replacen(&host(&self.primary), &both, 1))
    }
}

/// Number of promotions; `make proof` asks for more.
fn promotions() -> usize {
    std::env::var("EBBTIDE_TEST_PROMOTIONS").map_or(1, |count| count.parse().unwrap())
}

async fn a_standby_promoted_under_load_loses_no_answer_and_has_no_double_winner() {
    let mut pair = Pair::start();
    let url = pair.store("").await;
    // Two nodes: of the contenders for a key some are on each.
    let nodes = [open_at(&url).await, open_at(&url).await];
    let tally = Arc::new(Tally::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(Arc::clone(&nodes[writer % 2]), Arc::clone(&tally), writer)))
        .collect();
    let rounds = promotions();
    for round in 1..=rounds {
        more(&tally.acknowledged, 1_000).await;
        tokio::task::block_in_place(|| pair.primary.kill());
        more(&tally.unavailable, WRITERS / 4).await;
        tokio::task::block_in_place(|| pair.standby.promote());
        // The same nodes go on, with the promoted one.
        more(&tally.acknowledged, 500).await;
        if round < rounds {
            std::mem::swap(&mut pair.primary, &mut pair.standby);
            let Pair { primary, standby } = &mut pair;
            tokio::task::block_in_place(|| standby.follow(primary));
        }
    }
    tally.stop.store(true, Ordering::SeqCst);
    let mut told = Vec::new();
    for writer in writers {
        told.push(within(60, writer).await.unwrap());
    }
    verify(nodes[0].as_ref(), &told).await;
    let unavailable = tally.unavailable.load(Ordering::SeqCst);
    println!("{rounds} promotions: {}; {unavailable} calls unavailable", summary(&told));
}

/// As after a partition between the two: the old primary answers, and can commit nothing any more.
async fn a_primary_that_lost_its_standby_is_left_for_the_promoted_one() {
    let pair = Pair::start();
    let url = pair.store("&statement_timeout_ms=1000&lock_timeout_ms=1000&connect_timeout=5").await;
    let store = open_at(&url).await;
    put(&store, key("before"), record("v", 1_000)).await;
    tokio::task::block_in_place(|| pair.standby.promote());
    // It is not acknowledged: the standby that it waits for is gone.
    let error = within(120, store.insert(key("between"), record("v", 1_000), at(0))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    within(120, async { while store.insert(key("after"), record("v", 1_000), at(0)).await.is_err() {} })
        .await;
    let table = url.split_once("schema=").unwrap().1.split('&').next().unwrap().to_owned();
    let there = async |name: &str| {
        let promoted = connect(&pair.standby.url).await;
        let query = format!("SELECT 1 FROM {table}.probes WHERE key = $1");
        !promoted.query(&query, &[&key(name).as_bytes()]).await.unwrap().is_empty()
    };
    assert!(there("before").await && there("after").await);
    assert!(!there("between").await, "nobody was told so");
    assert!(store.get(&key("between"), at(0)).await.unwrap().is_none());
}

/// A request to cancel would end the wait for the standby, and make a commit visible that a promotion takes back.
async fn a_write_that_no_standby_has_is_not_seen_when_its_caller_gives_up() {
    let pair = Pair::start();
    let store: Arc<dyn Admin> = open_at(&pair.store("").await).await;
    put(&store, key("a"), record("before", 1_000)).await;
    tokio::task::block_in_place(|| pair.standby.kill());
    let puts = (0..4).map(|_| {
        tokio::time::timeout(Duration::from_millis(300), store.put(key("a"), record("after", 1_000), at(0)))
    });
    for given_up in futures_util::future::join_all(puts).await {
        assert!(given_up.is_err(), "no standby has it");
    }
    // A request to cancel is sent at once, and again every 100 milliseconds.
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(store.get(&key("a"), at(0)).await.unwrap().unwrap().value, "before");
    }
}
