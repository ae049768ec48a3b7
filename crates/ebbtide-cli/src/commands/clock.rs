//! `ebbtide clock`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::timekeeping::ClockState;
use serde_json::{Value, json};

use crate::args::StoreTarget;
use crate::output::{local_time, outln};
use crate::store::Access;

/// Show the clock of a store, or accept the wall clock
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Show the clock of a store, or accept the wall clock.\n\n\
        A store keeps its own time by the clock that runs since the machine was started, so that a wall clock that is \
        set changes nothing. Where the wall clock is ahead, nothing is issued until it agrees, until the engine or the \
        kernel vouches for it, or until it is accepted here. See docs/guides/time.md.",
    after_help = "Examples:\n  \
        ebbtide clock show --store fjall:/var/lib/ebbtide\n  \
        ebbtide clock accept --server http://127.0.0.1:7878 --key-file data/root.key --reason 'the battery was dead'\n\n\
        Exit status of show: 0 wall clock and own time agree, 1 they do not."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the state of the clock, the reason for it, and the next step
    #[command(after_help = "Example:\n  ebbtide clock show --store fjall:/var/lib/ebbtide")]
    Show(Show),
    /// Make the wall clock the store's time; this is audited
    #[command(
        alias = "confirm",
        after_help = "Example:\n  ebbtide clock accept --store fjall:/var/lib/ebbtide --reason 'the time service was down'"
    )]
    Accept(Accept),
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    target: StoreTarget,
}

#[derive(Debug, clap::Args)]
struct Accept {
    #[command(flatten)]
    target: StoreTarget,

    /// Allow the store's time to go back: records issued since live longer by the difference
    #[arg(long)]
    back: bool,

    /// Person or program that accepts the clock, for the audit log
    #[arg(long, value_name = "NAME", default_value = "ebbtide clock accept")]
    actor: String,

    /// Reason, for the audit log
    #[arg(long, value_name = "TEXT", default_value = "an operator accepted the wall clock")]
    reason: String,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Show(show) => run_show(&show, json).await,
        Action::Accept(accept) => run_accept(&accept, json).await,
    }
}

async fn run_show(show: &Show, json: bool) -> Result<ExitCode> {
    let operator = show.target.tool(Access::Read).await?;
    let clock = operator.call("GET", "/v1/clock", None, None).await?.success()?;
    if json {
        outln!("{clock:#}")?;
    } else {
        print(&clock)?;
    }
    let agrees = clock["state"] == ClockState::Normal.name();
    Ok(if agrees { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(clock: &Value) -> Result<()> {
    outln!("{}", clock["summary"].as_str().unwrap_or_default())?;
    for (label, name) in [
        ("state", "state"),
        ("wall clock", "wall"),
        ("own time", "own"),
        ("difference", "difference_ms"),
        ("engine's difference", "engine_difference_ms"),
        ("width", "width_ms"),
        ("since", "since"),
        ("hold left", "hold_left_ms"),
    ] {
        let text = match &clock[name] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            number if name.ends_with("_ms") => format!("{number} ms"),
            number => number.as_u64().map_or_else(|| number.to_string(), local_time),
        };
        outln!("{label:<19}  {text}")?;
    }
    if let Some(advice) = clock["advice"].as_str() {
        outln!("next: {advice}")?;
    }
    Ok(())
}

async fn run_accept(accept: &Accept, json: bool) -> Result<ExitCode> {
    // The entry in the audit log, and the fence where time goes back, need the keyring.
    let operator = accept.target.signer(Access::Write).await?;
    let body = json!({"actor": accept.actor, "reason": accept.reason, "back": accept.back});
    let accepted = operator.call("POST", "/v1/clock/accept", None, Some(body)).await?.success()?;
    if json {
        outln!("{accepted:#}")?;
    } else {
        let time = |name: &str| accepted[name].as_u64().map(local_time).unwrap_or_default();
        outln!("accepted: the store's time was {}, and is {}", time("from"), time("to"))?;
    }
    Ok(ExitCode::SUCCESS)
}
