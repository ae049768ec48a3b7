//! `ebbtide audit`

use std::collections::BTreeSet;
use std::fmt::Display;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use ebbtide::stores::audit::{AuditOutcome, Mark};
use ebbtide::{Kind, Reach, Scope, Stores};
use ebbtide_api::describe;

use crate::args::ScopeTarget;
use crate::client::{Client, encoded};
use crate::output::{Listing, outln};
use crate::store::{self, Access};

/// Read and verify the audit log of a scope
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide audit list --store fjall:data --scope tenant:acme\n  \
    ebbtide audit list --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme\n  \
    ebbtide audit verify --store fjall:data --scope global --below\n  \
    ebbtide audit verify --server http://127.0.0.1:7878 --key-file data/root.key --scope tenant:acme")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

impl Args {
    pub(crate) fn has_json(&self) -> bool {
        matches!(self.action, Action::List(_))
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write the log as JSON lines, oldest first
    List(ListArgs),
    /// Find entries that were changed, removed or added; exit status 1 if there are any
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  ebbtide audit list --store fjall:data --scope tenant:acme | jq -r .action"
)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keep the printed head in another place, and pass it as --mark later: this also detects a log that \
    was rewritten as a whole.\n\n\
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
    #[arg(long, value_name = "NUMBER:HASH")]
    mark: Option<Mark>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::List(args) => list(&args.place).await,
        Action::Verify(args) => verify(args).await,
    }
}

async fn list(place: &ScopeTarget) -> Result<ExitCode> {
    let mut out = Listing::start();
    if let Some(server) = place.target.server()? {
        let query = format!("&scope={}", encoded(&place.scope.name.to_string()));
        server.each("/v1/audit", &query, None, |entry| out.line(entry)).await?;
    } else {
        let db = store::open(place.target.store()?, Access::Read).await?;
        let audit = db.at(&place.scope.name).audit();
        let mut after = None;
        loop {
            let page = audit.list(after.as_ref(), 500).await.context("cannot read the audit log")?;
            page.items.iter().map(describe::entry).try_for_each(|entry| out.line(entry))?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

async fn verify(args: VerifyArgs) -> Result<ExitCode> {
    if let Some(server) = args.place.target.server()? {
        return verify_remotely(&server, &args).await;
    }
    let db = store::open(args.place.target.store()?, Access::Read).await?;
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
            AuditOutcome::Broken { sequence, why } => {
                intact = false;
                outln!("the log of {scope} is NOT whole: entry {sequence} {}", describe::broken(why))?;
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
    let mark = args.mark.as_ref().map(|mark| format!("&mark={mark}")).unwrap_or_default();
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
