//! `ebbtide import`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::Kind;
use ebbtide::ops::transfer::{ImportOutcome, Importer};

use super::import_redis;
use crate::args::StoreScope;
use crate::output::{errln, outln};
use crate::store::{self, Access};

/// Read approvals and relationships from JSON lines, or keys from a Redis server, into a scope
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Read approvals and relationships from JSON lines, or keys from a Redis server, into a scope.\n\n\
        With --from, strings and counters are read with their ends, and become keys of the Redis protocol. Keys of \
        other types are skipped. A password belongs in the URL: redis://:PASSWORD@HOST:PORT/DB.\n\n\
        Existing records are never overwritten, so a second run writes nothing. Every skipped line is reported on \
        standard error, with the reason.",
    after_help = "Examples:\n  \
    ebbtide import --store fjall:data --scope tenant:acme --dry-run approvals.jsonl\n  \
    ebbtide export --store fjall:old --scope global | ebbtide import --store fjall:new --scope global\n  \
    ebbtide import --store fjall:data --scope tenant:acme --from redis://127.0.0.1:6379\n\n\
    Exit status: 0 success, 1 a line or a key is invalid or in conflict with a record, 2 the import failed."
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: StoreScope,

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

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if let Some(from) = &args.from {
        return import_redis::run(from, &args.place, args.dry_run).await;
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
        store::open(&args.place.store.url, access).await?
    } else {
        store::open_signing(&args.place.store.url, access).await?
    };
    let scope = args.place.scope.name;
    let importer = Importer::new(db.stores().clone(), scope.clone(), args.dry_run);
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
    let of = |kind| written.get(&kind).copied().unwrap_or_default();
    outln!(
        "{} {} approvals and {} relationships in {scope}; {} lines skipped",
        if args.dry_run { "would write" } else { "wrote" },
        of(Kind::Approval),
        of(Kind::Relationship),
        skipped.values().sum::<u64>(),
    )?;
    let mut harmless = true;
    for (why, count) in &skipped {
        outln!("  {count} × {why}")?;
        harmless &= matches!(why.as_str(), "it is there already" | "it has expired");
    }
    Ok(if harmless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
