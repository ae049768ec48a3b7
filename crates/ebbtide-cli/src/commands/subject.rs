//! `ebbtide subject`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide_api::grants::{GrantAnswer, GrantStateAnswer};
use ebbtide_api::subjects::{SubjectOverview, SubjectSignedOut};
use serde_json::json;

use crate::args::{AuditArgs, ScopeTarget};
use crate::output::{outln, table, when};
use crate::store::Access;

/// List what a subject has, and sign it out
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide subject overview --store fjall:data --scope tenant:acme alice\n  \
    ebbtide subject sign-out --server http://127.0.0.1:7878 --scope tenant:acme alice --reason 'a lost laptop'")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the grants, access tokens, sessions and clients of a subject
    #[command(
        long_about = "List the grants, access tokens, sessions and clients of a subject, up to a thousand of each.\n\n\
            An access token under a grant has the state of the grant. Codes and device codes are in no list.",
        after_help = "Example:\n  ebbtide subject overview --store fjall:data --scope tenant:acme alice"
    )]
    Overview(OverviewArgs),
    /// End every grant, access token, session, outstanding code and approved device code of a subject
    #[command(
        long_about = "End every grant, access token, session, outstanding code and approved device code of a subject.\n\n\
            It is one write, however many there are: nothing that was issued before the answer works after it. Access \
            tokens under a grant end with it and are not counted, nor are codes.",
        after_help = "Example:\n  ebbtide subject sign-out --store fjall:data --scope tenant:acme alice --reason 'a lost laptop'"
    )]
    SignOut(SignOutArgs),
}

#[derive(Debug, clap::Args)]
struct OverviewArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Name of the subject
    #[arg(allow_hyphen_values = true)]
    subject: String,
}

#[derive(Debug, clap::Args)]
struct SignOutArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    audit: AuditArgs,

    /// Name of the subject
    #[arg(allow_hyphen_values = true)]
    subject: String,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Overview(args) => overview(&args, json).await,
        Action::SignOut(args) => sign_out(&args, json).await,
    }
}

async fn overview(args: &OverviewArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let body = json!({"subject": args.subject});
    let call = operator.call("POST", "/v1/subjects/overview", Some(args.place.scope()), Some(body));
    let found = call.await?.success()?;
    if json {
        outln!("{found}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let found: SubjectOverview = serde_json::from_value(found)?;
    let mut rows: Vec<[String; 6]> = Vec::new();
    let mut row = |kind: &str, id: String, client: String, state: String, times: [Option<u64>; 2]| {
        let [began, ends] = times.map(when);
        rows.push([kind.to_owned(), id, client, state, began, ends]);
    };
    for grant in found.grants {
        let (state, times) = (grant_state(&grant), [grant.created_at, grant.expires_at]);
        row("grant", grant.grant_id, grant.client_id, state, times);
    }
    for token in found.access_tokens {
        let state = token.why.map_or(token.state, |why| format!("revoked: {why}"));
        row("access token", token.handle, token.client_id, state, [token.issued_at, token.expires_at]);
    }
    for session in found.sessions {
        let times = [session.created_at, session.expires_at];
        row("session", session.handle, String::new(), session.state, times);
    }
    for client in found.clients {
        let times = [client.created_at, client.expires_at];
        row("client", client.client_id, String::new(), "registered".to_owned(), times);
    }
    table(["KIND", "ID", "CLIENT", "STATE", "CREATED", "ENDS"], rows)?;
    if found.more {
        outln!("there are more: a thousand of each kind are listed at most")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// State of a grant, with the reason of a revocation.
fn grant_state(grant: &GrantAnswer) -> String {
    match &grant.state {
        GrantStateAnswer::Active => "active".to_owned(),
        GrantStateAnswer::Expired => "expired".to_owned(),
        GrantStateAnswer::Revoked(revoked) => format!("revoked: {}", revoked.why),
    }
}

async fn sign_out(args: &SignOutArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let (actor, reason) = (&args.audit.actor, &args.audit.reason);
    let body = json!({"subject": args.subject, "on_behalf_of": actor, "reason": reason});
    let call = operator.call("POST", "/v1/subjects/sign-out", Some(args.place.scope()), Some(body));
    let ended = call.await?.success()?;
    if json {
        outln!("{ended}")?;
    } else {
        let SubjectSignedOut { grants, access_tokens, sessions, more, .. } = serde_json::from_value(ended)?;
        let least = if more { "at least " } else { "" };
        outln!(
            "{} is signed out: {least}{grants} grants, {access_tokens} access tokens without a grant and {sessions} sessions ended",
            args.subject
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
