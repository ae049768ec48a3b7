//! `ebbtide import`

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::transfer::{ImportOutcome, Importer};
use ebbtide::{Kind, Stores};

use crate::args::Import;

pub(crate) async fn run(args: Import) -> Result<ExitCode> {
    let backend = ebbtide::open(&args.place.store).await.context("the store cannot be opened")?;
    let importer = Importer::new(Stores::new(backend), args.place.scope.clone(), args.dry_run);
    let reader: Box<dyn BufRead> = match &args.file {
        Some(path) => Box::new(BufReader::new(File::open(path).context("the file cannot be opened")?)),
        None => Box::new(stdin().lock()),
    };
    let mut written: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    for (number, line) in reader.lines().enumerate() {
        let line = line.context("the lines cannot be read")?;
        if line.trim().is_empty() {
            continue;
        }
        match importer.line(&line).await.with_context(|| format!("line {} cannot be written", number + 1))? {
            ImportOutcome::Written(kind) => *written.entry(kind).or_default() += 1,
            ImportOutcome::Skipped(why) => {
                eprintln!("line {} is skipped: {why}", number + 1);
                *skipped.entry(why).or_default() += 1;
            }
        }
    }
    let of = |kind| written.get(&kind).copied().unwrap_or_default();
    println!(
        "{} {} approvals and {} relationships in {}; {} lines skipped",
        if args.dry_run { "would write" } else { "wrote" },
        of(Kind::Approval),
        of(Kind::Relationship),
        args.place.scope,
        skipped.values().sum::<u64>(),
    );
    let mut harmless = true;
    for (why, count) in &skipped {
        println!("  {count} × {why}");
        harmless &= matches!(why.as_str(), "it is there already" | "it has expired");
    }
    Ok(if harmless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
