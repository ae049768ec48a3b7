//! `ebbtide export`

use std::process::ExitCode;

use anyhow::Result;
use ebbtide::Kind;
use ebbtide::ops::transfer::Exporter;

use crate::args::ScopeTarget;
use crate::output::{Listing, errln};
use crate::store;

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
        ebbtide export --server http://127.0.0.1:7878 --scope global --below > all.jsonl"
)]
pub(crate) struct Args {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the scopes below it; each line then names its scope
    #[arg(long)]
    below: bool,

    /// Export only this kind; repeat it for several
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let target = &args.place.target;
    let operator = target.reader().await?;
    let kinds = if !args.kind.is_empty() {
        args.kind
    } else if target.server()?.is_some() || store::has_keyring(target.store()?) {
        Exporter::KINDS.to_vec()
    } else {
        errln!(
            "without the keyring of the store only approvals and relationships are exported: set EBBTIDE_KEYRING"
        );
        Exporter::READABLE.to_vec()
    };
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    let query = format!("&below={}&kinds={}", args.below, kinds.join(","));
    let mut out = Listing::start();
    operator.each("/v1/export", &query, Some(args.place.scope()), |item| out.line(item)).await?;
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
