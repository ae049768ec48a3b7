//! `ebbtide stats`

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use crate::args::StoreTarget;
use crate::output::outln;
use crate::store::Access;

/// Count the records of a store, by kind
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Count the records of a store, by kind: live, expired but still stored, and the age of the oldest \
        expired one.\n\n\
        On DynamoDB this reads the whole table.",
    after_help = "Examples:\n  \
        ebbtide stats --store fjall:/var/lib/ebbtide\n  \
        ebbtide stats --server http://127.0.0.1:7878 --key-file data/root.key --json"
)]
pub(crate) struct Args {
    #[command(flatten)]
    target: StoreTarget,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let operator = args.target.tool(Access::Read).await?;
    let stats = operator.call("GET", "/v1/stats", None, None).await?.success()?;
    if json {
        outln!("{stats:#}")?;
    } else {
        print(&stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(stats: &Value) -> Result<()> {
    outln!("{:<21}  {:>12}  {:>12}  {:>14}", "KIND", "LIVE", "EXPIRED", "OLDEST OVERDUE")?;
    for (kind, of) in stats["kinds"].as_object().into_iter().flatten() {
        let count = |name: &str| of[name].as_u64().unwrap_or_default();
        let overdue = of["oldest_overdue_seconds"].as_u64().map_or("-".to_owned(), |age| format!("{age} s"));
        outln!("{kind:<21}  {:>12}  {:>12}  {overdue:>14}", count("live"), count("expired"))?;
    }
    for warning in stats["warnings"].as_array().into_iter().flatten() {
        let word = console::Style::new().yellow().apply_to("warning");
        outln!("{word}: {}", warning.as_str().unwrap_or_default())?;
    }
    Ok(())
}
