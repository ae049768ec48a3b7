//! `ebbtide audit`

mod export;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::stores::audit::Mark;
use serde_json::{Value, json};

use crate::args::ScopeTarget;
use crate::client::encoded;
use crate::output::{Listing, local_time, outln};
use crate::store::Access;

/// Read, verify and export the audit log of a scope
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide audit list --store fjall:data --scope tenant:acme\n  \
    ebbtide audit list --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme --action revoke\n  \
    ebbtide audit verify --store fjall:data --scope global --below\n  \
    ebbtide audit verify --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme\n  \
    ebbtide audit export --server http://127.0.0.1:7878 --key-file data/root.key --scope global --follow --out audit.jsonl")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the entries, oldest first; with --json as JSON lines
    List(ListArgs),
    /// Find entries that were changed, removed or added; exit status 1 if there are any
    Verify(VerifyArgs),
    /// Write the entries as JSON lines to a file that grows, or to standard output
    Export(export::Args),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  ebbtide audit list --store fjall:data --scope tenant:acme --json | jq -r .action"
)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    filter: FilterArgs,
}

/// Selection of entries.
#[derive(Debug, clap::Args)]
struct FilterArgs {
    /// Only entries about this subject, identity or client
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,

    /// Only entries of this authenticated key: its id, root, or local
    #[arg(long, value_name = "ID")]
    key: Option<String>,

    /// Only entries of this action, such as revoke, grant or theft
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Only entries from this time on: RFC 3339, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,

    /// Only entries before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<u64>,
}

/// Reads a time in RFC 3339, or in milliseconds.
fn time(text: &str) -> Result<u64, String> {
    if let Ok(millis) = text.parse() {
        return Ok(millis);
    }
    let time =
        text.parse::<jiff::Timestamp>().ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
    time.ok_or_else(|| {
        "a time is RFC 3339, such as 2027-01-15T08:00:00Z, or milliseconds since 1970".to_owned()
    })
}

impl FilterArgs {
    fn query(&self) -> String {
        let mut query = String::new();
        let text = [("subject", &self.subject), ("key", &self.key), ("action", &self.action)];
        for (name, value) in text {
            query += &value.as_ref().map(|value| format!("&{name}={}", encoded(value))).unwrap_or_default();
        }
        for (name, value) in [("from", self.from), ("to", self.to)] {
            query += &value.map(|value| format!("&{name}={value}")).unwrap_or_default();
        }
        query
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keep the printed head in another place, and pass it as --mark later: this also detects a log that \
    was restored from a copy as a whole. The server logs it each minute as `audit checkpoint`.\n\n\
    Example:\n  ebbtide audit verify --store fjall:data --scope tenant:acme\n\n\
    Exit status: 0 the log is intact, 1 it is not, 2 it could not be read."
)]
struct VerifyArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the logs of the scopes below it
    #[arg(long, conflicts_with = "mark")]
    below: bool,

    /// Head that an earlier run printed; the log must still contain it
    #[arg(long, value_name = "MARK")]
    mark: Option<Mark>,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::List(args) => list(&args, json).await,
        Action::Verify(args) => verify(&args, json).await,
        Action::Export(args) => export::run(args).await,
    }
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let mut out = Listing::start();
    let place = &args.place;
    let print = |entry: &Value| if json { out.line(entry) } else { out.line(for_people(entry)) };
    let operator = place.target.tool(Access::Read).await?;
    let query = format!("&scope={}{}", encoded(&place.scope.name.to_string()), args.filter.query());
    operator.each("/v1/audit", &query, None, print).await?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// One line about an entry.
fn for_people(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap_or("-");
    let time = |name: &str| entry[name].as_u64().map(local_time);
    let names: Vec<_> = entry["target"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let claimed = entry["on_behalf_of"].as_str().map(|name| format!(" for {name}")).unwrap_or_default();
    let until = time("after").map(|after| format!(" until {after}")).unwrap_or_default();
    let detail = entry["detail"].as_str().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!(
        "{}  {:<13}  {} {}{until}  key {}{claimed}: {}{detail}",
        time("at").unwrap_or_default(),
        text("action"),
        text("kind"),
        names.join(" "),
        text("key_id"),
        text("reason"),
    )
}

async fn verify(args: &VerifyArgs, json: bool) -> Result<ExitCode> {
    // The tags of the entries are made with the keyring.
    let operator = args.place.target.operator(Access::Read).await?;
    let mark =
        args.mark.as_ref().map(|mark| format!("&mark={}", encoded(&mark.to_string()))).unwrap_or_default();
    let mut intact = true;
    for scope in operator.scopes(&args.place.scope.name, args.below).await? {
        let path = format!("/v1/audit/verify?scope={}{mark}", encoded(&scope.to_string()));
        let answer = operator.call("GET", &path, None, None).await?;
        let told = answer.body.clone();
        match answer.or_conflict()? {
            Ok(log) if json => outln!("{}", with(log, "whole", true.into()))?,
            Ok(log) => {
                outln!("the log of {scope} is whole: {} entries", log["entries"])?;
                log["head"].as_str().map_or(Ok(()), |head| outln!("head {head}"))?;
            }
            Err(detail) => {
                intact = false;
                if json {
                    let broken = json!({"scope": scope.to_string(), "whole": false, "detail": detail,
                        "sequence": told["sequence"], "chain": told["chain"]});
                    outln!("{broken}")?;
                } else {
                    outln!("{}", detail.replace("is not whole", "is NOT whole"))?;
                }
            }
        }
    }
    Ok(if intact { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The object with another member.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    object[name] = value;
    object
}
