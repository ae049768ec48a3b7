//! `ebbtide scope`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use ebbtide::stores::scopes::{Scopes, Statistics};
use ebbtide::{Kind, Reach, Scope, Timestamp};
use ebbtide_api::describe;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::args::{AuditArgs, Confirmation, ScopeTarget};
use crate::client::{Client, encoded};
use crate::output::{errln, outln};
use crate::store::{self, Access};

/// List, count and delete scopes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide scope list --store fjall:data --scope global\n  \
    ebbtide scope stats --store fjall:data --scope tenant:acme --below\n  \
    ebbtide scope delete --store fjall:data --scope tenant:acme --below --yes")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Count the records of a scope, by kind
    #[command(after_help = "Example:\n  ebbtide scope stats --store fjall:data --scope tenant:acme --below")]
    Stats(StatsArgs),
    /// List a scope and the scopes below it that have records
    #[command(after_help = "Example:\n  ebbtide scope list --store fjall:data --scope global")]
    List(ListArgs),
    /// Delete every record of a scope except its audit log
    #[command(
        after_help = "Example:\n  ebbtide scope delete --store fjall:data --scope tenant:acme --below --yes"
    )]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct StatsArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the scopes below it
    #[arg(long)]
    below: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the scopes below it
    #[arg(long)]
    below: bool,

    /// Resume a deletion that was interrupted within the last day: reads less, and keeps records written since it
    /// began
    #[arg(long)]
    resume: bool,

    #[command(flatten)]
    audit: AuditArgs,

    #[command(flatten)]
    confirmation: Confirmation,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Stats(args) => stats(args, json).await,
        Action::List(args) => list(&args.place, json).await,
        Action::Delete(args) => delete(args, json).await,
    }
}

async fn open(place: &ScopeTarget, access: Access) -> Result<Scopes> {
    let url = place.target.store()?;
    let db = if access == Access::Read {
        store::open(url, access).await?
    } else {
        store::open_signing(url, access).await?
    };
    Ok(db.at(&place.scope.name).scopes())
}

async fn stats(args: StatsArgs, json: bool) -> Result<ExitCode> {
    let place = &args.place;
    if let Some(server) = place.target.server()? {
        return stats_remotely(&server, &args, json).await;
    }
    let scopes = open(place, Access::Read).await?.statistics(&place.reach(args.below)).await;
    let scopes = scopes.context("cannot read the scope")?;
    if json {
        let scopes: Map<_, _> =
            scopes.iter().map(|(scope, kinds)| (scope.to_string(), by_kind(kinds))).collect();
        outln!("{}", Value::Object(scopes))?;
        return Ok(ExitCode::SUCCESS);
    }
    outln!(
        "{:<24}  {:<21}  {:>10}  {:>12}  {:>11}  {:>13}  {:>13}",
        "SCOPE",
        "KIND",
        "LIVE",
        "BYTES",
        "WITHOUT END",
        "FIRST ENDS AT",
        "LAST ENDS AT"
    )?;
    let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |time| time.to_string());
    for (scope, kinds) in &scopes {
        let scope = scope.to_string();
        for (kind, of) in kinds {
            outln!(
                "{scope:<24}  {:<21}  {:>10}  {:>12}  {:>11}  {:>13}  {:>13}",
                kind.name(),
                of.live,
                of.bytes,
                of.without_end,
                time(of.first_ends_at),
                time(of.last_ends_at)
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn by_kind(kinds: &BTreeMap<Kind, Statistics>) -> Value {
    let of = |of: &Statistics| {
        json!({
            "live": of.live,
            "bytes": of.bytes,
            "without_end": of.without_end,
            "first_ends_at": of.first_ends_at.map(describe::millis),
            "last_ends_at": of.last_ends_at.map(describe::millis),
        })
    };
    Value::Object(kinds.iter().map(|(kind, statistics)| (kind.name().to_owned(), of(statistics))).collect())
}

async fn stats_remotely(server: &Client, args: &StatsArgs, json: bool) -> Result<ExitCode> {
    let counts = server.call("GET", &path(&args.place, args.below), None, None).await?.success()?;
    if json {
        outln!("{counts}")?;
    } else {
        let total = print_counts(&counts["counts"])?;
        outln!("{total} live")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(place: &ScopeTarget, json: bool) -> Result<ExitCode> {
    let scopes: Vec<(String, u64)> = if let Some(server) = place.target.server()? {
        server.scopes(&place.scope.name).await?
    } else {
        let scopes = open(place, Access::Read).await?.statistics(&place.reach(true)).await;
        let records = |kinds: BTreeMap<Kind, Statistics>| kinds.values().map(|of| of.live).sum();
        let scopes = scopes.context("cannot read the scopes")?.into_iter();
        scopes.map(|(scope, kinds)| (scope.to_string(), records(kinds))).collect()
    };
    if !json {
        outln!("     RECORDS  SCOPE")?;
    }
    for (scope, records) in scopes {
        if json {
            outln!("{}", json!({"scope": scope, "records": records}))?;
        } else {
            outln!("{records:>12}  {scope}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: DeleteArgs, json: bool) -> Result<ExitCode> {
    let reach = args.place.reach(args.below);
    let deleted = match args.place.target.server()? {
        Some(server) => delete_remotely(&server, &args, &reach).await?,
        None => delete_locally(args, &reach).await?,
    };
    if json {
        outln!("{deleted}")?;
    } else {
        let total = print_counts(&deleted["deleted"])?;
        outln!("{total} records deleted {}", extent(&reach))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete_locally(args: DeleteArgs, reach: &Reach) -> Result<Value> {
    const INTERRUPTED: &str =
        "the deletion was interrupted; run it again to delete the rest, with --resume to continue from there";
    let scopes = open(&args.place, Access::Write).await?;
    if !args.confirmation.yes {
        let counts = scopes.count(reach).await.context("cannot read the scope")?;
        let goes = |kind: &Kind| Scopes::deletable().any(|deletable| deletable == *kind);
        let records: u64 = counts.iter().filter(|(kind, _)| goes(kind)).map(|(_, count)| count).sum();
        return Err(Confirmation::missing(&format!("delete {records} records {}", extent(reach))));
    }
    let context = args.audit.context()?;
    let resumed = if args.resume { scopes.resume_delete(reach, &context).await? } else { None };
    let mut deletion = match resumed {
        Some(resumed) => {
            let began_at = resumed.began_at();
            errln!("resuming the deletion that began at {began_at}; records written since then may remain");
            resumed
        }
        None => scopes.delete(reach, &context).await?,
    };
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} parts {elapsed}")?);
    while deletion.step().await.context(INTERRUPTED)? {
        let (done, of) = deletion.done();
        bar.set_length(of.into());
        bar.set_position(done.into());
        bar.set_message(format!("{} deleted", deletion.removed().total()));
    }
    bar.finish_and_clear();
    Ok(describe::counts(reach, "deleted", &deletion.removed().records))
}

async fn delete_remotely(server: &Client, args: &DeleteArgs, reach: &Reach) -> Result<Value> {
    let path = path(&args.place, args.below);
    if !args.confirmation.yes {
        let counts = server.call("GET", &path, None, None).await?.success()?;
        let records = format!("most of {} records {}", counts["total"], extent(reach));
        return Err(Confirmation::missing(&format!("delete {records}")));
    }
    let resume = if args.resume { "&resume=true" } else { "" };
    let audit = format!("&actor={}&reason={}", encoded(&args.audit.actor), encoded(&args.audit.reason));
    server.call("DELETE", &format!("{path}{resume}{audit}"), None, None).await?.success()
}

fn path(place: &ScopeTarget, below: bool) -> String {
    format!("/v1/scopes/{}?below={below}", encoded(&place.scope.name.to_string()))
}

fn extent(reach: &Reach) -> String {
    match reach {
        Reach::Exact(scope) => format!("of exactly {scope}"),
        Reach::Below(Scope::Global) => "of every scope".to_owned(),
        Reach::Below(scope) => format!("of {scope} and all below it"),
    }
}

/// Prints counts by kind, and returns their sum.
pub(super) fn print_counts(counts: &Value) -> Result<u64> {
    let mut total = 0;
    for (kind, count) in counts.as_object().into_iter().flatten() {
        if let Some(count) = count.as_u64() {
            outln!("{count:>12} {kind}")?;
            total += count;
        }
    }
    Ok(total)
}
