//! `/v1/approvals`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Timestamp;
use ebbtide::stores::approvals::{Approval, Granted};
use ebbtide::stores::shared::extension::{ExtendOutcome, Extension};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, millis, page, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::Listed;

pub(super) fn routes() -> Table {
    Table::new()
        .reader(routes!(read))
        .creator(routes!(grant))
        .writer(routes!(revoke))
        .reader(routes!(check))
        .admin(routes!(extend))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalGrant {
    #[schema(min_length = 1, example = "alice")]
    identity: String,
    #[schema(min_length = 1, example = "doc")]
    resource: String,
    #[schema(min_length = 1, example = "GET")]
    action: String,
    #[schema(min_length = 1, example = "admin")]
    granted_by: String,
    /// Without it, it does not end.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Grants an approval; one that stands there gives way to it
#[utoipa::path(put, path = "/approvals", operation_id = "grant_approval", tag = "approvals",
    request_body = ApprovalGrant, responses((status = 200, body = ApprovalAnswer)))]
async fn grant(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ApprovalGrant>,
) -> Result<Json<ApprovalAnswer>, Problem> {
    let mut approval = Approval::new(body.identity, body.resource, body.action, body.granted_by)
        .with_scope(caller.scope.clone());
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        approval = approval.with_ttl(ttl);
    }
    for (name, value) in body.metadata {
        approval = approval.with_metadata(name, value);
    }
    Ok(Json(ApprovalAnswer::from(&app.stores.approvals(&caller.scope).grant(&approval).await?)))
}

#[derive(Serialize, ToSchema)]
struct ApprovalAnswer {
    identity: String,
    resource: String,
    action: String,
    granted_by: String,
    granted_at: Option<u64>,
    expires_at: Option<u64>,
    metadata: BTreeMap<String, String>,
    scope: String,
}

impl From<&Granted> for ApprovalAnswer {
    fn from(granted: &Granted) -> Self {
        Self {
            identity: granted.identity.clone(),
            resource: granted.resource.clone(),
            action: granted.action.clone(),
            granted_by: granted.granted_by.clone(),
            granted_at: millis(granted.granted_at),
            expires_at: millis(granted.expires_at),
            metadata: granted.metadata.clone(),
            scope: granted.scope.to_string(),
        }
    }
}

/// One approval, or a page of an identity's.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum ApprovalsAnswer {
    One(Box<ApprovalAnswer>),
    Page(Listed<ApprovalAnswer>),
}

/// Which approval, or whose.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichApproval {
    #[param(min_length = 1, example = "alice")]
    identity: String,
    /// Given together with `action`.
    resource: Option<String>,
    action: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Reads an approval, or lists an identity's
#[utoipa::path(get, path = "/approvals", operation_id = "read_approvals", tag = "approvals",
    params(WhichApproval),
    responses((status = 200, body = ApprovalsAnswer), (status = 404, description = "unknown: no such approval")))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichApproval>,
) -> Result<Json<ApprovalsAnswer>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    match (which.resource, which.action) {
        (Some(resource), Some(action)) => {
            let found = approvals.get(&which.identity, &resource, &action).await?.ok_or_else(unknown)?;
            Ok(Json(ApprovalsAnswer::One(Box::new(ApprovalAnswer::from(&found)))))
        }
        (None, None) => {
            let (after, limit) = page(which.limit, which.after.as_deref())?;
            let listing = approvals.list(&which.identity, after.as_ref(), limit).await?;
            Ok(Json(ApprovalsAnswer::Page(listed(&listing))))
        }
        _ => Err(Problem::invalid("resource and action are given together")),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalCheck {
    #[schema(min_length = 1, example = "alice")]
    identity: String,
    #[schema(min_length = 1, example = "doc")]
    resource: String,
    #[schema(min_length = 1, example = "GET")]
    action: String,
    /// Makes no difference: what was granted can be asked for as it was written.
    #[serde(rename = "granted_by")]
    _granted_by: Option<String>,
    /// Makes no difference.
    #[serde(rename = "ttl_seconds")]
    _ttl_seconds: Option<i64>,
    /// Makes no difference.
    #[serde(rename = "metadata")]
    _metadata: Option<BTreeMap<String, String>>,
}

#[derive(Serialize, ToSchema)]
struct ApprovalChecked {
    approved: bool,
    #[serde(flatten)]
    approval: ApprovalAnswer,
}

/// Whether exactly this is approved
#[utoipa::path(post, path = "/approvals/check", operation_id = "check_approval", tag = "approvals",
    request_body = ApprovalCheck,
    responses((status = 200, body = ApprovalChecked), (status = 404, description = "unknown: it is not approved")))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ApprovalCheck>,
) -> Result<Json<ApprovalChecked>, Problem> {
    let approvals = app.stores.approvals(&caller.scope);
    let found = approvals.get(&body.identity, &body.resource, &body.action).await?.ok_or_else(unknown)?;
    Ok(Json(ApprovalChecked { approved: true, approval: ApprovalAnswer::from(&found) }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalExtend {
    #[schema(min_length = 1, example = "alice")]
    identity: String,
    #[schema(min_length = 1, example = "doc")]
    resource: String,
    #[schema(min_length = 1, example = "GET")]
    action: String,
    /// From now.
    #[schema(minimum = 1)]
    ttl_seconds: i64,
    #[schema(min_length = 1, max_length = 256, example = "bob")]
    actor: String,
    #[schema(min_length = 1, max_length = 1024, example = "the audit goes on")]
    reason: String,
}

#[derive(Serialize, ToSchema)]
struct ApprovalExtended {
    expires_at: Option<u64>,
}

/// Lets an approval live longer, and tells the audit log
#[utoipa::path(post, path = "/approvals/extend", operation_id = "extend_approval", tag = "approvals",
    request_body = ApprovalExtend,
    responses(
        (status = 200, body = ApprovalExtended),
        (status = 404, description = "unknown: no such approval"),
        (status = 409, description = "conflict: it lives that long already, or its cap is sooner"),
    ))]
async fn extend(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ApprovalExtend>,
) -> Result<Json<ApprovalExtended>, Problem> {
    let ttl = ebbtide::Ttl::from_secs(body.ttl_seconds)?;
    let extension = Extension::from_now(ttl, body.actor, body.reason)?;
    let approvals = app.stores.approvals(&caller.scope);
    extended(approvals.extend(&body.identity, &body.resource, &body.action, &extension).await?)
}

fn extended(extended: ExtendOutcome) -> Result<Json<ApprovalExtended>, Problem> {
    let refused = |detail, expires_at: Timestamp| {
        Err(Problem::conflict("conflict", detail).with("expires_at", millis(expires_at)))
    };
    match extended {
        ExtendOutcome::ExtendOutcome { expires_at, .. } => {
            Ok(Json(ApprovalExtended { expires_at: millis(expires_at) }))
        }
        ExtendOutcome::NotLonger { expires_at } => refused("it lives that long already", expires_at),
        ExtendOutcome::BeyondCap { expires_at, .. } => refused("that is past its cap", expires_at),
        ExtendOutcome::Unknown => Err(unknown()),
    }
}

/// Which one, by whom and why.
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
    /// For the audit log; whoever does not say is the holder of the key.
    actor: Option<String>,
    reason: Option<String>,
}

/// Takes an approval back, and tells the audit log
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
