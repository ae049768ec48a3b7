//! `ebbtide sweep`

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ebbtide::ops::clock_guard::ClockGuard;
use ebbtide::ops::sweeper::{Report, SweepOutcome};
use ebbtide::{
    Backend, Budget, Clock as _, ErrorKind, Kind, KindStats, Stats, Stopwatch, Sweeper, SystemClock,
    SystemRng,
};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::args::Sweep;
use crate::commands::remote;

pub(crate) async fn run(args: Sweep) -> Result<ExitCode> {
    let stopwatch = Stopwatch::start();
    if let Some(server) = args.at.server()? {
        if args.dry_run || args.time_limit.is_some() {
            bail!("a server sweeps everything at once: --dry-run and --time-limit are for --store");
        }
        return remote::sweep(&server, args.json).await;
    }
    let url = args.at.store()?;
    let store = match ebbtide::open(url).await {
        Err(error) if error.kind() == ErrorKind::Unavailable && is_embedded(url) => {
            return Err(error).context(
                "a store that another process serves is swept by that one: start it with --sweep-interval, or ask \
                 it with --server",
            );
        }
        opened => opened.context("the store cannot be opened")?,
    };
    let guard = Arc::new(ClockGuard::new(Arc::clone(&store), SystemClock, ClockGuard::DEFAULT_BOUND).await?);
    if args.dry_run {
        let now = guard.sweep_until().await?;
        tell_expired(store.as_ref(), &store.stats(now).await?, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    let limit = args.time_limit;
    let rest = |time: Duration| async move {
        let left = limit.map(|limit| limit.saturating_sub(stopwatch.elapsed()));
        match left {
            Some(left) if left <= time => return ControlFlow::Break(()),
            _ => sleep(time).await,
        }
        ControlFlow::Continue(())
    };
    // On DynamoDB, deleting what the engine's TTL deletes for nothing is asked for in the URL.
    let step = Budget { force: store.engine() != "dynamodb", ..Budget::default() };
    let sweeper = Sweeper::new(store, guard, SystemRng).share(args.budget).step(step);
    match sweeper.sweep(rest).await.context("the store was not swept")? {
        SweepOutcome::Swept(report) => {
            tell_removed(&report, args.json);
            Ok(if report.swept.more { ExitCode::from(1) } else { ExitCode::SUCCESS })
        }
        SweepOutcome::Busy { until } => {
            let left = until.since(SystemClock.now()).as_secs();
            eprintln!("another sweep is at work; should it have died, the next one begins in {left} s");
            if args.json {
                println!("{}", json!({ "more": true }));
            }
            Ok(ExitCode::from(1))
        }
    }
}

fn is_embedded(url: &str) -> bool {
    url.starts_with("fjall:") || url.starts_with("rocksdb:")
}

fn tell_removed(report: &Report, json: bool) {
    let removed = report.swept.removed.iter();
    if json {
        let mut removed: Map<String, Value> =
            removed.map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
        if report.swept.more {
            removed.insert("more".to_owned(), true.into());
        }
        println!("{}", Value::Object(removed));
        return;
    }
    for (kind, count) in removed {
        println!("{count:>12} {kind}");
    }
    println!(
        "{} removed in {:.1} s{}",
        report.swept.total(),
        report.took.as_secs_f64(),
        if report.swept.more { "; there is more, for the next run" } else { "" }
    );
}

fn tell_expired(store: &dyn Backend, stats: &Stats, json: bool) {
    let expired: Vec<(Kind, KindStats)> =
        stats.iter().filter(|(_, stats)| stats.expired > 0).map(|(kind, stats)| (*kind, *stats)).collect();
    let age = |stats: KindStats| stats.oldest_overdue.unwrap_or_default().as_secs();
    if json {
        let of = |&(kind, stats): &(Kind, KindStats)| {
            let value = json!({"expired": stats.expired, "oldest_overdue_seconds": age(stats)});
            (kind.name().to_owned(), value)
        };
        println!("{}", Value::Object(expired.iter().map(of).collect()));
        return;
    }
    for (kind, stats) in &expired {
        println!("{:>12} {kind}, of which the oldest expired {} s ago", stats.expired, age(*stats));
    }
    let total: u64 = expired.iter().map(|(_, stats)| stats.expired).sum();
    let what = if store.engine() == "dynamodb" {
        "have expired and are for the engine's TTL, or for a sweep with sweep=delete in the URL"
    } else {
        "have expired and would be removed"
    };
    println!("{total} {what}; {} are live and stay", stats.values().map(|stats| stats.live).sum::<u64>());
}
