//! Benchmark of Ebbtide and its peers on one machine in one run. `scripts/bench` builds it and starts the peers.

#![expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

mod context;
mod cpu;
mod load;
mod machine;
mod measured;
mod peers;
mod records;
mod rows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use ebbtide::Stopwatch;
use ebbtide_bench::render::{LATEST, write_all};
use ebbtide_bench::results::Results;

use crate::context::Context;
use crate::measured::Measured;
use crate::rows::{PARTS, Part};

/// Allocator of the `ebbtide` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Results file of a quick run.
const QUICK: &str = "bench/results/quick.json";

/// Benchmark of Ebbtide and its peers.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run parts, all of them by default, and write the results
    Run {
        /// Parts to run
        parts: Vec<String>,
        /// Use fewer records and shorter rounds: a whole run takes less than five minutes
        #[arg(long)]
        quick: bool,
        /// Results file; a partial run keeps the other parts' results in it. The default is
        /// bench/results/latest.json, which the table, the charts and the pages show, or bench/results/quick.json for
        /// a quick run, which nothing shows
        #[arg(long, value_name = "FILE")]
        results: Option<PathBuf>,
    },
    /// List the parts
    Parts,
    /// Fill a store and print the memory that it took: a process of its own for the part `memory`
    #[command(hide = true)]
    Fill {
        /// URL of the store
        store: String,
        /// Number of records
        records: u64,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Parts => {
            for part in PARTS {
                println!("{:10} {}", part.name, part.about);
            }
            Ok(())
        }
        Command::Fill { store, records } => rows::memory::fill(&store, records).await,
        Command::Run { parts, quick, results } => {
            let results = results.unwrap_or_else(|| PathBuf::from(if quick { QUICK } else { LATEST }));
            tokio::select! {
                outcome = run(&parts, quick, &results) => outcome,
                // Dropping the future stops the processes it started.
                outcome = told_to_stop() => outcome,
            }
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ebbtide-bench: {error:#}");
            // Do not wait for calls in flight.
            std::process::exit(1)
        }
    }
}

async fn told_to_stop() -> Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => outcome?,
        _ = terminated.recv() => {}
    }
    bail!("stopped; the parts that were done are written")
}

async fn run(names: &[String], quick: bool, path: &Path) -> Result<()> {
    let parts = chosen(names)?;
    let context = Context::new(quick)?;
    let mut results = Results::default();
    if parts.len() < PARTS.len() && path.exists() {
        results = Results::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    machine::describe(&context, &mut results).await?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let all = Stopwatch::start();
    for part in parts {
        eprintln!("{}: {}", part.name, part.about);
        let stopwatch = Stopwatch::start();
        let mut measured = Measured::new(part.name);
        (part.run)(&context, &mut measured).await.with_context(|| format!("the part {}", part.name))?;
        measured.merge_into(&mut results);
        // A stable sort keeps the rows of a part in their order.
        results.rows.sort_by_key(|row| PARTS.iter().position(|part| part.name == row.part));
        results.write(path).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{}: {:.0} s", part.name, stopwatch.elapsed().as_secs_f64());
    }
    // The pages show only the default file.
    if path == Path::new(LATEST) {
        write_all(&results, Path::new(".")).context("cannot write the table, the charts and the pages")?;
    }
    eprintln!("{} is written, after {:.0} s", path.display(), all.elapsed().as_secs_f64());
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<&'static Part>> {
    if let Some(unknown) = names.iter().find(|name| PARTS.iter().all(|part| part.name != **name)) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        bail!("no part is called {unknown}; there are {}", known.join(", "));
    }
    Ok(PARTS.iter().filter(|part| names.is_empty() || names.iter().any(|name| name == part.name)).collect())
}
