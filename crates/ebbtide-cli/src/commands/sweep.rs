//! `ebbtide sweep`

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ebbtide::ops::sweeper::{Share, SweepOutcome};
use ebbtide::timekeeping::ClockState;
use ebbtide::{Budget, Ebbtide, Kind, Stopwatch};
use ebbtide_api::stats::{KindStatsAnswer, StatsAnswer, SweepRequest};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::scope::print_counts;
use crate::args::Target;
use crate::config::duration;
use crate::output::{errln, outln};
use crate::store::{self, Access};

/// Remove expired records once, for a timer
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Remove expired records once, and report the number of each kind.\n\n\
        Made for cron, a systemd timer or a Kubernetes CronJob. Two sweeps never run at once: the second one finds the \
        lease of the first in the store, and ends. A sweep that its time limit interrupts is resumed by the next. An \
        embedded store is swept by the server that has it open (--sweep-interval, or POST /v1/sweep); this command \
        sweeps it while no server runs, or asks the server with --server. On DynamoDB the engine's TTL removes expired \
        records, and this command removes index records whose record is gone; with sweep=delete in the URL it removes \
        overdue records too.",
    after_help = "Examples:\n  \
        ebbtide sweep --store 'postgres://ebbtide@db/auth' --budget 0.25 --time-limit 10m\n  \
        ebbtide sweep --store fjall:/var/lib/ebbtide --dry-run\n  \
        ebbtide sweep --store fjall:/var/lib/ebbtide --kind replays,nonces\n  \
        ebbtide sweep --server http://127.0.0.1:7878 --key-file data/root.key\n\n\
        Exit status: 0 every expired record is gone, 1 there are more (the time limit was reached, or another sweep is \
        running), 2 the sweep failed, 3 nothing was removed since the clock is in doubt or held. With --json the counts by kind are written, and \"more\" if there are more."
)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Kind to sweep, such as replays; several times, or separated by commas, for several [default: all]
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<Kind>,

    /// Remove nothing, and report the expired records and the age of the oldest, by the minute; on DynamoDB this reads
    /// the whole table
    #[arg(long)]
    dry_run: bool,

    /// Share of the time that the sweep may use, 0.01 to 1
    #[arg(long, env = "EBBTIDE_SWEEP_BUDGET", value_name = "SHARE", default_value = "1")]
    budget: Share,

    /// Time limit, such as 30s, 5m or 1h; the rest is left to the next sweep
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_limit: Option<Duration>,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let stopwatch = Stopwatch::start();
    if let Some(server) = args.target.server()? {
        if args.time_limit.is_some() {
            bail!("--time-limit needs --store: a server sweeps everything at once");
        }
        if args.dry_run {
            let stats = server.call("GET", "/v1/stats", None, None).await?.success()?;
            let stats: StatsAnswer = serde_json::from_value(stats)?;
            report_expired(&args.kinds, &stats, "have expired", json)?;
            return Ok(ExitCode::SUCCESS);
        }
        let names = args.kinds.iter().map(ToString::to_string).collect();
        let body = SweepRequest { kinds: (!args.kinds.is_empty()).then_some(names) };
        let removed = server.call("POST", "/v1/sweep", None, Some(json!(body))).await?.success()?;
        return report(&removed, None, json);
    }
    let url = args.target.store()?;
    let access = if args.dry_run { Access::Read } else { Access::Write };
    let db = store::open(url, access).await.map_err(|error| {
        if store::is_held(url, &error) {
            error.context(
                "an embedded store is swept by the server that has it open: start it with --sweep-interval, or ask \
                 it with --server",
            )
        } else {
            error
        }
    })?;
    let store = db.engine();
    if args.dry_run {
        let now = db.time().now()?.earliest();
        let finding = if store.info().reclaims_itself {
            "have expired and are left to the engine's TTL, or to a sweep with sweep=delete in the URL"
        } else {
            "have expired and would be removed"
        };
        let stats = StatsAnswer::new(&store.stats(now).await?, Vec::new());
        report_expired(&args.kinds, &stats, finding, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(refused) = in_doubt(&db).await {
        return Ok(refused);
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
    // DynamoDB deletes expired records for free; the URL asks for paid deletes (sweep=delete).
    let step = Budget { force: !store.info().reclaims_itself, ..Budget::default() };
    let mut sweeper = db.sweeper().share(args.budget).step(step);
    if !args.kinds.is_empty() {
        sweeper = sweeper.kinds(&args.kinds);
    }
    let swept = match sweeper.sweep(rest).await {
        Ok(swept) => swept,
        Err(error) => match in_doubt(&db).await {
            Some(refused) => return Ok(refused),
            None => return Err(error).context("cannot sweep the store"),
        },
    };
    match swept {
        SweepOutcome::Swept(done) => {
            let mut removed: BTreeMap<Kind, u64> = args.kinds.iter().map(|kind| (*kind, 0)).collect();
            removed.extend(&done.swept.removed);
            let mut removed: Map<String, Value> =
                removed.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
            if done.swept.more {
                removed.insert("more".to_owned(), true.into());
            }
            report(&Value::Object(removed), Some(done.took), json)
        }
        SweepOutcome::Busy { until } => {
            let left = until.since(db.time().date()).as_secs();
            errln!("another sweep is running; its lease ends in {left} s");
            if json {
                outln!("{}", json!({ "more": true }))?;
            }
            Ok(ExitCode::from(1))
        }
    }
}

/// Exit status of a sweep that the clock forbids.
const IN_DOUBT: u8 = 3;

/// Says why nothing is swept, if the clock is not confirmed: a sweep from a timer has nobody who looks at it, and what
/// it removes is gone.
async fn in_doubt(db: &Ebbtide) -> Option<ExitCode> {
    let compared = db.timed().ask_engine().await;
    let status = db.time().status();
    if status.state == ClockState::Normal && compared.is_ok() {
        return None;
    }
    match compared {
        Err(error) => errln!("nothing was swept: cannot compare the engine's clock: {error}"),
        Ok(_) => errln!("nothing was swept: {}", status.sentence()),
    }
    Some(ExitCode::from(IN_DOUBT))
}

/// Reports the removed records: counts by kind, and `more` if there are more.
fn report(removed: &Value, took: Option<Duration>, json: bool) -> Result<ExitCode> {
    let more = removed["more"] == true;
    if json {
        outln!("{removed}")?;
    } else {
        let total = print_counts(removed)?;
        let took = took.map(|took| format!(" in {:.1} s", took.as_secs_f64())).unwrap_or_default();
        outln!("{total} removed{took}{}", if more { "; there are more, for the next sweep" } else { "" })?;
    }
    Ok(if more { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn report_expired(kinds: &[Kind], stats: &StatsAnswer, finding: &str, json: bool) -> Result<()> {
    let asked = |kind: &str| kinds.is_empty() || kinds.iter().any(|asked| asked.name() == kind);
    let expired: Vec<(&String, &KindStatsAnswer)> =
        stats.kinds.iter().filter(|(kind, of)| of.expired > 0 && asked(kind)).collect();
    let age = |stats: &KindStatsAnswer| stats.oldest_overdue_seconds.unwrap_or_default();
    if json {
        let of = |(kind, stats): &(&String, &KindStatsAnswer)| {
            let value = json!({"expired": stats.expired, "oldest_overdue_seconds": age(stats)});
            ((*kind).clone(), value)
        };
        return outln!("{}", Value::Object(expired.iter().map(of).collect()));
    }
    for (kind, stats) in &expired {
        outln!("{:>12} {kind}, the oldest expired {} s ago", stats.expired, age(stats))?;
    }
    let total: u64 = expired.iter().map(|(_, stats)| stats.expired).sum();
    let live: u64 = stats.kinds.iter().filter(|(kind, _)| asked(kind)).map(|(_, of)| of.live).sum();
    outln!("{total} {finding}; {live} are live")
}
