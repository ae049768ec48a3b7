//! Arguments and calls that the commands about named records share: approvals, relationships and attributes.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::{AuditArgs, ScopeTarget, confirmed, millis};
use crate::client::encoded;
use crate::config::duration;
use crate::operator::Operator;
use crate::output::{errln, outln, when};
use crate::store::Access;

/// Extent and form of a search.
#[derive(Debug, clap::Args)]
pub(super) struct SearchArgs {
    /// Include the scopes below
    #[arg(long)]
    pub(super) below: bool,

    /// Write the number alone
    #[arg(long)]
    pub(super) count: bool,
}

impl SearchArgs {
    /// Parameters of a query for the names that are given, each after a `&`.
    pub(super) fn query(&self, names: &[(&str, &Option<String>)]) -> String {
        let given = names.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let given = given.map(|(name, value)| format!("&{name}={}", encoded(value)));
        given.chain(self.below.then(|| "&below=true".to_owned())).collect()
    }
}

/// Writes the number of records that a query finds.
pub(super) async fn count(
    operator: &dyn Operator,
    place: &ScopeTarget,
    path: &str,
    query: &str,
    json: bool,
) -> Result<ExitCode> {
    let path = format!("{path}?count=true{query}");
    let counted = operator.call("GET", &path, Some(place.scope()), None).await?.success()?;
    outln!("{}", if json { &counted } else { &counted["count"] })?;
    Ok(ExitCode::SUCCESS)
}

/// Extension of a lifetime.
#[derive(Debug, clap::Args)]
pub(super) struct ExtensionArgs {
    /// Lifetime from now on, such as 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Duration,

    #[command(flatten)]
    audit: AuditArgs,
}

impl ExtensionArgs {
    /// Extends the record that has the names in `body`. The exit status is 1 if nothing was extended.
    pub(super) async fn extend(
        self,
        place: &ScopeTarget,
        what: &str,
        mut body: Value,
        json: bool,
    ) -> Result<ExitCode> {
        let operator = place.target.operator(Access::Write).await?;
        body["ttl_ms"] = millis(self.ttl).into();
        (body["on_behalf_of"], body["reason"]) = (self.audit.actor.into(), self.audit.reason.into());
        let path = format!("/v1/{what}s/extend");
        let answer = operator.call("POST", &path, Some(place.scope()), Some(body)).await?;
        if answer.status == 404 && answer.body["title"] == "unknown" {
            errln!("no such {what}");
            return Ok(ExitCode::from(1));
        }
        match answer.or_conflict()? {
            Ok(extended) if json => outln!("{extended}")?,
            Ok(extended) => outln!("extended, ends {}", when(extended["expires_at"].as_u64()))?,
            Err(refused) => {
                errln!("{refused}");
                return Ok(ExitCode::from(1));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Terms of a removal: of one record, or of all with `--all`, which the command itself has.
#[derive(Debug, clap::Args)]
pub(super) struct RemovalArgs {
    /// Include the scopes below, with --all
    #[arg(long, requires = "all")]
    below: bool,

    /// Carry out --all without asking; without this flag and without a terminal the command only reports it
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    audit: AuditArgs,
}

impl RemovalArgs {
    /// Deletes every record of the scope.
    pub(super) async fn delete_all(&self, place: &ScopeTarget, what: &str, json: bool) -> Result<ExitCode> {
        let operator = place.target.operator(Access::Write).await?;
        if !self.yes {
            let query = if self.below { "&below=true" } else { "" };
            let path = format!("/v1/{what}s?count=true{query}");
            let counted = operator.call("GET", &path, Some(place.scope()), None).await?.success()?;
            let extent = if self.below { " and all below it" } else { "" };
            let change = format!("delete {} {what}s of {}{extent}", counted["count"], place.scope());
            confirmed(self.yes, &change)?;
        }
        let AuditArgs { actor, reason } = &self.audit;
        let body = json!({"below": self.below, "on_behalf_of": actor, "reason": reason});
        let path = format!("/v1/{what}s/delete-all");
        let deleted = operator.call("POST", &path, Some(place.scope()), Some(body)).await?.success()?;
        if json {
            outln!("{deleted}")?;
        } else {
            outln!("{} {what}s deleted", deleted["deleted"])?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Removes the record that `query` names, and writes `done` with its names. The exit status is 1 if there is none.
    pub(super) async fn remove(
        &self,
        place: &ScopeTarget,
        what: &str,
        query: &str,
        (done, names): (&str, impl Display),
        json: bool,
    ) -> Result<ExitCode> {
        let operator = place.target.operator(Access::Write).await?;
        let path = format!("/v1/{what}s?{query}&{}", self.audit.query());
        let removed = operator.call("DELETE", &path, Some(place.scope()), None).await?.found()?.is_some();
        if json {
            outln!("{}", json!({done: removed}))?;
        } else if removed {
            outln!("{done} {names}")?;
        } else {
            errln!("no such {what}");
        }
        Ok(if removed { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
