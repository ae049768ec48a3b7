//! `ebbtide backup`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::Stopwatch;

use crate::args::Backup;

pub(crate) async fn run(args: Backup) -> Result<ExitCode> {
    let stopwatch = Stopwatch::start();
    match ebbtide::open(&args.store).await {
        Ok(store) => {
            eprintln!("copying the {} store into {} …", store.engine(), args.dir.display());
            store.backup(&args.dir).await.context("no backup was made")?;
        }
        // Another process serves it: then only that one can copy it.
        #[cfg(any(feature = "fjall", feature = "rocksdb"))]
        Err(error) if error.kind() == ebbtide::ErrorKind::Unavailable && is_embedded(&args.store) => {
            eprintln!("asking the process that has the store open to copy it into {} …", args.dir.display());
            ebbtide::engines::embedded::backup_served(&args.store, &args.dir)
                .with_context(|| error.to_string())?;
        }
        Err(error) => return Err(error).context("the store cannot be opened"),
    }
    println!("a backup is in {}, made in {:.1} s", args.dir.display(), stopwatch.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn is_embedded(url: &str) -> bool {
    url.starts_with("fjall:") || url.starts_with("rocksdb:")
}
