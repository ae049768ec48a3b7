//! `ebbtide token`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::args::{AuditArgs, ScopeTarget};
use crate::client::encoded;
use crate::output::{errln, outln, print_items, when};
use crate::store::Access;

/// List grants, and revoke grants and access tokens by their ids
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide token grants --store fjall:data --scope tenant:acme --subject alice\n  \
    ebbtide token revoke --server http://127.0.0.1:7878 --scope tenant:acme JTI --reason 'it leaked'\n\n\
    Exit status: 0 revoked, 1 there is no such token or grant, 2 an error.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the grants of a subject or a client
    #[command(
        after_help = "Example:\n  ebbtide token grants --store fjall:data --scope tenant:acme --client app"
    )]
    Grants(GrantsArgs),
    /// Revoke an access token by its id, and leave its grant as it is
    #[command(after_help = "Example:\n  ebbtide token revoke --store fjall:data --scope tenant:acme JTI")]
    Revoke(RevokeArgs),
    /// Revoke a grant with every token under it
    #[command(
        after_help = "Example:\n  ebbtide token revoke-grant --store fjall:data --scope tenant:acme GRANT_ID"
    )]
    RevokeGrant(RevokeArgs),
}

#[derive(Debug, clap::Args)]
struct GrantsArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    holder: HolderArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct HolderArgs {
    /// Subject that the grants speak for
    #[arg(long)]
    subject: Option<String>,

    /// Client that holds the grants
    #[arg(long)]
    client: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    audit: AuditArgs,

    /// Id: the jti of an access token, or the id of a grant
    #[arg(allow_hyphen_values = true)]
    id: String,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Grants(args) => grants(&args, json).await,
        Action::Revoke(args) => {
            let body = json!({"jti": args.id, "on_behalf_of": args.audit.actor, "reason": args.audit.reason});
            revoke(&args, "/v1/access-tokens/revoke", body, json).await
        }
        Action::RevokeGrant(args) => {
            let (actor, reason) = (&args.audit.actor, &args.audit.reason);
            let body = json!({"grant_id": args.id, "on_behalf_of": actor, "reason": reason});
            revoke(&args, "/v1/grants/revoke", body, json).await
        }
    }
}

async fn grants(args: &GrantsArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let query = match (&args.holder.subject, &args.holder.client) {
        (Some(subject), _) => format!("&subject={}", encoded(subject)),
        (None, client) => format!("&client_id={}", encoded(client.as_deref().unwrap_or_default())),
    };
    let found = operator.all("/v1/grants", &query, args.place.scope()).await?;
    let head = ["GRANT", "SUBJECT", "CLIENT", "STATE", "CREATED", "ENDS"];
    print_items(found, json, head, |item: Value| {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let time = |name: &str| when(item[name].as_u64());
        [
            text("grant_id"),
            text("subject"),
            text("client_id"),
            // A revoked one has the time and the reason.
            item["state"].as_str().unwrap_or("revoked").to_owned(),
            time("created_at"),
            time("expires_at"),
        ]
    })
}

async fn revoke(args: &RevokeArgs, path: &str, body: Value, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let answer = operator.call("POST", path, Some(args.place.scope()), Some(body)).await?.found()?;
    // Grants are counted; the answer about a token has no body.
    let revoked = answer.is_some_and(|answer| answer["revoked"] != 0);
    if json {
        outln!("{}", json!({"revoked": revoked}))?;
    } else if revoked {
        outln!("revoked {}", args.id)?;
    } else {
        errln!("there is none with this id");
    }
    Ok(if revoked { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
