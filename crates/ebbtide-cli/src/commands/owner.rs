//! `ebbtide owner`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;

use super::belongings;
use super::scope::print_counts;
use crate::args::{AuditArgs, Confirmation, ScopeTarget};
use crate::client::encoded;
use crate::output::outln;
use crate::store::Access;

/// Delete an owner with everything that it has
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide owner delete --store fjall:data --scope tenant:acme alice --dry-run\n  \
    ebbtide owner delete --server http://127.0.0.1:7878 --scope tenant:acme alice --yes")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Delete an owner: its grants, tokens, sessions, clients, approvals, relationships and attributes, and what
    /// belongs to it
    #[command(
        after_help = "Example:\n  ebbtide owner delete --store fjall:data --scope tenant:acme alice --yes"
    )]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Name of the owner
    owner: String,

    /// Delete nothing, and list what would be deleted
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    audit: AuditArgs,

    #[command(flatten)]
    confirmation: Confirmation,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let Action::Delete(args) = args.action;
    let access = if args.dry_run { Access::Read } else { Access::Write };
    let operator = args.place.target.operator(access).await?;
    if args.dry_run {
        belongings::print(&*operator, &args.place, json!({"owner": args.owner}), json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    args.confirmation.ask(&format!("delete {} with everything that it has", args.owner))?;
    let path = format!("/v1/owners/{}?{}", encoded(&args.owner), args.audit.query());
    let deleted = operator.call("DELETE", &path, Some(args.place.scope()), None).await?.success()?;
    if json {
        outln!("{deleted}")?;
    } else {
        let total = print_counts(&deleted)?;
        outln!("{total} records deleted")?;
    }
    Ok(ExitCode::SUCCESS)
}
