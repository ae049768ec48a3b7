//! `/v1/approvals`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::approvals::{Approval, ApprovalFilter, GrantOutcome};
use ebbtide::stores::shared::extension::{ExtendOutcome, Extension};
use ebbtide_api::access::Counted;
use ebbtide_api::answers::AnswerMode;
use ebbtide_api::approvals::{
    ApprovalAnswer, ApprovalCheck, ApprovalCheckAnswer, ApprovalChecked, ApprovalExtend, ApprovalExtended,
    ApprovalsAnswer, NotApproved,
};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, millis, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .reader(routes!(read))
        .may_walk()
        .creator(routes!(grant))
        .writer(routes!(revoke))
        .reader(routes!(check))
        .may_walk()
        .admin(routes!(extend))
}

/// Grants an approval, and replaces the one that exists
///
/// Only a key that may extend lengthens the life of a live approval. The audit log has every grant.
#[utoipa::path(put, path = "/approvals", operation_id = "grant_approval", tag = "approvals",
    request_body = Approval, responses((status = 200, body = ApprovalAnswer),
        (status = 409, description = "conflict: it would live longer than the one that exists; extend that")))]
async fn grant(
    State(app): State<App>,
    caller: Caller,
    Json(approval): Json<Approval>,
) -> Result<Json<ApprovalAnswer>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    if caller.may_extend("approvals/extend") {
        return Ok(Json(ApprovalAnswer::from(&approvals.grant(&approval).await?)));
    }
    match approvals.grant_no_longer(&approval).await? {
        GrantOutcome::Granted(granted) => Ok(Json(ApprovalAnswer::from(granted.as_ref()))),
        GrantOutcome::Longer { expires_at } => {
            let detail =
                "this would lengthen the life of an approval; extend it with POST /v1/approvals/extend";
            Err(Problem::conflict("conflict", detail).with("expires_at", millis(expires_at)))
        }
        _ => Err(unknown()),
    }
}

/// One approval, or those that have the names that are given.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichApproval {
    /// With `resource` and `action`, one approval is read. Without it, every approval of the scope is.
    #[param(min_length = 1, example = "alice")]
    identity: Option<String>,
    resource: Option<String>,
    action: Option<String>,
    /// Includes the scopes that the request's covers. It reads every approval of those scopes.
    #[serde(default)]
    below: bool,
    /// Answers `{"count": …}` instead of a list.
    #[serde(default)]
    count: bool,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Reads an approval, or lists or counts those of an identity, of a resource, of a scope and below
#[utoipa::path(get, path = "/approvals", operation_id = "read_approvals", tag = "approvals",
    params(WhichApproval),
    responses((status = 200, body = ApprovalsAnswer), (status = 404, description = "unknown: no such approval")))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichApproval>,
) -> Result<Json<ApprovalsAnswer>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    let (after, limit) = page(which.limit, which.after.as_deref())?;
    let one = !which.below && !which.count;
    match (which.identity, which.resource, which.action) {
        (Some(identity), Some(resource), Some(action)) if one => {
            let found = approvals.get(&identity, &resource, &action).await?.ok_or_else(unknown)?;
            Ok(Json(ApprovalsAnswer::One(Box::new(ApprovalAnswer::from(&found)))))
        }
        (identity, resource, action) => {
            let filter = ApprovalFilter::new(identity, resource, action).below(which.below);
            let find = async move {
                if which.count {
                    let count = approvals.count_found(&filter).await?;
                    return Ok(Json(ApprovalsAnswer::Count(Counted { count })));
                }
                let listing = approvals.find(&filter, after.as_ref(), limit).await?;
                Ok(Json(ApprovalsAnswer::Page(listed(&listing))))
            };
            Box::pin(app.walk(&caller, find)).await?
        }
    }
}

/// Checks that exactly this is approved
#[utoipa::path(post, path = "/approvals/check", operation_id = "check_approval", tag = "approvals",
    request_body = ApprovalCheck,
    responses(
        (status = 200, description = "it is approved; or not, with `\"answer\": \"always\"`", body = ApprovalCheckAnswer),
        (status = 404, description = "unknown: it is not approved"),
    ))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ApprovalCheck>,
) -> Result<Json<ApprovalCheckAnswer>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    let ApprovalCheck { identity, resource, action, below, answer, .. } = body;
    let found = if below {
        let find = async move { approvals.get_below(&identity, &resource, &action).await };
        Box::pin(app.walk(&caller, find)).await??
    } else {
        approvals.get(&identity, &resource, &action).await?
    };
    match found {
        Some(found) => {
            let checked = ApprovalChecked { approved: true, approval: ApprovalAnswer::from(&found) };
            Ok(Json(ApprovalCheckAnswer::Approved(Box::new(checked))))
        }
        None if answer == Some(AnswerMode::Always) => {
            Ok(Json(ApprovalCheckAnswer::NotApproved(NotApproved { approved: false })))
        }
        None => Err(unknown()),
    }
}

/// Extends an approval, and writes to the audit log
#[utoipa::path(post, path = "/approvals/extend", operation_id = "extend_approval", tag = "approvals",
    request_body = ApprovalExtend,
    responses(
        (status = 200, body = ApprovalExtended),
        (status = 404, description = "unknown: no such approval"),
        (status = 409, description = "conflict: it does not expire before that, or its cap is sooner"),
    ))]
async fn extend(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ApprovalExtend>,
) -> Result<Json<ApprovalExtended>, Problem> {
    let extension = Extension::from_now_in(body.ttl, caller.context(body.on_behalf_of, Some(body.reason))?);
    let approvals = app.stores.approvals(&caller.scope);
    let outcome = approvals.extend(&body.identity, &body.resource, &body.action, &extension).await?;
    extended(outcome, "no such approval")
}

/// Answer to an extension.
pub(super) fn extended(outcome: ExtendOutcome, unknown: &str) -> Result<Json<ApprovalExtended>, Problem> {
    let refused = |detail, expires_at| {
        Err(Problem::conflict("conflict", detail).with("expires_at", millis(expires_at)))
    };
    match outcome {
        ExtendOutcome::Extended { expires_at, .. } => Ok(Json(expires_at.into())),
        ExtendOutcome::NotLonger { expires_at } => refused("it does not expire before that", expires_at),
        ExtendOutcome::BeyondCap { expires_at, .. } => refused("that is past its cap", expires_at),
        _ => Err(Problem::not_found(unknown)),
    }
}

/// Approval to revoke, with the actor and the reason.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ApprovalRevoke {
    #[param(min_length = 1, example = "alice")]
    identity: String,
    #[param(min_length = 1, example = "doc")]
    resource: String,
    #[param(min_length = 1, example = "GET")]
    action: String,
    /// Name that the caller acts for, for the audit log. The id of the key is in the log anyway.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Revokes an approval, and writes to the audit log
#[utoipa::path(delete, path = "/approvals", operation_id = "revoke_approval", tag = "approvals",
    params(ApprovalRevoke),
    responses((status = 204, description = "it is gone"), (status = 404, description = "unknown: no such approval")))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Query(body): Query<ApprovalRevoke>,
) -> Result<StatusCode, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let approvals = app.stores.approvals(&caller.scope);
    let revoked = approvals.revoke(&body.identity, &body.resource, &body.action, &context).await?;
    revoked.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("no such approval")
}
