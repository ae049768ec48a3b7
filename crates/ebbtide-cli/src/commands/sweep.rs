//! `ebbtide sweep`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ebbtide::ops::sweeper::Share;
use ebbtide::timekeeping::ClockState;
use ebbtide::{Kind, Stopwatch};
use ebbtide_api::stats::{KindStatsAnswer, StatsAnswer, SweepRequest};
use serde_json::{Value, json};

use super::scope::print_counts;
use crate::args::StoreTarget;
use crate::config::duration;
use crate::operator::Operator;
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
        ebbtide sweep --server http://127.0.0.1:7878 --key-file data/root.key\n  \
        ebbtide sweep --server http://127.0.0.1:7878 --key-file data/root.key --by-profile --json\n\n\
        Exit status: 0 every expired record is gone, 1 there are more (the time limit was reached, or another sweep is \
        running; 0 with --more-is-ok), 2 the sweep failed, 3 nothing was removed since the clock is in doubt or held. With --json the counts by kind are written, and \"more\" if there are more."
)]
pub(crate) struct Args {
    #[command(flatten)]
    target: StoreTarget,

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

    /// Count the removed codes, grants, access tokens and sessions by profile too; this reads every record of theirs
    #[arg(long, conflicts_with = "dry_run")]
    by_profile: bool,

    /// Lease of the sweep, such as 60s, which is renewed while it makes progress [default: 60s, or the server's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    turn: Option<Duration>,

    /// Age of an overdue record from which a sweep that removes nothing is a fault, such as 5m [default: the engine's]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    overdue: Option<Duration>,

    /// Time limit, such as 30s, 5m or 1h; the rest is left to the next sweep
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_limit: Option<Duration>,

    /// End with status 0 also if there is more for the next sweep: for timers that take any other status for a failure
    #[arg(long)]
    more_is_ok: bool,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let stopwatch = Stopwatch::start();
    let access = if args.dry_run { Access::Read } else { Access::Write };
    let operator = args.target.tool(access).await.map_err(|error| match args.target.store() {
        Ok(url) if store::is_held(url, &error) => error.context(
            "an embedded store is swept by the server that has it open: start it with --sweep-interval, or ask it \
             with --server",
        ),
        _ => error,
    })?;
    if args.dry_run {
        let stats: StatsAnswer = operator.call("GET", "/v1/stats", None, None).await?.read()?;
        report_expired(&args.kinds, &stats, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(refused) = in_doubt(&*operator).await? {
        return Ok(refused);
    }
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let names = args.kinds.iter().map(ToString::to_string).collect();
    let body = SweepRequest {
        kinds: (!args.kinds.is_empty()).then_some(names),
        budget: Some(args.budget.as_f64()),
        time_limit_ms: args.time_limit.map(millis),
        exclusive: true,
        turn_ms: args.turn.map(millis),
        overdue_ms: args.overdue.map(millis),
        by_profile: args.by_profile,
    };
    let answer = operator.call("POST", "/v1/sweep", None, Some(json!(body))).await?;
    if answer.status == 503
        && let Some(refused) = in_doubt(&*operator).await?
    {
        return Ok(refused);
    }
    let more = match answer.or_conflict().context("cannot sweep the store")? {
        Ok(removed) => report(&removed, stopwatch.elapsed(), json)?,
        Err(busy) => {
            errln!("{busy}");
            if json {
                outln!("{}", json!({ "more": true }))?;
            }
            true
        }
    };
    Ok(if more && !args.more_is_ok { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Exit status of a sweep that the clock forbids.
const IN_DOUBT: u8 = 3;

/// Says why nothing is swept, if the clock is not confirmed: a sweep from a timer has nobody who looks at it, and what
/// it removes is gone.
async fn in_doubt(operator: &dyn Operator) -> Result<Option<ExitCode>> {
    let clock = operator.call("GET", "/v1/clock", None, None).await?.success()?;
    if clock["state"] == ClockState::Normal.name() {
        return Ok(None);
    }
    let advice = clock["advice"].as_str().map(|advice| format!("; {advice}")).unwrap_or_default();
    errln!("nothing was swept: {}{advice}", clock["summary"].as_str().unwrap_or_default());
    Ok(Some(ExitCode::from(IN_DOUBT)))
}

/// Reports the removed records: counts by kind and by profile, and `more` if there are more, which it returns.
fn report(removed: &Value, took: Duration, json: bool) -> Result<bool> {
    let more = removed["more"] == true;
    if json {
        outln!("{removed}")?;
    } else {
        let total = print_counts(removed)?;
        for (profile, counts) in removed["by_profile"].as_object().into_iter().flatten() {
            outln!("of the profile {profile}:")?;
            print_counts(counts)?;
        }
        let rest = if more { "; there are more, for the next sweep" } else { "" };
        outln!("{total} removed in {:.1} s{rest}", took.as_secs_f64())?;
    }
    Ok(more)
}

fn report_expired(kinds: &[Kind], stats: &StatsAnswer, json: bool) -> Result<()> {
    let finding = if stats.reclaims_itself {
        "have expired and are left to the engine's TTL, or to a sweep with sweep=delete in the URL"
    } else {
        "have expired and would be removed"
    };
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
