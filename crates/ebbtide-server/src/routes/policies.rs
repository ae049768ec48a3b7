//! `/v1/policies`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::policies::PolicyOutcome;
use ebbtide::{Kind, PolicyTarget};
use ebbtide_api::answers::Listed;
use ebbtide_api::policies::{PoliciesAnswer, PolicyAnswer, PolicyRequest, SimulationAnswer};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .admin(routes!(read))
        .admin(routes!(set))
        .admin(routes!(remove))
        .admin(routes!(simulate))
        .walks()
}

/// One policy, or all.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichPolicies {
    /// Kind whose policy in force is read; without it, the stored policies are listed.
    kind: Option<String>,
    /// Collection of `records`, `counters` or `leases` whose policy in force is read; in a list, the one whose policies
    /// are listed.
    collection: Option<String>,
    /// Scope; the scope of the request by default.
    scope: Option<String>,
}

/// Reads the policy that is in force for a kind and a scope, or lists the stored policies
///
/// A list has the policies of the scope and of those that it covers.
#[utoipa::path(get, path = "/policies", operation_id = "read_policies", tag = "policies",
    params(WhichPolicies),
    responses(
        (status = 200, body = PoliciesAnswer),
        (status = 404, description = "unknown: no policy bounds this kind in this scope"),
    ))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichPolicies>,
) -> Result<Json<PoliciesAnswer>, Problem> {
    let scope = caller.named(which.scope)?;
    let policies = app.stores.policies(&scope);
    let Some(kind) = which.kind else {
        let mut stored = policies.list().await?;
        if which.collection.is_some() {
            stored.retain(|policy| policy.collection == which.collection);
        }
        let items = stored.iter().map(PolicyAnswer::from).collect();
        return Ok(Json(PoliciesAnswer::Page(Listed { items, next: None })));
    };
    let kind: Kind = kind.parse()?;
    let target = PolicyTarget::new(kind, which.collection.as_deref());
    let found = policies.in_force(target, &scope).await?.ok_or_else(unknown)?;
    Ok(Json(PoliciesAnswer::One(Box::new(PolicyAnswer::in_force(kind, &found)))))
}

/// Sets the policy of a kind or a collection in a scope and all that it covers, and writes to the audit log
///
/// The most specific policy applies: the nearest scope first; within a scope, that of the collection before that of the
/// kind. It is in force on this node at once, and on every other within five seconds. Records that exist keep their
/// expiry.
#[utoipa::path(put, path = "/policies", operation_id = "set_policy", tag = "policies",
    request_body = PolicyRequest,
    responses(
        (status = 200, body = PolicyAnswer),
        (status = 409, description = "conflict: the stored policy has another version"),
    ))]
async fn set(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PolicyRequest>,
) -> Result<Json<PolicyAnswer>, Problem> {
    let (target, policy) = (body.target()?, body.policy()?);
    let scope = caller.named(body.scope.clone())?;
    let context = caller.context(body.actor.clone(), body.reason.clone())?;
    let policies = app.stores.policies(&caller.scope);
    match policies.set_version(target, &scope, policy, body.version, &context).await? {
        PolicyOutcome::Set(stored) => Ok(Json(PolicyAnswer::from(&stored))),
        PolicyOutcome::Conflict { version } => {
            let problem = Problem::conflict("conflict", "the stored policy has another version");
            Err(problem.with("version", version))
        }
        _ => Err(Problem::conflict("conflict", "the policy was not set")),
    }
}

/// Policy to remove, with the actor and the reason.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PolicyRemove {
    #[param(example = "approvals")]
    kind: String,
    /// Collection of `records`, `counters` or `leases`; without it, the policy of the whole kind is removed.
    collection: Option<String>,
    /// Scope; the scope of the request by default.
    scope: Option<String>,
    /// Actor for the audit log; the holder of the key by default.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Removes the stored policy of exactly this kind, collection and scope, and writes to the audit log
#[utoipa::path(delete, path = "/policies", operation_id = "remove_policy", tag = "policies",
    params(PolicyRemove),
    responses((status = 204, description = "it is gone"), (status = 404, description = "unknown")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<PolicyRemove>,
) -> Result<StatusCode, Problem> {
    let scope = caller.named(asked.scope)?;
    let context = caller.context(asked.actor, asked.reason)?;
    let target = PolicyTarget::new(asked.kind.parse()?, asked.collection.as_deref());
    let removed = app.stores.policies(&caller.scope).unset(target, &scope, &context).await?;
    removed.map(|_| StatusCode::NO_CONTENT).ok_or_else(unknown)
}

/// Counts the live records that a policy would have refused, and changes nothing
///
/// It reads every record of the kind in the scope and below it.
#[utoipa::path(post, path = "/policies/simulate", operation_id = "simulate_policy", tag = "policies",
    request_body = PolicyRequest, responses((status = 200, body = SimulationAnswer)))]
async fn simulate(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PolicyRequest>,
) -> Result<Json<SimulationAnswer>, Problem> {
    let (target, policy) = (body.target()?, body.policy()?);
    let scope = caller.named(body.scope.clone())?;
    Ok(Json(app.stores.policies(&caller.scope).simulate(target, &scope, policy).await?.into()))
}

fn unknown() -> Problem {
    Problem::not_found("no such policy")
}
