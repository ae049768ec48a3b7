//! `ebbtide audit`

mod export;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use ebbtide::stores::audit::{self, AuditFilter, AuditOutcome, Mark};
use ebbtide::{Kind, Reach, Scope, Stores, Timestamp};
use ebbtide_api::describe;
use serde_json::Value;

use crate::args::ScopeTarget;
use crate::client::{Client, encoded};
use crate::output::{Listing, local_time, outln};
use crate::store::{self, Access};

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

impl Args {
    pub(crate) fn has_json(&self) -> bool {
        matches!(self.action, Action::List(_) | Action::Export(_))
    }
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

    fn filter(&self) -> Result<AuditFilter> {
        let mut filter = AuditFilter::default();
        (filter.subject, filter.key) = (self.subject.clone(), self.key.clone());
        let action = |name: &String| {
            audit::Action::from_name(name)
                .with_context(|| format!("{name} is not an action of the audit log"))
        };
        filter.action = self.action.as_ref().map(action).transpose()?;
        filter.from = self.from.map(Timestamp::from_millis).transpose()?;
        filter.to = self.to.map(Timestamp::from_millis).transpose()?;
        Ok(filter)
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
        Action::Verify(args) => verify(args).await,
        Action::Export(args) => export::run(args).await,
    }
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let mut out = Listing::start();
    let place = &args.place;
    let mut print = |entry: &Value| if json { out.line(entry) } else { out.line(for_people(entry)) };
    if let Some(server) = place.target.server()? {
        let query = format!("&scope={}{}", encoded(&place.scope.name.to_string()), args.filter.query());
        server.each("/v1/audit", &query, None, print).await?;
    } else {
        let filter = args.filter.filter()?;
        let db = store::open(place.target.store()?, Access::Read).await?;
        let audit = db.at(&place.scope.name).audit();
        let mut after = None;
        loop {
            let page =
                audit.search(&filter, after.as_ref(), 500).await.context("cannot read the audit log")?;
            page.items.iter().map(describe::entry).try_for_each(|entry| print(&entry))?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
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

async fn verify(args: VerifyArgs) -> Result<ExitCode> {
    if let Some(server) = args.place.target.server()? {
        return verify_remotely(&server, &args).await;
    }
    // The tags of the entries are made with the keyring.
    let db = store::open_signing(args.place.target.store()?, Access::Read).await?;
    let scope = args.place.scope.name;
    let scopes = if args.below {
        logs_below(db.stores(), scope).await.context("cannot find the audit logs")?
    } else {
        BTreeSet::from([scope])
    };
    let mut intact = true;
    for scope in scopes {
        let verdict = db.at(&scope).audit().verify(args.mark.as_ref()).await;
        match verdict.with_context(|| format!("cannot read the log of {scope}"))? {
            AuditOutcome::Intact { entries, head } => {
                print_intact(&scope, entries, head.map(|head| head.to_string()).as_deref())?;
            }
            AuditOutcome::Broken { chain, sequence, why } => {
                intact = false;
                let of = chain.map(|chain| format!(" of chain {chain}")).unwrap_or_default();
                outln!("the log of {scope} is NOT whole: entry {sequence}{of} {}", describe::broken(why))?;
            }
        }
    }
    Ok(if intact { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn verify_remotely(server: &Client, args: &VerifyArgs) -> Result<ExitCode> {
    let scope = &args.place.scope.name;
    let mut scopes = BTreeSet::from([scope.to_string()]);
    if args.below {
        // Log entries are records: every scope that has a log is in this list.
        scopes.extend(server.scopes(scope).await?.into_iter().map(|(scope, _)| scope));
    }
    let mark =
        args.mark.as_ref().map(|mark| format!("&mark={}", encoded(&mark.to_string()))).unwrap_or_default();
    let mut intact = true;
    for scope in scopes {
        let path = format!("/v1/audit/verify?scope={}{mark}", encoded(&scope));
        match server.call("GET", &path, None, None).await?.or_conflict()? {
            Ok(log) => {
                let entries = log["entries"].as_u64().unwrap_or_default();
                print_intact(&scope, entries, log["head"].as_str())?;
            }
            Err(detail) => {
                intact = false;
                outln!("{}", detail.replace("is not whole", "is NOT whole"))?;
            }
        }
    }
    Ok(if intact { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print_intact(scope: &impl Display, entries: u64, head: Option<&str>) -> Result<()> {
    outln!("the log of {scope} is whole: {entries} entries")?;
    head.map_or(Ok(()), |head| outln!("head {head}"))
}

/// Scopes at and below `scope` that have a log.
async fn logs_below(stores: &Stores, scope: Scope) -> Result<BTreeSet<Scope>> {
    let (scopes, reach) = (stores.scopes(&scope), Reach::Below(scope.clone()));
    let mut logs = BTreeSet::from([scope]);
    let mut after = None;
    loop {
        let page = scopes.list(Kind::Audit, &reach, after.as_ref(), 1_000).await?;
        logs.extend(page.items.iter().map(|(key, _)| key.scope()));
        after = page.next;
        if after.is_none() {
            return Ok(logs);
        }
    }
}
