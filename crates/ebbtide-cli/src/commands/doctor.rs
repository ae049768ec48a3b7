//! `ebbtide doctor`

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::args::StoreArg;
use crate::output::{errln, outln};
use crate::store;

/// Examine the files of an embedded store, and name what is damaged
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Examine the files of an embedded store, and name what is damaged.\n\n\
        Reads every group of the log, every table of the cold store and the manifest, and changes nothing. The store must \
        not be open: stop the server first, or examine a backup. Exits with 0 if nothing is damaged and with 1 if \
        something is; such a store does not open, since it would answer as if nothing had been lost. Put a backup in its \
        place.\n\n\
        A server logs the highest acknowledged group each minute, and has it as the metric ebbtide_log_acknowledged. \
        With --expect SEQ, a log that ends before that group is damaged: the disk lost what it had promised to keep.",
    after_help = "Examples:\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide --expect 48213 --json\n  \
        ebbtide doctor --store fjall:/var/lib/ebbtide --forget-old"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,

    /// Highest group that was acknowledged: a log that ends before it is damaged
    #[arg(long, value_name = "SEQ")]
    expect: Option<u64>,

    /// Remove the files of the old format, which were kept when the store was moved over
    #[arg(long)]
    forget_old: bool,
}

#[cfg(not(any(feature = "fjall", feature = "rocksdb")))]
pub(crate) fn run(args: &Args, _json: bool) -> Result<ExitCode> {
    let _ = (args.expect, args.forget_old);
    store::require_engine(&args.store.url)?;
    anyhow::bail!("only an embedded store can be examined")
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub(crate) fn run(args: &Args, json: bool) -> Result<ExitCode> {
    use ebbtide::engines::embedded::doctor;

    store::require_engine(&args.store.url)?;
    let url = args.store.url.parse()?;
    let report = doctor::examine(&url, args.expect).context("cannot examine the store")?;
    if json {
        outln!("{}", serde_json::to_string(&report)?)?;
    } else {
        print(&report)?;
    }
    if !report.damage.is_empty() {
        return Ok(ExitCode::from(1));
    }
    if args.forget_old {
        let was_there = doctor::forget_old(&url)?;
        errln!(
            "{}",
            if was_there { "removed the files of the old format" } else { "no files of an old format" }
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn print(report: &ebbtide::engines::embedded::doctor::Report) -> Result<()> {
    outln!(
        "log: {} segments, {} groups, {} records and deletes; the last group is {}",
        report.segments,
        report.groups,
        report.frames,
        report.last_sequence
    )?;
    outln!("cold store: {} records", report.cold_records)?;
    if report.torn_bytes > 0 {
        outln!(
            "torn tail: {} bytes, never acknowledged; opening copies them aside and cuts them",
            report.torn_bytes
        )?;
    }
    if report.has_old {
        outln!("old format: kept in the directory `old`; remove it with --forget-old")?;
    }
    for damage in &report.damage {
        outln!("damaged: {}: {}", damage.place, damage.problem)?;
    }
    let verdict = if report.damage.is_empty() {
        "nothing is damaged"
    } else {
        "the store is damaged and does not open"
    };
    outln!("{verdict}")
}
