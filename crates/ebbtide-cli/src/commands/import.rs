//! `ebbtide import`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::transfer::{ImportOutcome, Importer};
use ebbtide::{Kind, Scope};

use super::import_redis;
use crate::args::StoreArg;
use crate::output::{errln, outln};
use crate::store::{self, Access};

/// Read records from JSON lines, or keys from a Redis server, into a scope
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Read records from JSON lines, or keys from a Redis server, into a scope.\n\n\
        Approvals, relationships and attributes are read from any system; lines of other kinds are those of `ebbtide \
        export`, and need the keyring that they were exported with. A line that names a scope must name that of \
        --scope, or one that --scope-map maps, unless --own-scopes is given.\n\n\
        With --from, strings and counters are read with their ends, and become keys of the Redis protocol. Keys of \
        other types are skipped. A password belongs in the URL: redis://:PASSWORD@HOST:PORT/DB.\n\n\
        Existing records are never overwritten, so a second run writes nothing. Every skipped line is reported on \
        standard error, with the reason.",
    after_help = "Examples:\n  \
    ebbtide import --store fjall:data --scope tenant:acme --dry-run approvals.jsonl\n  \
    ebbtide export --store fjall:old --scope global | ebbtide import --store fjall:new --scope global\n  \
    ebbtide import --store fjall:data --scope-map tenant:acme=tenant:beta acme.jsonl\n  \
    ebbtide import --store fjall:data --scope tenant:acme --from redis://127.0.0.1:6379\n\n\
    Exit status: 0 success, 1 a line or a key is invalid or in conflict with a record, 2 the import failed."
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,

    /// Scope of the lines that name none: global, tenant:T, env:E, tenant:T/env:E or custom:A/B/C
    #[arg(long, value_name = "SCOPE", required_unless_present_any = ["scope_map", "own_scopes"])]
    scope: Option<Scope>,

    /// Import the lines that name the scope FROM into TO; repeat it for several
    #[arg(long, value_name = "FROM=TO", value_parser = mapping)]
    scope_map: Vec<(Scope, Scope)>,

    /// Import the other lines into the scopes that they name
    #[arg(long, conflicts_with = "scope")]
    own_scopes: bool,

    /// Write nothing, and report the result that an import would have
    #[arg(long)]
    dry_run: bool,

    /// Redis server to read strings and counters from: redis://[:PASSWORD@]HOST[:PORT][/DB]
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "file",
        env = "EBBTIDE_IMPORT_FROM",
        hide_env_values = true
    )]
    from: Option<String>,

    /// File to read [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Reads `FROM=TO`.
fn mapping(text: &str) -> Result<(Scope, Scope), String> {
    let (from, to) = text.split_once('=').ok_or("a mapping is FROM=TO, such as tenant:a=tenant:b")?;
    let scope = |text: &str| text.parse::<Scope>().map_err(|error| error.message().to_owned());
    Ok((scope(from)?, scope(to)?))
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if let Some(from) = &args.from {
        let scope = args.scope.context("name the scope of the keys with --scope")?;
        return import_redis::run(from, &args.store, &scope, args.dry_run).await;
    }
    // Before the store: without input no store is created.
    let reader: Box<dyn BufRead> = match &args.file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            Box::new(BufReader::new(file))
        }
        None => Box::new(stdin().lock()),
    };
    let access = if args.dry_run { Access::Read } else { Access::Create };
    let db = if args.dry_run {
        store::open(&args.store.url, access).await?
    } else {
        store::open_signing(&args.store.url, access).await?
    };
    let stores = db.stores().clone();
    // A line without a scope goes where the first mapping leads.
    let scope = args.scope.clone().or_else(|| args.scope_map.first().map(|(_, to)| to.clone()));
    let mut importer = match scope {
        Some(scope) if !args.own_scopes => Importer::new(stores, scope, args.dry_run),
        _ => Importer::by_line(stores, args.dry_run),
    };
    for (from, to) in args.scope_map {
        importer = importer.map_scope(from, to);
    }
    importer.note("begins").await?;
    let mut written: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    for (number, line) in reader.lines().enumerate() {
        let line = line.context("cannot read the lines")?;
        if line.trim().is_empty() {
            continue;
        }
        match importer.line(&line).await.with_context(|| format!("cannot write line {}", number + 1))? {
            ImportOutcome::Written(kind) => *written.entry(kind).or_default() += 1,
            ImportOutcome::Skipped(why) => {
                errln!("line {} is skipped: {why}", number + 1);
                *skipped.entry(why).or_default() += 1;
            }
        }
    }
    let total: u64 = written.values().sum();
    importer.note(&format!("ended, {total} records written")).await?;
    let of = |kind| written.get(&kind).copied().unwrap_or_default();
    let (approvals, relationships) = (of(Kind::Approval), of(Kind::Relationship));
    let others = total - approvals - relationships;
    outln!(
        "{} {approvals} approvals and {relationships} relationships{}{}; {} lines skipped",
        if args.dry_run { "would write" } else { "wrote" },
        if others > 0 { format!(" and {others} other records") } else { String::new() },
        args.scope.as_ref().map(|scope| format!(" in {scope}")).unwrap_or_default(),
        skipped.values().sum::<u64>(),
    )?;
    let mut harmless = true;
    for (why, count) in &skipped {
        outln!("  {count} × {why}")?;
        harmless &= matches!(why.as_str(), "it is there already" | "it has expired");
    }
    Ok(if harmless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
