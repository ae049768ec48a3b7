//! `ebbtide scope`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ebbtide::stores::audit::AuditContext;
use ebbtide::stores::scopes::{Scopes, Statistics};
use ebbtide::{Kind, Reach, Scope, Stores};
use ebbtide_api::describe;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::args::{ScopeCommand, ScopeDelete, Where};
use crate::commands::remote;

pub(crate) async fn run(args: ScopeCommand) -> Result<ExitCode> {
    match args {
        ScopeCommand::Stats { place, below, json } => stats(place, below, json).await,
        ScopeCommand::List { place, json } => list(place, json).await,
        ScopeCommand::Delete(args) => delete(args).await,
    }
}

async fn open(place: &Where) -> Result<Scopes> {
    let backend = ebbtide::open(place.at.store()?).await.context("the store cannot be opened")?;
    Ok(Stores::new(backend).scopes(&place.scope))
}

async fn stats(place: Where, below: bool, json: bool) -> Result<ExitCode> {
    if let Some(server) = place.at.server()? {
        return remote::scope_stats(&server, &place, below, json).await;
    }
    let scopes =
        open(&place).await?.statistics(&place.reach(below)).await.context("the scope cannot be read")?;
    if json {
        let scopes: Map<_, _> =
            scopes.iter().map(|(scope, kinds)| (scope.to_string(), by_kind(kinds))).collect();
        println!("{}", Value::Object(scopes));
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{:<24}  {:<21}  {:>10}  {:>12}  {:>11}  {:>13}  {:>13}",
        "SCOPE", "KIND", "LIVE", "BYTES", "WITHOUT END", "FIRST ENDS AT", "LAST ENDS AT"
    );
    for (scope, kinds) in &scopes {
        let scope = scope.to_string();
        for (kind, of) in kinds {
            let time =
                |time: Option<ebbtide::Timestamp>| time.map_or("-".to_owned(), |time| time.to_string());
            println!(
                "{scope:<24}  {:<21}  {:>10}  {:>12}  {:>11}  {:>13}  {:>13}",
                kind.name(),
                of.live,
                of.bytes,
                of.without_end,
                time(of.first_ends_at),
                time(of.last_ends_at)
            );
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

async fn list(place: Where, json: bool) -> Result<ExitCode> {
    if let Some(server) = place.at.server()? {
        return remote::scope_list(&server, &place.scope, json).await;
    }
    let scopes =
        open(&place).await?.statistics(&place.reach(true)).await.context("the scopes cannot be read")?;
    if !json {
        println!("{LIST_HEAD}");
    }
    for (scope, kinds) in scopes {
        print_row(&scope.to_string(), kinds.values().map(|of| of.live).sum(), json);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) const LIST_HEAD: &str = "     RECORDS  SCOPE";

pub(super) fn print_row(scope: &str, records: u64, as_json: bool) {
    if as_json {
        println!("{}", json!({"scope": scope, "records": records}));
    } else {
        println!("{records:>12}  {scope}");
    }
}

const STOPPED: &str =
    "the deletion was stopped; run it again to delete what is left, with --resume to go on where it was";

async fn delete(args: ScopeDelete) -> Result<ExitCode> {
    if let Some(server) = args.place.at.server()? {
        return remote::scope_delete(&server, &args).await;
    }
    let (scopes, reach) = (open(&args.place).await?, args.place.reach(args.below));
    if !args.yes {
        let counts = scopes.count(&reach).await.context("the scope cannot be read")?;
        let goes = |kind: &Kind| Scopes::deletable().any(|deletable| deletable == *kind);
        let records: u64 = counts.iter().filter(|(kind, _)| goes(kind)).map(|(_, count)| count).sum();
        bail!("this would delete {records} records {}: say --yes to do it", extent(&reach));
    }
    let context = AuditContext::new(args.why.actor, args.why.reason)?;
    let resumed = if args.resume { scopes.resume_delete(&reach, &context).await? } else { None };
    let mut deletion = match resumed {
        Some(resumed) => {
            let began_at = resumed.began_at();
            eprintln!("going on with what began at {began_at}; what was written since may be left");
            resumed
        }
        None => scopes.delete(&reach, &context).await?,
    };
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} parts {elapsed}")?);
    while deletion.step().await.context(STOPPED)? {
        let (done, of) = deletion.done();
        bar.set_length(of.into());
        bar.set_position(done.into());
        bar.set_message(format!("{} deleted", deletion.removed().total()));
    }
    bar.finish_and_clear();
    let removed = &deletion.removed().records;
    if args.json {
        println!("{}", describe::counts(&reach, "deleted", removed));
        return Ok(ExitCode::SUCCESS);
    }
    for (kind, count) in removed {
        println!("{count:>12} {kind}");
    }
    println!("{} records deleted {}", removed.values().sum::<u64>(), extent(&reach));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn extent(reach: &Reach) -> String {
    match reach {
        Reach::Exact(scope) => format!("of exactly {scope}"),
        Reach::Below(Scope::Global) => "of every scope".to_owned(),
        Reach::Below(scope) => format!("of {scope} and all below it"),
    }
}
