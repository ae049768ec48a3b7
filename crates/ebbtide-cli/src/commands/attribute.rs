//! `ebbtide attribute`

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use ebbtide_api::attributes::AttributeAnswer;
use serde_json::{Value, json};

use super::named::ExtensionArgs;
use crate::args::{BelongsArgs, ScopeTarget, TtlArgs, confirmed, input};
use crate::client::encoded;
use crate::output::{errln, outln, print_items, when};
use crate::store::Access;

/// Read and change JSON attributes of owners, in buckets
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebbtide attribute set --store fjall:data --scope tenant:acme alice settings theme '\"dark\"'\n  \
    ebbtide attribute list --server http://127.0.0.1:7878 --scope tenant:acme alice\n\n\
    Exit status: 0 done, 1 there is no such attribute or the condition did not hold, 2 an error.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print an attribute with its value; a sliding one is renewed
    #[command(
        after_help = "Example:\n  ebbtide attribute get --store fjall:data --scope tenant:acme alice settings theme"
    )]
    Get(NameArgs),
    /// Store a JSON value
    #[command(
        after_help = "Example:\n  ebbtide attribute set --store fjall:data --scope tenant:acme alice settings theme '\"dark\"' --ttl 30d"
    )]
    Set(SetArgs),
    /// List the buckets of an owner, or the attributes of a bucket
    #[command(
        after_help = "Examples:\n  ebbtide attribute list --store fjall:data --scope tenant:acme alice\n  \
        ebbtide attribute list --store fjall:data --scope tenant:acme alice settings"
    )]
    List(ListArgs),
    /// Extend the lifetime of an attribute, up to its cap, and write to the audit log
    #[command(
        after_help = "Example:\n  ebbtide attribute extend --store fjall:data --scope tenant:acme alice settings theme --ttl 90d"
    )]
    Extend(ExtendArgs),
    /// Delete an attribute, a bucket, or every attribute of an owner
    #[command(
        after_help = "Example:\n  ebbtide attribute delete --store fjall:data --scope tenant:acme alice settings theme"
    )]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "the members are named as the API names them")]
struct Name {
    /// Owner of the bucket
    owner: String,
    /// Bucket of the attribute
    bucket: String,
    /// Name of the attribute
    name: String,
}

impl Name {
    fn body(&self) -> Value {
        json!({"owner": self.owner, "bucket": self.bucket, "name": self.name})
    }
}

#[derive(Debug, clap::Args)]
struct NameArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    name: Name,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    name: Name,

    /// Value as JSON; - reads it from standard input
    #[arg(allow_hyphen_values = true)]
    value: String,

    #[command(flatten)]
    life: TtlArgs,

    #[command(flatten)]
    belongs: BelongsArgs,

    /// Write only where there is no live attribute
    #[arg(long)]
    if_absent: bool,

    /// Write only over this version, from an earlier answer
    #[arg(long, value_name = "VERSION", conflicts_with = "if_absent")]
    if_version: Option<String>,

    /// Write only over this value, as JSON; the lifetime stays as it is, unless --ttl is given
    #[arg(
        long,
        value_name = "JSON",
        allow_hyphen_values = true,
        conflicts_with_all = ["if_absent", "if_version", "max_ttl", "sliding", "belongs_to", "timestamp"]
    )]
    if_value: Option<String>,

    /// Time of the caller, in milliseconds since 1970: it is stored and answered, and has no effect
    #[arg(long, value_name = "MILLISECONDS")]
    timestamp: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Owner of the buckets
    owner: String,

    /// Bucket whose attributes are listed [default: the buckets are]
    bucket: Option<String>,
}

#[derive(Debug, clap::Args)]
struct ExtendArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    name: Name,

    #[command(flatten)]
    extension: ExtensionArgs,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Owner of the attributes
    owner: String,

    /// Bucket [default: all, which needs --yes]
    bucket: Option<String>,

    /// Name of the attribute [default: all, which needs --yes]
    name: Option<String>,

    /// Delete a whole bucket or owner without asking
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Get(args) => get(&args, json).await,
        Action::Set(args) => set(&args, json).await,
        Action::List(args) => list(&args, json).await,
        Action::Extend(args) => extend(args, json).await,
        Action::Delete(args) => delete(args, json).await,
    }
}

async fn get(args: &NameArgs, json: bool) -> Result<ExitCode> {
    // A sliding attribute is renewed.
    let operator = args.place.target.operator(Access::Write).await?;
    let answer =
        operator.call("POST", "/v1/attributes/get", Some(args.place.scope()), Some(args.name.body()));
    let Some(found) = answer.await?.found()? else {
        errln!("no such attribute");
        return Ok(ExitCode::from(1));
    };
    outln!("{}", if json { &found } else { &found["data"] })?;
    Ok(ExitCode::SUCCESS)
}

async fn set(args: &SetArgs, json: bool) -> Result<ExitCode> {
    let mut text = args.value.clone();
    if text == "-" {
        text = input("the value as JSON")?;
    }
    let mut body = args.name.body();
    let value = parsed(&text)?;
    args.life.add_to(&mut body);
    if let Some(old) = &args.if_value {
        (body["old"], body["new"]) = (parsed(old)?, value);
        return swap(args, body, json).await;
    }
    body["data"] = value;
    if let Some(timestamp) = args.timestamp {
        body["timestamp"] = timestamp.into();
    }
    args.belongs.add_to(&mut body);
    if args.if_absent {
        body["if"] = "absent".into();
    } else if let Some(version) = &args.if_version {
        body["if"] = json!({"version": version});
    }
    let operator = args.place.target.operator(Access::Write).await?;
    let answer = operator.call("POST", "/v1/attributes/set", Some(args.place.scope()), Some(body)).await?;
    if answer.status == 412 {
        errln!("the attribute exists, or has another version");
        return Ok(ExitCode::from(1));
    }
    stored(&answer.success()?, json)
}

/// Stores the value of `body` if the present one is the old one in it.
async fn swap(args: &SetArgs, body: Value, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let path = "/v1/attributes/compare-and-swap";
    match operator.call("POST", path, Some(args.place.scope()), Some(body)).await?.or_conflict()? {
        Ok(answer) => stored(&answer, json),
        Err(conflict) => {
            errln!("{conflict}");
            Ok(ExitCode::from(1))
        }
    }
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).context("the value is not JSON; text is written as '\"text\"'")
}

/// Reports a value that was stored.
fn stored(answer: &Value, json: bool) -> Result<ExitCode> {
    if json {
        outln!("{answer}")?;
    } else {
        let version = answer["version"].as_str().unwrap_or_default();
        outln!("stored version {version}, ends {}", when(answer["expires_at"].as_u64()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let mut path = format!("/v1/attributes/{}", encoded(&args.owner));
    if let Some(bucket) = &args.bucket {
        path = format!("{path}/{}", encoded(bucket));
    }
    let found = operator.all(&path, "", args.place.scope()).await?;
    if args.bucket.is_none() && !json {
        let name = |item: &Value| outln!("{}", item.as_str().unwrap_or_default());
        return found.iter().try_for_each(name).map(|()| ExitCode::SUCCESS);
    }
    print_items(found, json, ["NAME", "BYTES", "ENDS", "SLIDES", "VERSION"], |attribute: AttributeAnswer| {
        let bytes = attribute.data.to_string().len().to_string();
        let slides = if attribute.sliding { "yes" } else { "no" }.to_owned();
        [attribute.name, bytes, when(attribute.expires_at), slides, attribute.version]
    })
}

async fn extend(args: ExtendArgs, json: bool) -> Result<ExitCode> {
    args.extension.extend(&args.place, "attribute", args.name.body(), json).await
}

async fn delete(args: DeleteArgs, json: bool) -> Result<ExitCode> {
    let mut body = json!({"owner": args.owner});
    if let Some(bucket) = &args.bucket {
        body["bucket"] = bucket.as_str().into();
    }
    let one = args.name.is_some();
    if let Some(name) = args.name {
        body["name"] = name.into();
    } else {
        let what = args.bucket.as_ref().map_or_else(
            || format!("every attribute of {}", args.owner),
            |bucket| format!("the bucket {bucket} of {}", args.owner),
        );
        confirmed(args.yes, &format!("delete {what}"))?;
    }
    let operator = args.place.target.operator(Access::Write).await?;
    let path = if one { "/v1/attributes/delete" } else { "/v1/attributes/delete-all" };
    let answer = operator.call("POST", path, Some(args.place.scope()), Some(body)).await?;
    let Some(deleted) = answer.found()? else {
        errln!("no such attribute");
        return Ok(ExitCode::from(1));
    };
    let count = if one { 1 } else { deleted["deleted"].as_u64().unwrap_or_default() };
    if json {
        outln!("{}", json!({"deleted": count}))?;
    } else {
        outln!("{count} deleted")?;
    }
    Ok(ExitCode::SUCCESS)
}
