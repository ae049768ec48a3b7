//! `ebbtide restore`

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ebbtide::restore::restore;
use ebbtide::{Scope, StoreUrl};
use serde_json::Value;

use crate::output::{local_time, outln};
use crate::store::{self, Access};

/// Fence a restored backup before it is served
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Fence a restored backup before it is served.\n\n\
        A backup does not know what happened since: codes in it may have been used, grants and keys revoked. Codes, \
        nonces, challenges, device codes and pushed requests are used from now on; grants, tokens and sessions are over: \
        everybody signs in again. A replay check is refused until every proof from before has ended, unless its `iat` \
        is after the fence. Revocations and deletions in exported audit logs are repeated: of API keys, approvals, \
        relationships, groups of records, clients, owners and scopes. What a log cannot repeat, such as a new client \
        secret or a policy, is printed.",
    after_help = "Examples:\n  \
        ebbtide restore /var/lib/ebbtide\n  \
        ebbtide restore /var/lib/ebbtide --audit audit.jsonl\n\n\
        Export the logs with `ebbtide audit export --follow`. Exit status: 0 the fence is set, 2 it is not."
)]
pub(crate) struct Args {
    /// Folder of the restored store, or the URL of a store of another engine
    #[arg(value_name = "DIR")]
    dir: String,

    /// Exported audit log, whose revocations and deletions are repeated; a scope in front of it replaces that of its
    /// lines
    #[arg(long, value_name = "[SCOPE=]FILE", value_parser = log)]
    audit: Vec<(Option<Scope>, PathBuf)>,

    /// Accepted for scripts; no confirmation is needed
    #[arg(long, hide = true)]
    yes: bool,
}

/// Reads `SCOPE=FILE`, or a file alone.
fn log(text: &str) -> Result<(Option<Scope>, PathBuf), String> {
    let Some((scope, file)) = text.split_once('=') else { return Ok((None, text.into())) };
    let scope = scope.parse().map_err(|error: ebbtide::Error| error.message().to_owned())?;
    Ok((Some(scope), file.into()))
}

/// Scope of a line of an exported log: the one that was named, else its own, else the global one.
fn scope_of(named: Option<&Scope>, entry: &Value) -> Result<Scope> {
    match (named, entry["scope"].as_str()) {
        (Some(scope), _) => Ok(scope.clone()),
        (None, Some(scope)) => Ok(scope.parse()?),
        (None, None) => Ok(Scope::Global),
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    // The folder of a store tells its engine.
    let url = match StoreUrl::of_folder(Path::new(&args.dir)) {
        Some(url) => url,
        None if args.dir.contains(':') => args.dir.clone(),
        None => bail!("no store at {}", args.dir),
    };
    let mut entries = Vec::new();
    for (scope, path) in &args.audit {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        for line in BufReader::new(file).lines() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            let entry: Value = serde_json::from_str(&line)
                .with_context(|| format!("{} is not JSON lines", path.display()))?;
            entries.push((scope_of(scope.as_ref(), &entry)?, entry));
        }
    }
    let db = store::open_signing(&url, Access::Write).await?;
    let fenced = restore(&db, &entries).await.context("the fence is not complete; run it again")?;
    for (kind, count) in &fenced.removed {
        outln!("{count:>12} {kind}")?;
    }
    outln!("{} revocations repeated", fenced.revoked)?;
    if fenced.outdated > 0 {
        outln!("{} lines passed over: they are older than the log keeps entries", fenced.outdated)?;
    }
    for change in &fenced.unrepeated {
        outln!("not repeated, do it by hand: {change}")?;
    }
    if let Some(until) = fenced.until {
        let until = local_time(until.as_millis());
        outln!("replay checks without an iat from now on are refused until {until}")?;
    }
    Ok(ExitCode::SUCCESS)
}
