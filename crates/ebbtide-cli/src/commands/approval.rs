//! `ebbtide approval`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide_api::approvals::ApprovalAnswer;
use serde_json::{Value, json};

use super::named::{ExtensionArgs, RemovalArgs, SearchArgs, count};
use crate::args::{ScopeTarget, TtlArgs};
use crate::client::encoded;
use crate::output::{outln, print_items, when};
use crate::store::Access;

/// Grant, check, list, revoke and extend approvals
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide approval grant --store fjall:data --scope tenant:acme alice doc GET --ttl 1h\n  \
    ebbtide approval check --store fjall:data --scope tenant:acme alice doc GET\n  \
    ebbtide approval list --store fjall:data --scope tenant:acme --below --resource doc")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Grant an approval, and replace the one that exists
    #[command(
        after_help = "Example:\n  ebbtide approval grant --store fjall:data --scope tenant:acme alice doc GET --ttl 1h"
    )]
    Grant(GrantArgs),
    /// Check that exactly this is approved; the exit status is 1 if it is not
    #[command(
        after_help = "Example:\n  ebbtide approval check --store fjall:data --scope tenant:acme alice doc GET"
    )]
    Check(CheckArgs),
    /// List or count the approvals of an identity, of a resource or of a scope
    #[command(
        after_help = "Example:\n  ebbtide approval list --store fjall:data --scope tenant:acme --identity alice"
    )]
    List(ListArgs),
    /// Revoke an approval, or all of a scope
    #[command(
        after_help = "Example:\n  ebbtide approval revoke --store fjall:data --scope tenant:acme alice doc GET"
    )]
    Revoke(RevokeArgs),
    /// Extend the lifetime of an approval
    #[command(
        after_help = "Example:\n  ebbtide approval extend --store fjall:data --scope tenant:acme alice doc GET --ttl 2h"
    )]
    Extend(ExtendArgs),
}

/// Names of an approval.
#[derive(Debug, clap::Args)]
struct Names {
    /// Identity that may act
    identity: String,
    /// Resource that it may act on
    resource: String,
    /// Action that it may do
    action: String,
}

impl Names {
    fn body(&self) -> Value {
        json!({"identity": self.identity, "resource": self.resource, "action": self.action})
    }

    fn query(&self) -> String {
        let [identity, resource, action] =
            [&self.identity, &self.resource, &self.action].map(|name| encoded(name));
        format!("identity={identity}&resource={resource}&action={action}")
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.identity, self.action, self.resource)
    }
}

#[derive(Debug, clap::Args)]
struct GrantArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    life: TtlArgs,

    /// Grantor
    #[arg(long, env = "USER", hide_env = true, default_value = "an operator")]
    granted_by: String,

    /// Note, several times for several
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::args::pair)]
    metadata: Vec<(String, String)>,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    names: Names,

    /// Also find it in the scopes below: a wildcard for all environments of a tenant
    #[arg(long)]
    below: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Identity
    #[arg(long)]
    identity: Option<String>,

    /// Resource
    #[arg(long)]
    resource: Option<String>,

    /// Action
    #[arg(long)]
    action: Option<String>,

    #[command(flatten)]
    search: SearchArgs,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Identity, resource and action
    #[arg(value_names = ["IDENTITY", "RESOURCE", "ACTION"], num_args = 3, required_unless_present = "all")]
    names: Vec<String>,

    /// Delete every approval of the scope
    #[arg(long, conflicts_with = "names")]
    all: bool,

    #[command(flatten)]
    removal: RemovalArgs,
}

#[derive(Debug, clap::Args)]
struct ExtendArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    names: Names,

    #[command(flatten)]
    extension: ExtensionArgs,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Grant(args) => grant(args, json).await,
        Action::Check(args) => check(&args, json).await,
        Action::List(args) => list(&args, json).await,
        Action::Revoke(args) => revoke(args, json).await,
        Action::Extend(args) => extend(args, json).await,
    }
}

async fn grant(args: GrantArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let mut body = args.names.body();
    args.life.add_to(&mut body);
    body["granted_by"] = args.granted_by.into();
    body["metadata"] = args.metadata.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
    let answer = operator.call("PUT", "/v1/approvals", Some(args.place.scope()), Some(body)).await?;
    let granted = answer.success()?;
    if json {
        outln!("{granted}")?;
    } else {
        let granted: ApprovalAnswer = serde_json::from_value(granted)?;
        outln!("granted {}, ends {}", args.names, when(granted.expires_at))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(args: &CheckArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let mut body = args.names.body();
    if args.below {
        body["below"] = true.into();
    }
    let answer = operator.call("POST", "/v1/approvals/check", Some(args.place.scope()), Some(body)).await?;
    let Some(found) = answer.found()? else {
        if json {
            outln!("{}", json!({"approved": false}))?;
        } else {
            outln!("not approved")?;
        }
        return Ok(ExitCode::from(1));
    };
    if json {
        outln!("{found}")?;
    } else {
        let approval: ApprovalAnswer = serde_json::from_value(found)?;
        let end = when(approval.expires_at);
        outln!("approved by {} in {}, ends {end}", approval.granted_by, approval.scope)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let names = [("identity", &args.identity), ("resource", &args.resource), ("action", &args.action)];
    let query = args.search.query(&names);
    if args.search.count {
        return count(&*operator, &args.place, "/v1/approvals", &query, json).await;
    }
    // With all names, the API answers the approval itself.
    let found = if names.iter().all(|(_, value)| value.is_some()) && !args.search.below {
        let path = format!("/v1/approvals?{}", query.trim_start_matches('&'));
        let one = operator.call("GET", &path, Some(args.place.scope()), None).await?.found()?;
        one.into_iter().collect()
    } else {
        operator.all("/v1/approvals", &query, args.place.scope()).await?
    };
    let head = ["IDENTITY", "ACTION", "RESOURCE", "SCOPE", "GRANTED BY", "GRANTED", "ENDS"];
    print_items(found, json, head, |approval: ApprovalAnswer| {
        let life = match (approval.sliding, approval.cap_at) {
            (true, cap) => format!("{}, slides until {}", when(approval.expires_at), when(cap)),
            (false, _) => when(approval.expires_at),
        };
        [
            approval.identity,
            approval.action,
            approval.resource,
            approval.scope,
            approval.granted_by,
            when(approval.granted_at),
            life,
        ]
    })
}

async fn revoke(args: RevokeArgs, json: bool) -> Result<ExitCode> {
    if args.all {
        return args.removal.delete_all(&args.place, "approval", json).await;
    }
    let [identity, resource, action] = args.names.try_into().unwrap_or_default();
    let names = Names { identity, resource, action };
    args.removal.remove(&args.place, "approval", &names.query(), ("revoked", names), json).await
}

async fn extend(args: ExtendArgs, json: bool) -> Result<ExitCode> {
    args.extension.extend(&args.place, "approval", args.names.body(), json).await
}
