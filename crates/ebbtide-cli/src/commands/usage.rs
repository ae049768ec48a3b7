//! `ebbtide usage`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use ebbtide_api::attributes::UsageAnswer;
use serde_json::json;

use crate::args::ScopeTarget;
use crate::client::encoded;
use crate::output::{outln, table};
use crate::store::Access;

/// Count the attributes of a scope or an owner and their bytes, by bucket
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Count the attributes of a scope or an owner and their bytes, by bucket.\n\n\
        It reads every attribute of them. With --last, the growth since the last run is shown, and the file is replaced: \
        run it weekly from a timer, and look at buckets that only grow.",
    after_help = "Examples:\n  \
        ebbtide usage --store fjall:data --scope tenant:acme --by bucket\n  \
        ebbtide usage --server http://127.0.0.1:7878 --scope global --below --last /var/lib/ebbtide/usage.json"
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: ScopeTarget,

    /// Owner; every owner of the scope without it
    #[arg(long, conflicts_with = "below")]
    owner: Option<String>,

    /// Include the scopes below
    #[arg(long)]
    below: bool,

    /// Grouping
    #[arg(long, value_name = "WHAT", value_parser = ["bucket"], default_value = "bucket")]
    by: String,

    /// File that holds the last result, and gets this one
    #[arg(long, value_name = "FILE")]
    last: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let scope = args.place.scope();
    let answer = if let Some(owner) = &args.owner {
        let path = format!("/v1/attributes/{}?usage=true", encoded(owner));
        operator.call("GET", &path, Some(scope), None).await?
    } else {
        let scope = scope.to_string();
        let path = format!("/v1/scopes/{}/usage?below={}", encoded(&scope), args.below);
        operator.call("GET", &path, None, None).await?
    };
    let usage: UsageAnswer = answer.read()?;
    let last = args.last.as_ref().map(read).transpose()?.flatten();
    if json {
        outln!("{}", json!(usage))?;
    } else {
        print(&usage, last.as_ref())?;
    }
    if let Some(file) = &args.last {
        std::fs::write(file, json!(usage).to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the last result; none if there is no file yet.
fn read(file: &PathBuf) -> Result<Option<UsageAnswer>> {
    match std::fs::read_to_string(file) {
        Ok(text) => {
            let usage = serde_json::from_str(&text);
            usage.map(Some).with_context(|| format!("{} is not a result of this command", file.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn print(usage: &UsageAnswer, last: Option<&UsageAnswer>) -> Result<()> {
    let before: BTreeMap<&str, u64> =
        last.into_iter().flat_map(|last| &last.buckets).map(|of| (of.bucket.as_str(), of.count)).collect();
    let growth = |bucket: &str, count: u64| match last {
        Some(_) => {
            let before = before.get(bucket).copied().unwrap_or_default();
            format!("{:+}", i128::from(count) - i128::from(before))
        }
        None => "-".to_owned(),
    };
    let rows = usage.buckets.iter().map(|of| {
        let growth = growth(&of.bucket, of.count);
        [of.bucket.clone(), of.count.to_string(), of.bytes.to_string(), growth]
    });
    table(["BUCKET", "COUNT", "BYTES", "GROWTH"], rows)?;
    outln!("{} attributes, {} bytes", usage.count, usage.bytes)
}
