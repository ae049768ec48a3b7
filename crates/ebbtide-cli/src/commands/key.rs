//! `ebbtide key`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::Scope;
use ebbtide::stores::api_keys::{KeyId, Role};
use serde_json::{Value, json};

use crate::args::{AuditArgs, Confirmation, ScopeTarget, StoreTarget};
use crate::client::encoded;
use crate::config::duration;
use crate::output::{errln, outln, print_items, when};
use crate::store::Access;

/// Create, list and revoke API keys
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Create, list and revoke API keys.\n\n\
        A key is valid for one scope and the scopes below it, in one role: a reader reads and checks, a writer changes \
        records, an admin also manages keys and scopes. The store keeps a digest only: a key is shown once.",
    after_help = "Examples:\n  \
        ebbtide key create --store fjall:data --scope tenant:acme --role writer --ttl 90d --name billing\n  \
        ebbtide key list --store fjall:data --scope global --below\n  \
        ebbtide key revoke --store fjall:data --yes ID"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

impl Args {
    pub(crate) fn has_json(&self) -> bool {
        !matches!(self.action, Action::Revoke(_))
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key and print it; it cannot be shown again
    #[command(
        after_help = "Example:\n  ebbtide key create --store fjall:data --scope tenant:acme --role writer --ttl 90d --name billing"
    )]
    Create(CreateArgs),
    /// List the keys of a scope; the keys themselves are never shown
    #[command(after_help = "Example:\n  ebbtide key list --store fjall:data --scope global --below")]
    List(ListArgs),
    /// Revoke a key; exit status 1 if it does not exist
    #[command(after_help = "Example:\n  ebbtide key revoke --store fjall:data --yes ID")]
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Role: reader, writer or admin
    #[arg(long)]
    role: Role,

    /// Lifetime, such as 12h or 90d [default: until the key is revoked]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,

    /// Name, to recognize the key in lists
    #[arg(long)]
    name: Option<String>,

    /// Maximum number of requests per second, on each node
    #[arg(long, value_name = "NUMBER")]
    rate_limit: Option<u32>,

    /// Calls that the key is limited to, separated by commas, such as introspect,replays [default: all of its role]
    #[arg(long, value_name = "CALLS", value_delimiter = ',')]
    allow: Option<Vec<String>>,

    #[command(flatten)]
    audit: AuditArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the keys of the scopes below it
    #[arg(long)]
    below: bool,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    #[command(flatten)]
    target: StoreTarget,

    /// Id of the key, from `key list`
    // One in 64 begins with a hyphen.
    #[arg(allow_hyphen_values = true)]
    id: KeyId,

    #[command(flatten)]
    audit: AuditArgs,

    #[command(flatten)]
    confirmation: Confirmation,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Create(args) => create(args, json).await,
        Action::List(args) => list(args, json).await,
        Action::Revoke(args) => revoke(args).await,
    }
}

async fn create(args: CreateArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Create).await?;
    let mut body = json!({
        "scope": args.place.scope.name.to_string(),
        "role": args.role.name(),
        "name": args.name,
        "rate_limit": args.rate_limit,
        "allow": args.allow,
    });
    if let Some(ttl) = args.ttl {
        body["ttl_ms"] = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).into();
    }
    let path = format!("/v1/keys?{}", args.audit.query());
    let created = operator.call("POST", &path, None, Some(body)).await?.success()?;
    if json {
        outln!("{created}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |name: &str| created[name].as_str().unwrap_or_default();
    outln!("{}", text("key"))?;
    errln!("created the key {} ({} of {})", text("id"), text("role"), text("scope"));
    Ok(ExitCode::SUCCESS)
}

async fn list(args: ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.reader().await?;
    let scope = &args.place.scope.name;
    // The keys below the scope of the request are listed, unless the query names one.
    let exact = if args.below { String::new() } else { in_scope(scope) };
    let found = operator.all("/v1/keys", &exact, scope).await?;
    print_items(found, json, ["ROLE", "SCOPE", "ENDS", "NAME", "ID"], |key: Value| {
        let text = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
        [text("role"), text("scope"), when(key["expires_at"].as_u64()), text("name"), text("id")]
    })
}

/// Query for the keys of exactly this scope.
fn in_scope(scope: &Scope) -> String {
    format!("&scope={}", encoded(&scope.to_string()))
}

async fn revoke(args: RevokeArgs) -> Result<ExitCode> {
    let operator = args.target.operator(Access::Write).await?;
    let (id, scope) = (args.id.to_string(), args.id.scope());
    let mut found = None;
    let note = |key: &Value| {
        if key["id"] == id.as_str() {
            found = Some(key.clone());
        }
        Ok(())
    };
    operator.each("/v1/keys", &in_scope(scope), Some(scope), note).await?;
    let Some(key) = found else { return not_found() };
    let name = key["name"].as_str().map(|name| format!(" named {name}")).unwrap_or_default();
    let key = format!("the {} of {scope}{name}", key["role"].as_str().unwrap_or_default());
    args.confirmation.ask(&format!("revoke {key}"))?;
    let path = format!("/v1/keys/{}?{}", encoded(&id), args.audit.query());
    match operator.call("DELETE", &path, None, None).await?.found()? {
        Some(_) => revoked(&key),
        None => not_found(),
    }
}

fn revoked(key: &str) -> Result<ExitCode> {
    outln!("revoked {key}; servers refuse it within 5 s")?;
    Ok(ExitCode::SUCCESS)
}

fn not_found() -> Result<ExitCode> {
    outln!("there is no such key")?;
    Ok(ExitCode::from(1))
}
