//! `ebbtide client`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use ebbtide_api::clients::ClientAnswer;
use serde_json::json;

use super::belongings;
use super::scope::print_counts;
use crate::args::{AuditArgs, Confirmation, ScopeTarget, millis};
use crate::client::encoded;
use crate::config::duration;
use crate::output::{errln, outln, print_items, when};
use crate::store::Access;

/// Register, list and delete clients, and revoke what was issued to a client
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide client register --store fjall:data --scope tenant:acme --owner alice --name app --redirect-uri https://app.example/cb\n  \
    ebbtide client list --store fjall:data --scope tenant:acme alice\n  \
    ebbtide client revoke --store fjall:data --scope tenant:acme ID --reason 'its secret leaked'\n  \
    ebbtide client delete --server http://127.0.0.1:7878 --scope tenant:acme ID --yes")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Register a client and print its id and its secret, which cannot be shown again
    #[command(
        after_help = "Example:\n  ebbtide client register --store fjall:data --scope tenant:acme --owner alice --name app --redirect-uri https://app.example/cb"
    )]
    Register(RegisterArgs),
    /// List the clients of an owner
    #[command(after_help = "Example:\n  ebbtide client list --store fjall:data --scope tenant:acme alice")]
    List(ListArgs),
    /// Print a client as JSON
    #[command(after_help = "Example:\n  ebbtide client show --store fjall:data --scope tenant:acme ID")]
    Show(ShowArgs),
    /// Revoke every grant, access token, code and device code that was issued to a client, and leave its registration
    #[command(
        long_about = "Revoke every grant, access token, code and device code that was issued to a client, and leave its \
            registration.\n\n\
            It is one write, however many there are. The number of grants and tokens that end is counted among the first \
            thousand of each. A client that was never registered is accepted: tokens may be issued to it.",
        after_help = "Example:\n  ebbtide client revoke --store fjall:data --scope tenant:acme ID --reason 'its secret leaked'"
    )]
    Revoke(RevokeArgs),
    /// Delete a client with its grants, tokens and index entries, and what belongs to it, such as its trust
    #[command(
        after_help = "Example:\n  ebbtide client delete --store fjall:data --scope tenant:acme ID --yes"
    )]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct RegisterArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Id of the client [default: a new one]
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    id: Option<String>,

    /// Owner, with whom it is deleted
    #[arg(long)]
    owner: Option<String>,

    /// Name for people
    #[arg(long)]
    name: Option<String>,

    /// Redirect URI that is allowed, several times for several
    #[arg(long, value_name = "URI")]
    redirect_uri: Vec<String>,

    /// Register a client that keeps no secret, such as a page in a browser
    #[arg(long)]
    public: bool,

    /// Issue no code to it without a PKCE challenge
    #[arg(long)]
    require_pkce: bool,

    /// Lifetime, such as 90d [default: that of the policy, or no end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,

    /// Lifetime until the first use, such as 1d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    unused_ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Owner of the clients
    owner: String,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Id of the client
    #[arg(allow_hyphen_values = true)]
    id: String,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    audit: AuditArgs,

    /// Id of the client
    #[arg(allow_hyphen_values = true)]
    id: String,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Delete nothing, and list what would be deleted
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    audit: AuditArgs,

    #[command(flatten)]
    confirmation: Confirmation,

    /// Id of the client
    #[arg(allow_hyphen_values = true)]
    id: String,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Register(args) => register(&args, json).await,
        Action::List(args) => list(&args, json).await,
        Action::Show(args) => show(&args).await,
        Action::Revoke(args) => revoke(&args, json).await,
        Action::Delete(args) => delete(args, json).await,
    }
}

async fn register(args: &RegisterArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let mut body = json!({"redirect_uris": args.redirect_uri, "confidential": !args.public});
    for (member, value) in [("client_id", &args.id), ("owner", &args.owner), ("name", &args.name)] {
        if let Some(value) = value {
            body[member] = value.as_str().into();
        }
    }
    if args.require_pkce {
        body["require_pkce"] = true.into();
    }
    for (member, time) in [("ttl_ms", args.ttl), ("unused_ttl_ms", args.unused_ttl)] {
        if let Some(time) = time {
            body[member] = millis(time).into();
        }
    }
    let answer = operator.call("POST", "/v1/clients", Some(args.place.scope()), Some(body)).await?;
    let registered = match answer.or_conflict()? {
        Ok(registered) => registered,
        Err(conflict) => {
            errln!("{conflict}");
            return Ok(ExitCode::from(1));
        }
    };
    if json {
        outln!("{registered}")?;
        return Ok(ExitCode::SUCCESS);
    }
    outln!("{}", registered["client_id"].as_str().unwrap_or_default())?;
    if let Some(secret) = registered["client_secret"].as_str() {
        outln!("{secret}")?;
        errln!("registered the client; the second line is its secret, which cannot be shown again");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let query = format!("&owner={}", encoded(&args.owner));
    let found = operator.all("/v1/clients", &query, args.place.scope()).await?;
    print_items(found, json, ["ID", "NAME", "FORM", "REGISTERED", "ENDS"], |client: ClientAnswer| {
        let form = if client.confidential { "confidential" } else { "public" }.to_owned();
        let name = client.name.unwrap_or_default();
        [client.client_id, name, form, when(client.created_at), when(client.expires_at)]
    })
}

async fn show(args: &ShowArgs) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let path = format!("/v1/clients/{}", encoded(&args.id));
    let Some(client) = operator.call("GET", &path, Some(args.place.scope()), None).await?.found()? else {
        errln!("no such client");
        return Ok(ExitCode::from(1));
    };
    outln!("{client}")?;
    Ok(ExitCode::SUCCESS)
}

async fn revoke(args: &RevokeArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let body = json!({"client_id": args.id, "on_behalf_of": args.audit.actor, "reason": args.audit.reason});
    let call = operator.call("POST", "/v1/grants/revoke", Some(args.place.scope()), Some(body));
    let answer = call.await?.success()?;
    if json {
        outln!("{answer}")?;
    } else {
        outln!("revoked {} grants and tokens of {}", answer["revoked"], args.id)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: DeleteArgs, json: bool) -> Result<ExitCode> {
    let access = if args.dry_run { Access::Read } else { Access::Write };
    let operator = args.place.target.operator(access).await?;
    if args.dry_run {
        belongings::print(&*operator, &args.place, json!({"client": args.id}), json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    args.confirmation.ask(&format!("delete the client {} with everything that it has", args.id))?;
    let path = format!("/v1/clients/{}?{}", encoded(&args.id), args.audit.query());
    let Some(deleted) = operator.call("DELETE", &path, Some(args.place.scope()), None).await?.found()? else {
        errln!("no such client");
        return Ok(ExitCode::from(1));
    };
    if json {
        outln!("{deleted}")?;
    } else {
        print_counts(&deleted["kinds"])?;
        outln!("{} records deleted, {} grants and tokens revoked", deleted["deleted"], deleted["revoked"])?;
    }
    Ok(ExitCode::SUCCESS)
}
