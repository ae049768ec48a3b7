//! `ebbtide relationship`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::stores::relationships::RelationType;
use ebbtide_api::relationships::{RelationshipAnswer, RelationshipFound};
use serde_json::{Value, json};

use super::belongings;
use super::named::{ExtensionArgs, RemovalArgs, SearchArgs, count};
use crate::args::{BelongsArgs, ScopeTarget, TtlArgs};
use crate::client::encoded;
use crate::output::{errln, outln, print_items, table, when};
use crate::store::Access;

/// Add, check, follow, list, extend and remove relationships
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide relationship add --store fjall:data --scope tenant:acme alice member staff --type membership --ttl 30d\n  \
    ebbtide relationship path --store fjall:data --scope tenant:acme alice member company\n  \
    ebbtide relationship list --store fjall:data --scope tenant:acme --object staff")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a relationship, and replace the one that exists
    #[command(
        after_help = "Example:\n  ebbtide relationship add --store fjall:data --scope tenant:acme alice member staff --type membership"
    )]
    Add(AddArgs),
    /// Check that a subject is related to an object; the exit status is 1 if it is not
    #[command(
        after_help = "Example:\n  ebbtide relationship check --store fjall:data --scope tenant:acme alice member staff"
    )]
    Check(CheckArgs),
    /// Find a shortest path over trust or membership
    #[command(
        after_help = "Example:\n  ebbtide relationship path --store fjall:data --scope tenant:acme alice member company"
    )]
    Path(PathArgs),
    /// List or count relationships
    #[command(
        after_help = "Example:\n  ebbtide relationship list --store fjall:data --scope tenant:acme --subject alice"
    )]
    List(ListArgs),
    /// List every name that a subject reaches, or that reaches an object
    #[command(
        after_help = "Example:\n  ebbtide relationship reachable --store fjall:data --scope tenant:acme alice member --type membership"
    )]
    Reachable(ReachableArgs),
    /// Extend the lifetime of a relationship
    #[command(
        after_help = "Example:\n  ebbtide relationship extend --store fjall:data --scope tenant:acme alice member staff --type membership --ttl 2h"
    )]
    Extend(ExtendArgs),
    /// Remove a relationship, or all of a scope
    #[command(
        after_help = "Example:\n  ebbtide relationship remove --store fjall:data --scope tenant:acme alice member staff --type membership"
    )]
    Remove(RemoveArgs),
}

/// Names of a relationship.
#[derive(Debug, clap::Args)]
struct Names {
    /// Subject
    subject: String,
    /// Relation of the subject to the object
    relation: String,
    /// Object
    object: String,
}

impl Names {
    fn body(&self, relation_type: Option<&RelationType>) -> Value {
        let mut body = json!({"subject": self.subject, "relation": self.relation, "object": self.object});
        if let Some(relation_type) = relation_type {
            body["relation_type"] = json!(relation_type);
        }
        body
    }
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    names: Names,

    /// Type: role, trust, membership, ownership, delegation or custom:NAME
    #[arg(long = "type", value_name = "TYPE")]
    relation_type: RelationType,

    #[command(flatten)]
    life: TtlArgs,

    #[command(flatten)]
    belongs: BelongsArgs,

    /// Creator
    #[arg(long, env = "USER", hide_env = true, default_value = "an operator")]
    created_by: String,

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

    /// Type: role, trust, membership, ownership, delegation or custom:NAME [default: any]
    #[arg(long = "type", value_name = "TYPE")]
    relation_type: Option<RelationType>,

    /// Also find it in the scopes below: a wildcard for all environments of a tenant
    #[arg(long)]
    below: bool,
}

#[derive(Debug, clap::Args)]
struct PathArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    names: Names,

    /// Type: trust or membership [default: either]
    #[arg(long = "type", value_name = "TYPE")]
    relation_type: Option<RelationType>,

    /// Longest path
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_depth: usize,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Subject
    #[arg(long)]
    subject: Option<String>,

    /// Object
    #[arg(long)]
    object: Option<String>,

    /// Relation
    #[arg(long)]
    relation: Option<String>,

    /// Type: role, trust, membership, ownership, delegation or custom:NAME
    #[arg(long = "type", value_name = "TYPE")]
    relation_type: Option<RelationType>,

    #[command(flatten)]
    search: SearchArgs,
}

#[derive(Debug, clap::Args)]
struct ReachableArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Subject; with --reverse, the object
    name: String,

    /// Relation
    relation: String,

    /// Type: trust or membership
    #[arg(long = "type", value_name = "TYPE")]
    relation_type: RelationType,

    /// List the names that reach the object instead
    #[arg(long)]
    reverse: bool,

    /// Longest path
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_depth: usize,
}

#[derive(Debug, clap::Args)]
struct ExtendArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    names: Names,

    /// Type: role, trust, membership, ownership, delegation or custom:NAME
    #[arg(long = "type", value_name = "TYPE")]
    relation_type: RelationType,

    #[command(flatten)]
    extension: ExtensionArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Subject, relation and object
    #[arg(value_names = ["SUBJECT", "RELATION", "OBJECT"], num_args = 3, required_unless_present = "all")]
    names: Vec<String>,

    /// Type: role, trust, membership, ownership, delegation or custom:NAME
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "all")]
    relation_type: Option<RelationType>,

    /// Delete every relationship of the scope
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// List what belongs to it and would be removed too, and change nothing
    #[arg(long, conflicts_with = "all")]
    dry_run: bool,

    #[command(flatten)]
    removal: RemovalArgs,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Add(args) => add(args, json).await,
        Action::Check(args) => check(&args, json).await,
        Action::Path(args) => path(&args, json).await,
        Action::List(args) => list(&args, json).await,
        Action::Reachable(args) => reachable(&args, json).await,
        Action::Extend(args) => extend(args, json).await,
        Action::Remove(args) => remove(args, json).await,
    }
}

async fn add(args: AddArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let mut body = args.names.body(Some(&args.relation_type));
    args.life.add_to(&mut body);
    args.belongs.add_to(&mut body);
    body["created_by"] = args.created_by.into();
    body["metadata"] = args.metadata.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
    let answer = operator.call("PUT", "/v1/relationships", Some(args.place.scope()), Some(body)).await?;
    let added = answer.success()?;
    if json {
        outln!("{added}")?;
    } else {
        let added: RelationshipAnswer = serde_json::from_value(added)?;
        let (subject, relation, object) = (&added.subject, &added.relation, &added.object);
        outln!("added {subject} {relation} {object}, ends {}", when(added.expires_at))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a check, and writes its answer.
async fn ask(place: &ScopeTarget, body: Value, json: bool) -> Result<ExitCode> {
    let operator = place.target.operator(Access::Write).await?;
    let answer = operator.call("POST", "/v1/relationships/check", Some(place.scope()), Some(body)).await?;
    let depth_reached = answer.body["depth_reached"] == true;
    let Some(found) = answer.found()? else {
        if json {
            outln!("{}", json!({"related": false, "depth_reached": depth_reached}))?;
        } else {
            outln!("not related{}", if depth_reached { "; the search was cut short" } else { "" })?;
        }
        return Ok(ExitCode::from(1));
    };
    if json {
        outln!("{found}")?;
    } else {
        let found: RelationshipFound = serde_json::from_value(found)?;
        outln!("related: {}", found.path.join(" → "))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(args: &CheckArgs, json: bool) -> Result<ExitCode> {
    let mut body = args.names.body(args.relation_type.as_ref());
    if args.below {
        body["below"] = true.into();
    }
    ask(&args.place, body, json).await
}

async fn path(args: &PathArgs, json: bool) -> Result<ExitCode> {
    let mut body = args.names.body(args.relation_type.as_ref());
    (body["transitive"], body["max_depth"]) = (true.into(), args.max_depth.into());
    ask(&args.place, body, json).await
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let kind = args.relation_type.as_ref().map(ToString::to_string);
    let names = [
        ("subject", &args.subject),
        ("object", &args.object),
        ("relation", &args.relation),
        ("relation_type", &kind),
    ];
    let query = args.search.query(&names);
    if args.search.count {
        return count(&*operator, &args.place, "/v1/relationships", &query, json).await;
    }
    let found = operator.all("/v1/relationships", &query, args.place.scope()).await?;
    let head = ["SUBJECT", "RELATION", "OBJECT", "TYPE", "SCOPE", "CREATED BY", "ENDS"];
    print_items(found, json, head, |related: RelationshipAnswer| {
        [
            related.subject,
            related.relation,
            related.object,
            related.relation_type.to_string(),
            related.scope,
            related.created_by,
            when(related.expires_at),
        ]
    })
}

async fn reachable(args: &ReachableArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let way = if args.reverse { "reaching" } else { "reachable" };
    let body = json!({"name": args.name, "relation": args.relation,
        "relation_type": args.relation_type, "max_depth": args.max_depth});
    let path = format!("/v1/relationships/{way}");
    let found = operator.call("POST", &path, Some(args.place.scope()), Some(body)).await?.success()?;
    if json {
        outln!("{found}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = found["names"].as_array().into_iter().flatten();
    let rows = names.map(|one| {
        let name = one["name"].as_str().unwrap_or_default().to_owned();
        [name, one["distance"].to_string()]
    });
    table(["NAME", "DISTANCE"], rows)?;
    if found["depth_reached"] == true {
        errln!("the search was cut short; there may be more");
    }
    Ok(ExitCode::SUCCESS)
}

async fn extend(args: ExtendArgs, json: bool) -> Result<ExitCode> {
    let body = args.names.body(Some(&args.relation_type));
    args.extension.extend(&args.place, "relationship", body, json).await
}

async fn remove(args: RemoveArgs, json: bool) -> Result<ExitCode> {
    if args.all {
        return args.removal.delete_all(&args.place, "relationship", json).await;
    }
    let [subject, relation, object]: [String; 3] = args.names.try_into().unwrap_or_default();
    if args.dry_run {
        let operator = args.place.target.operator(Access::Read).await?;
        let edge = json!({"subject": subject, "relation": relation, "object": object,
            "relation_type": args.relation_type});
        belongings::print(&*operator, &args.place, json!({"relationship": edge}), json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let kind = args.relation_type.map(|kind| kind.to_string()).unwrap_or_default();
    let query = format!(
        "subject={}&relation={}&object={}&relation_type={}",
        encoded(&subject),
        encoded(&relation),
        encoded(&object),
        encoded(&kind),
    );
    let removed = ("removed", format!("{subject} {relation} {object}"));
    args.removal.remove(&args.place, "relationship", &query, removed, json).await
}
