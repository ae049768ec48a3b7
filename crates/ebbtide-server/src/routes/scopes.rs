//! `/v1/scopes`

use std::collections::BTreeMap;

use axum::extract::State;
use ebbtide::stores::scopes::{ScopeDeletion, Statistics};
use ebbtide::{Kind, Reach, Scope};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::Listed;
use ebbtide_api::attributes::UsageAnswer;
use ebbtide_api::scopes::{
    ScopeAnswer, ScopeCounts, ScopeDeleted, ScopeMigrate, ScopeMigrated, UnscopedAnswer,
};

pub(super) fn routes() -> Table {
    Table::new()
        .admin(routes!(list))
        .walks()
        .admin(routes!(count))
        .walks()
        .admin(routes!(remove))
        .walks()
        .admin(routes!(usage))
        .walks()
        .admin(routes!(unscoped))
        .admin(routes!(migrate))
        .walks()
}

fn reach(caller: &Caller, scope: &str, below: bool) -> Result<Reach, Problem> {
    let scope: Scope = scope.parse()?;
    caller.require(&scope)?;
    Ok(if below { Reach::Below(scope) } else { Reach::Exact(scope) })
}

/// Scopes to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichScopes {
    /// Scope to list, with those that it covers; the scope of the request by default.
    #[param(example = "tenant:acme")]
    scope: Option<String>,
}

/// Lists the scopes that have records: one and those that it covers, in one page
///
/// It reads every record in them.
#[utoipa::path(get, path = "/scopes", operation_id = "list_scopes", tag = "operator", params(WhichScopes),
    responses((status = 200, body = Listed<ScopeAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichScopes>,
) -> Result<Json<Listed<ScopeAnswer>>, Problem> {
    let scope = caller.named(which.scope)?;
    let found = app.stores.scopes(&caller.scope).statistics(&Reach::Below(scope)).await?;
    let item = |(scope, kinds): (Scope, BTreeMap<Kind, Statistics>)| ScopeAnswer {
        scope: scope.to_string(),
        records: kinds.values().map(|of| of.live).sum(),
    };
    Ok(Json(Listed { items: found.into_iter().map(item).collect(), next: None }))
}

/// Extent of a count.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ScopeReach {
    /// Includes the scopes that it covers.
    #[serde(default)]
    below: bool,
    /// Adds bytes and ends by scope and kind; reads every record.
    #[serde(default)]
    statistics: bool,
}

/// Counts the live records of a scope, by kind
#[utoipa::path(get, path = "/scopes/{scope}", operation_id = "count_scope", tag = "operator",
    params(("scope" = String, Path, example = "tenant:acme"), ScopeReach),
    responses((status = 200, body = ScopeCounts)))]
async fn count(
    State(app): State<App>,
    caller: Caller,
    Path(scope): Path<String>,
    Query(far): Query<ScopeReach>,
) -> Result<Json<ScopeCounts>, Problem> {
    let reach = reach(&caller, &scope, far.below)?;
    let counts = app.stores.scopes(&caller.scope).count(&reach).await?;
    let answer = ScopeCounts::new(&reach, &counts);
    if far.statistics {
        let found = app.stores.scopes(&caller.scope).statistics(&reach).await?;
        return Ok(Json(answer.with_statistics(&found)));
    }
    Ok(Json(answer))
}

/// Extent of a deletion, with the actor and the reason.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ScopeDelete {
    /// Includes the scopes that it covers.
    #[serde(default)]
    below: bool,
    /// Resumes a deletion that stopped within the last day, if there is one. Records written since it began may be
    /// left.
    #[serde(default)]
    resume: bool,
    /// Name that the caller acts for, for the audit log. The id of the key is in the log anyway.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Deletes every record of a scope but its audit log, and answers when it is done
///
/// After an error, repeat the request to delete what is left.
#[utoipa::path(delete, path = "/scopes/{scope}", operation_id = "delete_scope", tag = "operator",
    params(("scope" = String, Path, example = "tenant:acme"), ScopeDelete),
    responses((status = 200, body = ScopeDeleted)))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(scope): Path<String>,
    Query(asked): Query<ScopeDelete>,
) -> Result<Json<ScopeDeleted>, Problem> {
    let reach = reach(&caller, &scope, asked.below)?;
    let context = caller.context(asked.actor, asked.reason)?;
    let scopes = app.stores.scopes(&caller.scope);
    let resumed = if asked.resume { scopes.resume_delete(&reach, &context).await? } else { None };
    let began_at = resumed.as_ref().map(ScopeDeletion::began_at);
    let mut deletion = match resumed {
        Some(resumed) => resumed,
        None => scopes.delete(&reach, &context).await?,
    };
    loop {
        let step = deletion.step().await;
        // After every step, and after an error: keys go first, and one that was looked up meanwhile may be held again.
        app.access.forget_scope(&reach);
        if !step? {
            break;
        }
    }
    Ok(Json(ScopeDeleted::new(&reach, &deletion.removed().records).resumed_from(began_at)))
}

/// Counts the live attributes of a scope and their bytes, by bucket
///
/// It reads every attribute of the scope.
#[utoipa::path(get, path = "/scopes/{scope}/usage", operation_id = "scope_usage", tag = "operator",
    params(("scope" = String, Path, example = "tenant:acme"), ScopeReach),
    responses((status = 200, body = UsageAnswer)))]
async fn usage(
    State(app): State<App>,
    caller: Caller,
    Path(scope): Path<String>,
    Query(far): Query<ScopeReach>,
) -> Result<Json<UsageAnswer>, Problem> {
    let reach = reach(&caller, &scope, far.below)?;
    Ok(Json(app.stores.attributes(reach.scope()).usage_of_scope(far.below).await?.into()))
}

/// Reports the requests to this node that named no scope, by key and route
#[utoipa::path(get, path = "/unscoped-requests", operation_id = "unscoped_requests", tag = "operator",
    responses((status = 200, body = Listed<UnscopedAnswer>)))]
async fn unscoped(State(app): State<App>, caller: Caller) -> Result<Json<Listed<UnscopedAnswer>>, Problem> {
    caller.require(&Scope::Global)?;
    Ok(Json(Listed { items: app.scoping.report(), next: None }))
}

/// Moves the records of every kind from one scope to another, a bounded number in each call
///
/// Repeat it until `done`. Each record moves in one commit, with its lifetime and what leads to it; tokens, codes and
/// sessions of before are valid in the other scope. One that exists there already is left and counted as a conflict.
#[utoipa::path(post, path = "/scopes/migrate", operation_id = "migrate_scope", tag = "operator",
    request_body = ScopeMigrate, responses((status = 200, body = ScopeMigrated)))]
async fn migrate(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ScopeMigrate>,
) -> Result<Json<ScopeMigrated>, Problem> {
    let (from, to): (Scope, Scope) = (body.from.parse()?, body.to.parse()?);
    caller.require(&from)?;
    caller.require(&to)?;
    let context = caller.context(body.actor, body.reason)?;
    let scopes = app.stores.scopes(&caller.scope);
    let after = body.after.as_deref().map(str::parse).transpose()?;
    Ok(Json(scopes.migrate(&from, &to, after, body.dry_run, &context).await?.into()))
}
