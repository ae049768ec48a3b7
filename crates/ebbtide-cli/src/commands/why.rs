//! `ebbtide why`

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use ebbtide_api::why::RefusalAnswer;

use crate::args::StoreTarget;
use crate::client::encoded;
use crate::operator::Operator as _;
use crate::output::{errln, outln, when};

/// Tell the cause of a refusal, by the `request_id` of the problem
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Tell the cause of a refusal, by the `request_id` of the problem.\n\n\
        Each node keeps its own last refusals in memory. Ask the node that refused; exit status 1 means that it keeps no \
        such refusal. Where a grant was revoked, the key and the claimed name that revoked it are told, from the audit \
        log.",
    after_help = "Examples:\n  \
        ebbtide why 5f0c1d6a0e4b4b0f9a3f2c1d0e9b8a77 --server http://127.0.0.1:7878 --key-file data/root.key\n  \
        ebbtide why mine-1 --json --server https://auth.example"
)]
pub(crate) struct Args {
    /// Request id of the problem, or of the header X-Request-Id
    #[arg(value_name = "REQUEST_ID", allow_hyphen_values = true)]
    request_id: String,

    #[command(flatten)]
    target: StoreTarget,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let Some(server) = args.target.server()? else {
        bail!("only a running server knows its refusals: name it with --server");
    };
    let path = format!("/v1/why/{}", encoded(&args.request_id));
    let Some(found) = server.call("GET", &path, None, None).await?.found()? else {
        errln!("no refusal with that request id is kept on this node");
        return Ok(ExitCode::from(1));
    };
    if json {
        outln!("{found}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let refusal: RefusalAnswer =
        serde_json::from_value(found).context("cannot read the answer of the server")?;
    outln!("{} {}: {} {}", refusal.method, refusal.route, refusal.status, refusal.title)?;
    outln!("cause   {}", refusal.cause)?;
    outln!("detail  {}", refusal.detail)?;
    for (name, value) in &refusal.members {
        outln!("{name:<7} {value}")?;
    }
    outln!("key     {}", refusal.key_id.as_deref().unwrap_or("none was accepted"))?;
    if let Some(scope) = &refusal.scope {
        outln!("scope   {scope}")?;
    }
    if let Some(by) = &refusal.revoked_by {
        let key = by.key_id.as_deref().unwrap_or("unknown");
        let claimed =
            by.on_behalf_of.as_ref().map(|name| format!(" on behalf of {name}")).unwrap_or_default();
        outln!("by      the key {key}{claimed}, {}: {}", when(Some(by.at)), by.reason)?;
    }
    Ok(ExitCode::SUCCESS)
}
