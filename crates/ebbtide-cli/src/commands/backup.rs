//! `ebbtide backup`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::Stopwatch;

use crate::args::Backup;

pub(crate) async fn run(args: Backup) -> Result<ExitCode> {
    let store = ebbtide::open(&args.store).await.context("the store cannot be opened")?;
    let stopwatch = Stopwatch::start();
    eprintln!("copying the {} store into {} …", store.engine(), args.dir.display());
    store.backup(&args.dir).await.context("no backup was made")?;
    println!("a backup is in {}, made in {:.1} s", args.dir.display(), stopwatch.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}
