//! `ebbtide export`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::transfer::Exporter;

use crate::args::StoreScope;
use crate::output::Listing;
use crate::store::{self, Access};

/// Write the approvals and relationships of a scope as JSON lines
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Write the approvals and relationships of a scope to standard output, as JSON lines.\n\n\
        `ebbtide import` reads them back. Records of the scopes below it are not included.",
    after_help = "Examples:\n  \
        ebbtide export --store fjall:data --scope tenant:acme > acme.jsonl\n  \
        ebbtide export --store fjall:data --scope tenant:acme | jq -r .resource"
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: StoreScope,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let db = store::open(&args.place.store.url, Access::Read).await?;
    let mut exporter = Exporter::new(db.stores().clone(), &args.place.scope.name)?;
    let mut out = Listing::start();
    while let Some(lines) = exporter.page().await.context("cannot read the scope")? {
        for line in lines {
            out.line(line)?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
