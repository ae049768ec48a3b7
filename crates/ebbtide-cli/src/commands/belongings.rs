//! `ebbtide belongings`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide_api::belongings::BelongingAnswer;
use serde_json::{Value, json};

use crate::args::ScopeTarget;
use crate::operator::Operator;
use crate::output::{outln, table};
use crate::store::Access;

/// List what belongs to an owner, a client, a grant or a relationship, and goes with it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide belongings list --store fjall:data --scope tenant:acme --client app\n  \
    ebbtide belongings list --store fjall:data --scope tenant:acme --relationship alice peer bob --type trust\n  \
    ebbtide belongings reconcile --server http://127.0.0.1:7878 --scope tenant:acme")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List every record that would be removed with it; nothing is changed
    #[command(
        after_help = "Example:\n  ebbtide belongings list --store fjall:data --scope tenant:acme --owner alice"
    )]
    List(ListArgs),
    /// Remove records whose trust, client or grant is gone, and links and index records that lead to nothing
    #[command(after_help = "Example:\n  ebbtide belongings reconcile --store fjall:data --scope tenant:acme")]
    Reconcile(ReconcileArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    parent: ParentArgs,

    /// Type of the relationship: role, trust, membership, ownership, delegation or custom:NAME
    #[arg(long = "type", value_name = "TYPE", default_value = "trust")]
    relation_type: String,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ParentArgs {
    /// Owner, subject or peer
    #[arg(long)]
    owner: Option<String>,

    /// Id of a client
    #[arg(long)]
    client: Option<String>,

    /// Id of a grant
    #[arg(long)]
    grant: Option<String>,

    /// Subject, relation and object of a relationship
    #[arg(long, num_args = 3, value_names = ["SUBJECT", "RELATION", "OBJECT"])]
    relationship: Option<Vec<String>>,
}

#[derive(Debug, clap::Args)]
struct ReconcileArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Include the scopes that the scope covers
    #[arg(long)]
    below: bool,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::List(args) => list(args, json).await,
        Action::Reconcile(args) => reconcile(&args, json).await,
    }
}

async fn list(args: ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let ParentArgs { owner, client, grant, relationship } = args.parent;
    let named = [("owner", owner), ("client", client), ("grant", grant)];
    let parent = match (named.into_iter().find_map(|(name, id)| Some((name, id?))), relationship.as_deref()) {
        (Some((name, id)), _) => json!({name: id}),
        (None, Some([subject, relation, object])) => {
            let relation_type = relation_type(&args.relation_type);
            json!({"relationship": {"subject": subject, "relation": relation, "object": object,
                "relation_type": relation_type}})
        }
        _ => Value::Null,
    };
    print(&*operator, &args.place, parent, json).await?;
    Ok(ExitCode::SUCCESS)
}

/// Type of a relationship as JSON.
fn relation_type(text: &str) -> Value {
    match text.split_once(':') {
        Some(("custom", name)) => json!({"custom": name}),
        _ => text.into(),
    }
}

/// Prints the records that would be removed with `parent`, and returns their number.
pub(super) async fn print(
    operator: &dyn Operator,
    place: &ScopeTarget,
    parent: Value,
    json: bool,
) -> Result<usize> {
    let answer = operator.call("POST", "/v1/belongings", Some(place.scope()), Some(parent)).await?;
    let mut found = answer.success()?;
    let items: Vec<BelongingAnswer> = serde_json::from_value(found["items"].take())?;
    let count = items.len();
    if json {
        items.iter().try_for_each(|item| outln!("{}", json!(item)))?;
    } else {
        table(["KIND", "NAMES"], items.into_iter().map(|item| [item.kind, item.names.join(" / ")]))?;
        outln!("{count} records")?;
    }
    Ok(count)
}

async fn reconcile(args: &ReconcileArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let path = "/v1/belongings/reconcile";
    let done = operator
        .call("POST", path, Some(args.place.scope()), args.below.then(|| json!({"below": true})))
        .await?
        .success()?;
    if json {
        outln!("{done}")?;
    } else {
        outln!("{} records and {} links removed", done["records"], done["links"])?;
    }
    Ok(ExitCode::SUCCESS)
}
