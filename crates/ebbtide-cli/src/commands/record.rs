//! `ebbtide record`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Subcommand;
use ebbtide_api::records::{RecordDeleted, RecordListed, RecordStored};
use serde_json::{Value, json};

use crate::args::{BelongsArgs, ScopeTarget, input};
use crate::config::duration;
use crate::output::{errln, outln, table, when};
use crate::store::Access;

/// Read and change records of frameworks that bring their own ids
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Read and change records of frameworks that bring their own ids.\n\n\
        An id is often a secret: with - in its place it is read from standard input, and does not appear in the list of \
        processes.",
    after_help = "Examples:\n  \
        ebbtide record list --store fjall:data --scope tenant:acme sessions\n  \
        ebbtide record get --server http://127.0.0.1:7878 --scope tenant:acme sessions - < id.txt\n\n\
        Exit status: 0 done, 1 there is no such record or the condition did not hold, 2 an error."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print a record with its value
    #[command(
        after_help = "Example:\n  ebbtide record get --store fjall:data --scope tenant:acme sessions ID"
    )]
    Get(NameArgs),
    /// Write a record; its value is JSON from standard input
    #[command(
        after_help = "Example:\n  ebbtide record put --store fjall:data --scope tenant:acme sessions ID --ttl 10m < value.json"
    )]
    Put(PutArgs),
    /// Delete a record
    #[command(
        after_help = "Example:\n  ebbtide record delete --store fjall:data --scope tenant:acme sessions ID"
    )]
    Delete(NameArgs),
    /// List the records of a collection, without their values
    #[command(after_help = "Example:\n  ebbtide record list --store fjall:data --scope tenant:acme sessions")]
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct NameArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Name of the collection
    collection: String,

    /// Id of the record; - reads it from standard input
    #[arg(allow_hyphen_values = true)]
    id: String,

    /// Take the id for a second key of the record
    #[arg(long)]
    by_key: bool,

    /// Take the id for base64: of an id that is not text, as the list shows it
    #[arg(long, conflicts_with = "by_key")]
    base64: bool,
}

#[derive(Debug, clap::Args)]
struct PutArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Name of the collection
    collection: String,

    /// Id of the record
    #[arg(allow_hyphen_values = true)]
    id: String,

    /// Lifetime, such as 10m [default: that of the policy]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,

    /// Longest lifetime: neither reads nor touches reach further
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_ttl: Option<Duration>,

    /// Let each read renew the lifetime, up to --max-ttl
    #[arg(long, requires_all = ["ttl", "max_ttl"])]
    sliding: bool,

    #[command(flatten)]
    belongs: BelongsArgs,

    /// Write only where there is no live record
    #[arg(long)]
    if_absent: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Name of the collection
    collection: String,
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Get(args) => get(&args).await,
        Action::Put(args) => put(&args, json).await,
        Action::Delete(args) => delete(&args, json).await,
        Action::List(args) => list(&args, json).await,
    }
}

impl NameArgs {
    fn body(&self) -> Result<Value> {
        let id = if self.id == "-" { input("the id")?.trim().to_owned() } else { self.id.clone() };
        let member = match (self.by_key, self.base64) {
            (true, _) => "key",
            (false, true) => "id_base64",
            (false, false) => "id",
        };
        Ok(json!({"collection": self.collection, member: id}))
    }
}

async fn get(args: &NameArgs) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let scope = Some(args.place.scope());
    let answer = operator.call("POST", "/v1/records/get", scope, Some(args.body()?)).await?;
    if answer.status == 410 {
        errln!("the record has expired, and is retained");
        return Ok(ExitCode::from(1));
    }
    match answer.found()? {
        Some(record) => {
            outln!("{record}")?;
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(missing()),
    }
}

async fn put(args: &PutArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let Ok(value) = serde_json::from_str::<Value>(&input("the value as JSON")?) else {
        bail!("the value on standard input is not JSON");
    };
    let mut body = json!({"collection": args.collection, "id": args.id, "value": value});
    if let Some(ttl) = args.ttl {
        body["ttl_ms"] = json!(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    }
    if let Some(cap) = args.max_ttl {
        body["max_ttl_ms"] = json!(u64::try_from(cap.as_millis()).unwrap_or(u64::MAX));
    }
    if args.sliding {
        body["sliding"] = json!(true);
    }
    args.belongs.add_to(&mut body);
    if args.if_absent {
        body["if"] = json!("absent");
    }
    let scope = Some(args.place.scope());
    match operator.call("POST", "/v1/records/put", scope, Some(body)).await?.or_conflict()? {
        Ok(answer) if json => outln!("{answer}")?,
        Ok(answer) => {
            let stored: RecordStored = serde_json::from_value(answer)?;
            let done = if stored.created { "created" } else { "replaced" };
            outln!("{done}, version {}, expires {}", stored.version, when(stored.expires_at))?;
        }
        Err(conflict) => {
            errln!("{conflict}");
            return Ok(ExitCode::from(1));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: &NameArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let scope = Some(args.place.scope());
    let answer = operator.call("POST", "/v1/records/delete", scope, Some(args.body()?)).await?;
    let deleted: RecordDeleted = answer.read()?;
    if json {
        outln!("{}", json!(deleted))?;
    } else if deleted.deleted {
        outln!("deleted")?;
    }
    Ok(match (deleted.deleted, json) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(1),
        (false, false) => missing(),
    })
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let mut rows = Vec::new();
    let mut after = Value::Null;
    loop {
        let mut body = json!({"collection": args.collection, "limit": 500});
        if !after.is_null() {
            body["after"] = after;
        }
        let scope = Some(args.place.scope());
        let page = operator.call("POST", "/v1/records/list", scope, Some(body)).await?.success()?;
        for item in page["items"].as_array().into_iter().flatten() {
            if json {
                outln!("{item}")?;
                continue;
            }
            let record: RecordListed = serde_json::from_value(item.clone())?;
            let id = record.id.or(record.id_base64).unwrap_or_default();
            rows.push([id, when(record.expires_at), record.group.unwrap_or_default(), record.version]);
        }
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    if !json {
        table(["ID", "EXPIRES", "GROUP", "VERSION"], rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn missing() -> ExitCode {
    errln!("there is no such record");
    ExitCode::from(1)
}
