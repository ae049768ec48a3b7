//! `ebbtide policy`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use ebbtide::{Kind, Ttl, TtlPolicy};
use ebbtide_api::policies::{PolicyAnswer, PolicyRequest, SimulationAnswer};
use serde_json::json;

use crate::args::{AuditArgs, ScopeTarget};
use crate::client::encoded;
use crate::config::duration;
use crate::output::{outln, span, table, when};
use crate::store::Access;

/// Bound the lifetimes of records, by kind, collection and scope
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Bound the lifetimes of records, by kind, collection and scope.\n\n\
        A policy applies to a scope and all that it covers; the most specific one wins: the nearest scope first, and \
        within a scope the policy of a collection before that of the kind. With --collection it applies to one \
        collection of records, counters or leases; the keys of the Redis protocol are the collection redis. A stored policy takes \
        precedence over one of the configuration file. A change is audited, and in force on every node within five \
        seconds; records that exist keep their expiry. Approvals and relationships are bound to a minute to a year \
        unless a policy says otherwise.",
    after_help = "Examples:\n  \
        ebbtide policy set --server http://127.0.0.1:7878 --kind approvals --scope tenant:acme --preset short_lived\n  \
        ebbtide policy simulate --store fjall:data --kind approvals --scope tenant:acme --max 1d\n  \
        ebbtide policy set --store fjall:data --kind records --collection redis --scope global --default 1h --min 1s --max 30d\n  \
        ebbtide policy list --store fjall:data --scope global"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set the policy of a kind or a collection in a scope
    #[command(
        after_help = "Example:\n  ebbtide policy set --store fjall:data --kind approvals --scope tenant:acme --preset temporary"
    )]
    Set(SetArgs),
    /// List the stored policies of a scope and the scopes below it
    #[command(after_help = "Example:\n  ebbtide policy list --store fjall:data --scope global")]
    List(ListArgs),
    /// Show the policy that is in force for a kind or a collection in a scope
    #[command(
        after_help = "Example:\n  ebbtide policy show --store fjall:data --kind approvals --scope tenant:acme"
    )]
    Show(ShowArgs),
    /// Count the live records that a policy would have refused, and change nothing
    #[command(
        after_help = "Example:\n  ebbtide policy simulate --store fjall:data --kind approvals --scope tenant:acme --max 1d"
    )]
    Simulate(SimulateArgs),
    /// Remove the stored policy of exactly this kind, collection and scope
    #[command(
        after_help = "Example:\n  ebbtide policy remove --store fjall:data --kind approvals --scope tenant:acme"
    )]
    Remove(RemoveArgs),
}

/// Records that a policy applies to.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    /// Kind of record, such as approvals
    #[arg(long)]
    kind: Kind,

    /// Collection of records, counters or leases [default: all of the kind]
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
}

impl TargetArgs {
    /// Members of a query that name the records.
    fn query(&self) -> String {
        let collection = self.collection.as_deref().map(|name| format!("&collection={}", encoded(name)));
        format!("kind={}{}", self.kind, collection.unwrap_or_default())
    }

    fn named(&self) -> String {
        named(self.kind.name(), self.collection.as_deref())
    }
}

/// Bounds of a policy.
#[derive(Debug, clap::Args)]
struct Bounds {
    #[command(flatten)]
    of: TargetArgs,

    /// Bounds to begin with
    #[arg(long, value_name = "NAME", value_parser = TtlPolicy::PRESETS)]
    preset: Option<String>,

    /// TTL of a record that is written without one, such as 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    default: Option<Duration>,

    /// Shortest TTL
    #[arg(long, value_name = "TIME", value_parser = duration)]
    min: Option<Duration>,

    /// Longest TTL
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max: Option<Duration>,

    /// Accept and log a TTL out of bounds instead of refusing it
    #[arg(long)]
    advisory: bool,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    bounds: Bounds,

    /// Stored version that is required; 0 if there must be none
    #[arg(long, value_name = "N")]
    expect: Option<u64>,

    #[command(flatten)]
    audit: AuditArgs,
}

#[derive(Debug, clap::Args)]
struct SimulateArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    bounds: Bounds,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: ScopeTarget,

    /// Collection whose policies are listed [default: all policies]
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    of: TargetArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[command(flatten)]
    place: ScopeTarget,

    #[command(flatten)]
    of: TargetArgs,

    #[command(flatten)]
    audit: AuditArgs,
}

impl Bounds {
    fn request(self, place: &ScopeTarget) -> PolicyRequest {
        let ttl = |time: Option<Duration>| time.and_then(|time| Ttl::new(time).ok());
        PolicyRequest {
            kind: self.of.kind.to_string(),
            collection: self.of.collection,
            scope: Some(place.scope.name.to_string()),
            preset: self.preset,
            default_ttl_seconds: ttl(self.default),
            min_ttl_seconds: ttl(self.min),
            max_ttl_seconds: ttl(self.max),
            enforce_ttl: self.advisory.then_some(false),
            ..PolicyRequest::default()
        }
    }
}

pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    match args.action {
        Action::Set(args) => set(args, json).await,
        Action::List(args) => list(&args, json).await,
        Action::Show(args) => show(&args, json).await,
        Action::Simulate(args) => simulate(args, json).await,
        Action::Remove(args) => remove(&args, json).await,
    }
}

async fn set(args: SetArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let mut request = args.bounds.request(&args.place);
    request.version = args.expect;
    (request.actor, request.reason) = (Some(args.audit.actor), Some(args.audit.reason));
    match operator.call("PUT", "/v1/policies", None, Some(json!(request))).await?.or_conflict()? {
        Ok(set) => {
            print(&serde_json::from_value(set)?, json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(conflict) => {
            crate::output::errln!("{conflict}");
            Ok(ExitCode::from(1))
        }
    }
}

async fn list(args: &ListArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let mut path = format!("/v1/policies?scope={}", encoded(&args.place.scope.name.to_string()));
    if let Some(collection) = &args.collection {
        path = path + "&collection=" + &encoded(collection).to_string();
    }
    let found = operator.call("GET", &path, None, None).await?.success()?;
    let policies: Vec<PolicyAnswer> = serde_json::from_value(found["items"].clone())?;
    if json {
        for policy in &policies {
            outln!("{}", json!(policy))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = policies.iter().map(|policy| {
        let (default, bounds) = bounds(policy);
        let version = policy.version.map_or("-".to_owned(), |version| version.to_string());
        let collection = policy.collection.clone().unwrap_or_else(|| "-".to_owned());
        let (kind, scope) = (policy.kind.clone(), policy.scope.clone());
        [kind, collection, scope, default, bounds, version, when(policy.changed_at)]
    });
    table(["KIND", "COLLECTION", "SCOPE", "DEFAULT", "BOUNDS", "VERSION", "CHANGED"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn show(args: &ShowArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let scope = args.place.scope.name.to_string();
    let path = format!("/v1/policies?{}&scope={}", args.of.query(), encoded(&scope));
    let Some(found) = operator.call("GET", &path, None, None).await?.found()? else {
        crate::output::errln!("no policy bounds {} in {scope}", args.of.named());
        return Ok(ExitCode::from(1));
    };
    print(&serde_json::from_value(found)?, json)?;
    Ok(ExitCode::SUCCESS)
}

async fn simulate(args: SimulateArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Read).await?;
    let request = args.bounds.request(&args.place);
    let answer = operator.call("POST", "/v1/policies/simulate", None, Some(json!(request))).await?;
    let found: SimulationAnswer = answer.read()?;
    if json {
        outln!("{}", json!(found))?;
        return Ok(ExitCode::SUCCESS);
    }
    let of = named(&request.kind, request.collection.as_deref());
    let least = if found.exact { "" } else { "at least " };
    outln!("{least}{} of {} live {of} would have been refused", found.refused, found.live)?;
    outln!(
        "{} have a TTL below the shortest, {} one above the longest, {} have no end",
        found.too_short,
        found.too_long,
        found.without_end
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(args: &RemoveArgs, json: bool) -> Result<ExitCode> {
    let operator = args.place.target.operator(Access::Write).await?;
    let scope = args.place.scope.name.to_string();
    let path = format!("/v1/policies?{}&scope={}&{}", args.of.query(), encoded(&scope), args.audit.query());
    let removed = operator.call("DELETE", &path, None, None).await?.found()?.is_some();
    if json {
        outln!("{}", json!({"removed": removed}))?;
    } else if removed {
        outln!("removed the policy of {} in {scope}", args.of.named())?;
    } else {
        crate::output::errln!("there is no stored policy of {} in exactly {scope}", args.of.named());
    }
    Ok(if removed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(policy: &PolicyAnswer, json: bool) -> Result<()> {
    if json {
        return outln!("{}", json!(policy));
    }
    let (default, bounds) = bounds(policy);
    let target = named(&policy.kind, policy.collection.as_deref());
    outln!("{target} in {} and below: {bounds}, default {default}", policy.scope)?;
    match policy.version {
        Some(version) => outln!("stored, version {version}, changed {}", when(policy.changed_at)),
        None => outln!("from the configuration, or built in"),
    }
}

/// Kind and collection, for people.
fn named(kind: &str, collection: Option<&str>) -> String {
    collection.map_or_else(|| kind.to_owned(), |collection| format!("{kind} of the collection {collection}"))
}

fn bounds(policy: &PolicyAnswer) -> (String, String) {
    let default = policy.default_ttl_seconds.map_or("none".to_owned(), span);
    let advisory = if policy.enforce_ttl { "" } else { ", advisory" };
    let bounds = format!("{} to {}{advisory}", span(policy.min_ttl_seconds), span(policy.max_ttl_seconds));
    (default, bounds)
}
