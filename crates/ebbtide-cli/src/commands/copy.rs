//! `ebbtide copy`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::transfer::Copier;
use ebbtide::{Backend, Clock, Reach, Scope, SystemClock, Timestamp};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Copy;

pub(crate) async fn run(args: Copy) -> Result<ExitCode> {
    let from = ebbtide::open(&args.from).await.context("the store to copy from cannot be opened")?;
    let to = ebbtide::open(&args.to).await.context("the store to copy to cannot be opened")?;
    let now = SystemClock.now();
    let total = if args.below.is_none() { expected(from.as_ref(), now).await } else { None };
    let reach = Reach::Below(args.below.unwrap_or(Scope::Global));
    let mut copy = Copier::new(from, to, &reach, now)?;
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.set_style(ProgressStyle::with_template(
        "{msg:9} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
    )?);
    bar.set_message("copying");
    let mut verifying = false;
    while let Some(count) = copy.step().await.context("the copy was stopped; run it again to go on")? {
        bar.inc(count);
        if copy.is_verifying() && !verifying {
            verifying = true;
            bar.set_message("verifying");
            bar.reset();
        }
    }
    bar.finish_and_clear();
    let copied = copy.copied();
    for (kind, count) in &copied.written {
        println!("{count:>12} {kind}");
    }
    println!(
        "{} copied, {} were there already, {} stand there otherwise; {} compared equal, {} did not",
        copied.written.values().sum::<u64>(),
        copied.already,
        copied.conflicts,
        copied.verified,
        copied.different,
    );
    Ok(if copied.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// About how many records there are, where the engine knows.
async fn expected(from: &dyn Backend, now: Timestamp) -> Option<u64> {
    let stats = from.stats(now).await.ok()?;
    Some(stats.values().map(|kind| kind.live).sum())
}
