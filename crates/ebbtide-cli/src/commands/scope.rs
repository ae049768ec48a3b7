//! `ebbtide scope`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use ebbtide::stores::scopes::Scopes;
use ebbtide::{Reach, Scope};
use ebbtide_api::access::ScopeAccessAnswer;
use ebbtide_api::scopes::{ScopeCounts, ScopeDeleted, ScopeMigrate, ScopeMigrated};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::args::{AuditArgs, Confirmation, ScopeTarget, StoreTarget};
use crate::client::encoded;
use crate::operator::{Operator, OperatorAnswer};
use crate::output::{errln, local_time, outln, table, when};
use crate::store::Access;

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
    /// Move every record of a scope to another one, while the store serves
    #[command(
        long_about = "Move every record of a scope to another one, while the store serves.\n\n\
            Each record moves in one commit, with its lifetime, its version and what leads to it. Refresh tokens, access \
            tokens, codes and sessions of before are valid in the other scope, so that clients can change their header \
            at any time. Replay records and revoked groups are copied: they refuse in both. API keys and policies stay, \
            since their scope is what they are about, and so does what a sign-out or a deletion has ended. A record that \
            exists in the other scope already is left. After an interruption, run the command again.\n\n\
            The report of requests without a scope tells which keys and routes still use the old one.",
        after_help = "Examples:\n  \
            ebbtide scope migrate --store fjall:data --from global --to tenant:acme --dry-run\n  \
            ebbtide scope migrate --server http://127.0.0.1:7878 --from global --to tenant:acme --yes\n\n\
            Exit status: 0 everything has moved, 1 records were left since they exist there, 2 the migration failed."
    )]
    Migrate(MigrateArgs),
    /// Report the requests to a server that named no scope, by key and route
    #[command(
        after_help = "Example:\n  ebbtide scope unscoped --server http://127.0.0.1:7878 --key-file data/root.key"
    )]
    Unscoped(UnscopedArgs),
    /// Check that a caller of one scope may act in another; the exit status is 1 if not
    #[command(after_help = "Example:\n  ebbtide scope access tenant:acme tenant:acme/env:prod")]
    Access(AccessArgs),
}

#[derive(Debug, clap::Args)]
struct MigrateArgs {
    #[command(flatten)]
    target: StoreTarget,

    /// Scope to move from, exactly
    #[arg(long, value_name = "SCOPE")]
    from: Scope,

    /// Scope to move to
    #[arg(long, value_name = "SCOPE")]
    to: Scope,

    /// Move nothing, and count what would be moved
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    audit: AuditArgs,

    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Debug, clap::Args)]
struct UnscopedArgs {
    #[command(flatten)]
    target: StoreTarget,
}

#[derive(Debug, clap::Args)]
struct AccessArgs {
    /// Scope of the caller
    caller: Scope,

    /// Scope that it wants to act in
    requested: Scope,
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
        Action::Migrate(args) => migrate(args, json).await,
        Action::Unscoped(args) => unscoped(&args.target, json).await,
        Action::Access(args) => access(&args, json),
    }
}

async fn stats(args: StatsArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let path = format!("{}&statistics=true", path(&args.place, args.below));
    let counts: ScopeCounts = operator.call("GET", &path, None, None).await?.read()?;
    let scopes = counts.statistics.unwrap_or_default();
    if json {
        outln!("{}", json!(scopes))?;
        return Ok(ExitCode::SUCCESS);
    }
    let time = |time: Option<u64>| time.map_or("-".to_owned(), |time| when(Some(time)));
    let mut rows = Vec::new();
    for (scope, kinds) in scopes {
        for (kind, of) in kinds {
            let (first, last) = (time(of.first_ends_at), time(of.last_ends_at));
            let (live, bytes) = (of.live.to_string(), of.bytes.to_string());
            rows.push([scope.clone(), kind, live, bytes, of.without_end.to_string(), first, last]);
        }
    }
    table(["SCOPE", "KIND", "LIVE", "BYTES", "WITHOUT END", "FIRST ENDS", "LAST ENDS"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn list(place: &ScopeTarget, json: bool) -> Result<ExitCode> {
    let operator = place.target.operator(Access::Read).await?;
    let path = format!("/v1/scopes?scope={}", encoded(&place.scope.name.to_string()));
    let found = operator.call("GET", &path, None, None).await?.success()?;
    let items = found["items"].as_array().into_iter().flatten();
    if json {
        for item in items {
            outln!("{item}")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let text = |item: &Value| item["scope"].as_str().unwrap_or_default().to_owned();
    table(["RECORDS", "SCOPE"], items.map(|item| [item["records"].to_string(), text(item)]))?;
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: DeleteArgs, json: bool) -> Result<ExitCode> {
    const INTERRUPTED: &str =
        "the deletion was interrupted; run it again to delete the rest, with --resume to continue from there";
    let (reach, path) = (args.place.reach(args.below), path(&args.place, args.below));
    let operator = args.place.target.operator(Access::Write).await?;
    if !args.confirmation.yes {
        let counts: ScopeCounts = operator.call("GET", &path, None, None).await?.read()?;
        let goes = |kind: &str| Scopes::deletable().any(|deletable| deletable.name() == kind);
        let records: u64 =
            counts.counts.iter().filter(|(kind, _)| goes(kind.as_str())).map(|(_, count)| count).sum();
        args.confirmation.ask(&format!("delete {records} records {}", extent(&reach)))?;
    }
    let bar = ProgressBar::new_spinner().with_message("deleting");
    bar.enable_steady_tick(Duration::from_millis(200));
    let path = format!("{path}&resume={}&{}", args.resume, args.audit.query());
    let deleted = operator.call("DELETE", &path, None, None).await;
    bar.finish_and_clear();
    let deleted: ScopeDeleted = deleted.and_then(OperatorAnswer::read).context(INTERRUPTED)?;
    if let Some(began_at) = deleted.resumed_from {
        let began_at = local_time(began_at);
        errln!("resumed the deletion that began at {began_at}; records written since then may remain");
    }
    if json {
        outln!("{}", json!(deleted))?;
    } else {
        let total = print_counts(&json!(deleted.deleted))?;
        outln!("{total} records deleted {}", extent(&reach))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn migrate(args: MigrateArgs, json: bool) -> Result<ExitCode> {
    let operator = args.target.operator(Access::Write).await?;
    if args.dry_run {
        migrate_all(&*operator, &args, true, json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.confirmation.yes {
        let (total, _) = migrate_all(&*operator, &args, true, json).await?;
        args.confirmation.ask(&format!("move {total} records"))?;
    }
    let (_, conflicts) = migrate_all(&*operator, &args, false, json).await?;
    Ok(if conflicts == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Moves every record, or counts them, and returns the number of those and of conflicts.
async fn migrate_all(
    operator: &dyn Operator,
    args: &MigrateArgs,
    dry_run: bool,
    json: bool,
) -> Result<(u64, u64)> {
    let (mut moved, mut left) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    let (mut conflicts, mut after) = (0, None);
    loop {
        let body = ScopeMigrate {
            from: args.from.to_string(),
            to: args.to.to_string(),
            after,
            dry_run,
            actor: Some(args.audit.actor.clone()),
            reason: Some(args.audit.reason.clone()),
        };
        let answer = operator.call("POST", "/v1/scopes/migrate", None, Some(json!(body))).await?;
        let step: ScopeMigrated = answer.read().context(
            "the migration was interrupted; what has moved stays where it is: run it again to move the rest",
        )?;
        for (kind, count) in step.moved {
            *moved.entry(kind).or_default() += count;
        }
        for (kind, count) in step.left {
            *left.entry(kind).or_default() += count;
        }
        conflicts += step.conflicts;
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    let total: u64 = moved.values().sum();
    let unscoped = operator.call("GET", "/v1/unscoped-requests", None, None).await?.success()?;
    if json {
        outln!(
            "{}",
            json!({"moved": moved, "conflicts": conflicts, "left": left, "dry_run": dry_run,
                "unscoped": unscoped["items"]})
        )?;
    } else {
        print_counts(&json!(moved))?;
        outln!(
            "{total} records {} from {} to {}, {conflicts} left since they exist there",
            if dry_run { "would move" } else { "moved" },
            args.from,
            args.to
        )?;
        if !left.is_empty() {
            outln!("stay in {}, since they are bound to it or have ended:", args.from)?;
            print_counts(&json!(left))?;
        }
        print_unscoped(&unscoped)?;
    }
    Ok((total, conflicts))
}

async fn unscoped(target: &StoreTarget, json: bool) -> Result<ExitCode> {
    let operator = target.operator(Access::Read).await?;
    let found = operator.call("GET", "/v1/unscoped-requests", None, None).await?.success()?;
    if json {
        for item in found["items"].as_array().into_iter().flatten() {
            outln!("{item}")?;
        }
    } else {
        print_unscoped(&found)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_unscoped(found: &Value) -> Result<()> {
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let items = found["items"].as_array().into_iter().flatten();
    let rows: Vec<_> = items
        .map(|item| {
            let last = when(item["last_at"].as_u64());
            [text(item, "key"), text(item, "route"), item["count"].to_string(), last]
        })
        .collect();
    if rows.is_empty() {
        return outln!("no request without a scope since the start of the server");
    }
    table(["KEY", "ROUTE", "UNSCOPED REQUESTS", "LAST"], rows)
}

fn access(args: &AccessArgs, json: bool) -> Result<ExitCode> {
    let answer = ScopeAccessAnswer::new(&args.caller, &args.requested);
    if json {
        outln!("{}", json!(answer))?;
    } else {
        let verb = if answer.allowed { "covers" } else { "does not cover" };
        outln!("{} {verb} {}", answer.caller, answer.requested)?;
    }
    Ok(if answer.allowed { ExitCode::SUCCESS } else { ExitCode::from(1) })
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
