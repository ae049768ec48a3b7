//! `ebbtide backup`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::Stopwatch;

use crate::args::StoreArg;
use crate::output::{errln, outln};
use crate::store::{self, Access};

/// Copy an embedded store into a folder, as one consistent snapshot
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Copy an embedded store into a folder, as one consistent snapshot.\n\n\
        The copy is a store: open it in place, or put it in the place of a store that was lost. It includes the keyring \
        and the root key, so protect it like the store itself. A store that a server has open is copied by that \
        server. Back up PostgreSQL and DynamoDB with the tools of those engines.",
    after_help = "Examples:\n  \
        ebbtide backup --store fjall:/var/lib/ebbtide /backup/ebbtide-1\n  \
        ebbtide doctor --store fjall:/backup/ebbtide-1"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,

    /// Folder for the copy; it must be empty or missing
    dir: PathBuf,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let stopwatch = Stopwatch::start();
    let (url, dir) = (&args.store.url, &args.dir);
    match store::open(url, Access::Read).await {
        Ok(db) => {
            let store = db.engine();
            errln!("copying the {} store into {} …", store.info().engine, dir.display());
            store.backup(dir).await.context("cannot back up the store")?;
        }
        // Only the process that has the store open can copy it.
        #[cfg(any(feature = "fjall", feature = "rocksdb"))]
        Err(error) if store::is_held(url, &error) => {
            let folder = store::folder(url).unwrap_or_default();
            errln!("asking the process that has the store open to copy it into {} …", dir.display());
            ebbtide::engines::embedded::backup_served(&folder, dir).with_context(|| format!("{error:#}"))?;
        }
        Err(error) => return Err(error),
    }
    outln!("backup written to {} in {:.1} s", dir.display(), stopwatch.elapsed().as_secs_f64())?;
    Ok(ExitCode::SUCCESS)
}
