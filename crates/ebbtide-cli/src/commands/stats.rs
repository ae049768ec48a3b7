//! `ebbtide stats`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::sweeper::{self, SILENCE};
use ebbtide::{Clock as _, SystemClock};
use ebbtide_api::describe;
use serde_json::Value;

use crate::args::Stats;

pub(crate) async fn run(args: Stats) -> Result<ExitCode> {
    let stats = if let Some(server) = args.at.server()? {
        server.call("GET", "/v1/stats", None, None).await?.success()?
    } else {
        let store = ebbtide::open(args.at.store()?).await.context("the store cannot be opened")?;
        let now = SystemClock.now();
        let stats = store.stats(now).await.context("the store cannot be counted")?;
        describe::stats(&stats, &sweeper::warnings(store.as_ref(), now, SILENCE).await?)
    };
    if args.json {
        println!("{stats:#}");
    } else {
        print(&stats);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(stats: &Value) {
    println!("{:<21}  {:>12}  {:>12}  {:>14}", "KIND", "LIVE", "EXPIRED", "OLDEST OVERDUE");
    for (kind, of) in stats["kinds"].as_object().into_iter().flatten() {
        let count = |name: &str| of[name].as_u64().unwrap_or_default();
        let overdue = of["oldest_overdue_seconds"].as_u64().map_or("-".to_owned(), |age| format!("{age} s"));
        println!("{kind:<21}  {:>12}  {:>12}  {overdue:>14}", count("live"), count("expired"));
    }
    for warning in stats["warnings"].as_array().into_iter().flatten() {
        println!("warning: {}", warning.as_str().unwrap_or_default());
    }
}
