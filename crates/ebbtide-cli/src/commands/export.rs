//! `ebbtide export`

use std::process::ExitCode;

use anyhow::{Context, Result};
use ebbtide::ops::transfer::Exporter;
use ebbtide::{Kind, Reach};

use crate::args::StoreScope;
use crate::output::{Listing, errln};
use crate::store::{self, Access};

/// Write the records of a scope as JSON lines
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Write the records of a scope to standard output, as JSON lines.\n\n\
        `ebbtide import` reads them back. Approvals, relationships and attributes are for people; lines of other kinds \
        have the stored value, authenticated by the keyring, which the import needs too. Codes, grants, tokens and \
        sessions are not exported: `ebbtide copy` moves them. The audit log is exported with `ebbtide audit export`.",
    after_help = "Examples:\n  \
        ebbtide export --store fjall:data --scope tenant:acme > acme.jsonl\n  \
        ebbtide export --store fjall:data --scope tenant:acme --kind approvals | jq -r .resource\n  \
        ebbtide export --store fjall:data --scope global --below > all.jsonl"
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: StoreScope,

    /// Include the scopes below it; each line then names its scope
    #[arg(long)]
    below: bool,

    /// Export only this kind; repeat it for several
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let url = &args.place.store.url;
    let db = store::open(url, Access::Read).await?;
    let scope = args.place.scope.name;
    let reach = if args.below { Reach::Below(scope) } else { Reach::Exact(scope) };
    let kinds = if !args.kind.is_empty() {
        args.kind
    } else if store::keyring(url).is_some() || url == "memory:" {
        Exporter::KINDS.to_vec()
    } else {
        errln!(
            "without the keyring of the store only approvals and relationships are exported: set EBBTIDE_KEYRING"
        );
        Exporter::READABLE.to_vec()
    };
    let mut exporter = Exporter::of(db.stores().clone(), &reach, &kinds)?;
    let mut out = Listing::start();
    while let Some(lines) = exporter.page().await.context("cannot read the scope")? {
        for line in lines {
            out.line(line)?;
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
