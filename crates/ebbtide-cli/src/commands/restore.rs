//! `ebbtide restore`

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::Scope;
use ebbtide::restore::restore;
use serde_json::Value;

use crate::args::Confirmation;
use crate::output::{local_time, outln};
use crate::store::{self, Access};

/// Fence a restored backup before it is served
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Fence a restored backup before it is served.\n\n\
        A backup does not know what happened since: codes in it may have been used, grants and keys revoked. What was \
        issued is removed (codes, nonces, device codes, pushed requests, grants, tokens, sessions: everybody signs in \
        again), replay checks are refused until every proof from before has ended, and the revocations in exported \
        audit logs are repeated.",
    after_help = "Example:\n  \
        ebbtide restore /var/lib/ebbtide --audit tenant:acme=acme.jsonl --yes\n\n\
        Export the logs with `ebbtide audit export --follow`. Exit status: 0 the fence is set, 2 it is not."
)]
pub(crate) struct Args {
    /// Folder of the restored store, or the URL of a store of another engine
    #[arg(value_name = "DIR")]
    dir: String,

    /// Exported audit log of a scope, whose revocations are repeated
    #[arg(long, value_name = "SCOPE=FILE", value_parser = log)]
    audit: Vec<(Scope, PathBuf)>,

    #[command(flatten)]
    confirmation: Confirmation,
}

/// Reads `SCOPE=FILE`; without a scope, the global one.
fn log(text: &str) -> Result<(Scope, PathBuf), String> {
    let (scope, file) = text.split_once('=').unwrap_or(("global", text));
    Ok((scope.parse().map_err(|error: ebbtide::Error| error.message().to_owned())?, file.into()))
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let url = if args.dir.contains(':') { args.dir.clone() } else { format!("fjall:{}", args.dir) };
    let mut entries = Vec::new();
    for (scope, path) in &args.audit {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        for line in BufReader::new(file).lines() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            let entry: Value = serde_json::from_str(&line)
                .with_context(|| format!("{} is not JSON lines", path.display()))?;
            entries.push((scope.clone(), entry));
        }
    }
    args.confirmation.ask("remove everything that was issued before the backup")?;
    let db = store::open_signing(&url, Access::Write).await?;
    let fenced = restore(&db, &entries).await.context("the fence is not complete; run it again")?;
    for (kind, count) in &fenced.removed {
        outln!("{count:>12} {kind}")?;
    }
    outln!("{} revocations repeated", fenced.revoked)?;
    if let Some(until) = fenced.until {
        outln!("replay checks are refused until {}", local_time(until.as_millis()))?;
    }
    Ok(ExitCode::SUCCESS)
}
