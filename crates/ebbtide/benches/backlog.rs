//! A backlog worked off by the sweeper beside live traffic: how long it takes, and what 64 callers feel of it before,
//! during and after.
//!
//! `cargo bench --bench backlog [-- fjall|postgres]`, with the feature `postgres` for the second: five million expired
//! records in a folder, one million on the server of `EBBTIDE_TEST_POSTGRES`. `QUICK=1` uses a tenth of the records.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

#[path = "support/load.rs"]
mod load;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::clock_guard::ClockGuard;
use ebbtide::sweeper::{Share, Sweeper, Turn};
use ebbtide::{Backend, Clock, ManualClock, SystemChance, SystemClock, Ttl};
use load::{fill, foreground};

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runs = |part: &str| chosen.is_empty() || chosen.iter().any(|name| name == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if runs("fjall") {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("fjall:{}", dir.path().display());
        runtime.block_on(async { backlog(ebbtide::open(&url).await.unwrap(), scaled(5_000_000)).await });
    }
    if runs("postgres") {
        runtime.block_on(on_postgres());
    }
}

fn scaled(records: u64) -> u64 {
    if std::env::var_os("QUICK").is_some() { records / 10 } else { records }
}

#[cfg(feature = "postgres")]
async fn on_postgres() {
    let Ok(server) = std::env::var("EBBTIDE_TEST_POSTGRES") else {
        println!("EBBTIDE_TEST_POSTGRES is not set: PostgreSQL is not measured");
        return;
    };
    // A schema of its own, which is left there: the server is one for measurements.
    let url = format!("{server}?schema=ebbtide_backlog_{}&sslmode=disable", std::process::id());
    ebbtide::backend::postgres::migrate(&url).await.unwrap();
    backlog(ebbtide::open(&url).await.unwrap(), scaled(1_000_000)).await;
}

#[cfg(not(feature = "postgres"))]
async fn on_postgres() {
    println!("PostgreSQL is measured with the feature postgres");
}

/// So many expired records, and a tenth as many live ones.
async fn backlog(store: Arc<dyn Backend>, expired: u64) {
    let now = SystemClock.now();
    let soon = Ttl::from_secs(60).unwrap().expires_at(now).unwrap();
    let late = Ttl::from_secs(24 * 3_600).unwrap().expires_at(now).unwrap();
    fill(&store, expired + expired / 10, 0, |number| if number < expired { soon } else { late }, now).await;
    let mut first = 10 * expired;
    let mut next = || {
        first += 10 * expired;
        first
    };
    let before = foreground::<()>(&store, next(), None).await;
    println!("{}: {expired} expired, {} live", store.engine(), expired / 10);
    // The sweeper's clock is five minutes on, so that nobody waits for the records to expire.
    let clock = ManualClock::at(now.checked_add(Duration::from_secs(300)).unwrap());
    for (name, share) in [("a quarter of the time", Share::QUARTER), ("all of the time", Share::WHOLE)] {
        let sweeping = {
            let (store, clock) = (Arc::clone(&store), clock.clone());
            tokio::spawn(async move {
                let guard =
                    ClockGuard::new(Arc::clone(&store), clock, ClockGuard::DEFAULT_BOUND).await.unwrap();
                let sweeper = Sweeper::new(store, Arc::new(guard), SystemChance).share(share);
                let rest = |time| async move {
                    tokio::time::sleep(time).await;
                    ControlFlow::Continue(())
                };
                match sweeper.sweep(rest).await.unwrap() {
                    Turn::Swept(report) => report,
                    Turn::Busy { .. } => panic!("nobody else sweeps"),
                }
            })
        };
        let during = foreground(&store, next(), Some(&sweeping)).await;
        let report = sweeping.await.unwrap();
        assert!(report.swept.total() >= expired, "{} of {expired} were swept", report.swept.total());
        let after = foreground::<()>(&store, next(), None).await;
        let seconds = report.took.as_secs_f64();
        println!(
            "  {name:22} cleared in {seconds:.1} s ({:.0} records/s); p99 {:.2} ms before, {:.2} ms during \
             ({:.2} x, bar 2), {:.2} ms after",
            report.swept.total() as f64 / seconds,
            before * 1e3,
            during * 1e3,
            during / before,
            after * 1e3
        );
        // The next round's backlog.
        fill(&store, expired, next(), |_| soon, now).await;
    }
}
