//! `/v1/grants`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::grants::{GrantId, GrantRequest, Holder, Revoke, Rotate, RotateOutcome, Why};
use ebbtide::stores::shared::paging::Listing;
use ebbtide_api::answers::{Listed, Revoked};
use ebbtide_api::grants::{GrantAnswer, GrantIssued, GrantRotated, reason};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::route::Verb;
use crate::http::table::Table;
use crate::http::why::Cause;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(issue))
        .writer(routes!(rotate))
        .hot(Verb::Post, rotate)
        .writer(routes!(revoke))
        .reader(routes!(read))
        .reader(routes!(list))
        .writer(routes!(remove))
}

/// Issues a grant: a family of refresh tokens
#[utoipa::path(post, path = "/grants", operation_id = "issue_grant", tag = "grants",
    request_body = GrantRequest, responses((status = 201, body = GrantIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<GrantRequest>,
) -> Result<(StatusCode, Json<GrantIssued>), Problem> {
    let grant = app.stores.grants(&caller.scope).issue(request).await?;
    Ok((StatusCode::CREATED, Json(GrantIssued::from(&grant))))
}

/// Exchanges a refresh token for its successor
///
/// A token that was rotated before gets the same successor again for a short time, while that one was not used. Within
/// its retry window it is 409 `raced` after that: read the stored token again, and try once more later. Any later it is
/// 409 `reused`, and the family is revoked.
#[utoipa::path(post, path = "/grants/rotate", operation_id = "rotate_grant", tag = "grants",
    request_body = Rotate,
    responses(
        (status = 200, body = GrantRotated),
        (status = 404, description = "unknown: not a refresh token of this scope"),
        (status = 409, description = "raced: nothing is changed; or reused: the family is revoked; `grant_id` names it"),
        (status = 410, description = "expired, or `revoked` for the reason given"),
        (status = 422, description = "mismatch: `field` names what was not as bound"),
    ))]
async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<Rotate>,
) -> Result<Json<GrantRotated>, Problem> {
    match app.stores.grants(&caller.scope).rotate(request).await? {
        RotateOutcome::Rotated(rotated) => Ok(Json(GrantRotated::new(*rotated, false))),
        RotateOutcome::Retried(rotated) => Ok(Json(GrantRotated::new(*rotated, true))),
        RotateOutcome::Reused { grant_id } => {
            let problem = Problem::conflict("reused", "the token was used before; its family is revoked");
            Err(problem.with("grant_id", grant_id.to_string()))
        }
        RotateOutcome::Raced { grant_id } => {
            let detail = "another rotation was faster; read the stored token again, and try once more later";
            Err(Problem::conflict("raced", detail).with("grant_id", grant_id.to_string()))
        }
        RotateOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        RotateOutcome::Revoked { why, .. } => Err(revoked(why)),
        RotateOutcome::Expired => Err(Problem::expired("the grant has ended")),
        _ => Err(Problem::not_found("not a refresh token of this scope")),
    }
}

/// Problem of a revoked grant, with the reason.
pub(super) fn revoked(why: Why) -> Problem {
    let cause = match why {
        Why::RefreshReused | Why::CodeReused => Cause::Reused,
        Why::SignedOut => Cause::SignOut,
        _ => Cause::Revoked,
    };
    Problem::revoked("the grant was revoked").with("revoked", reason(why)).because(cause)
}

/// Exactly one of the first four members is required; `on_behalf_of` and `reason` go into the audit log.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrantRevoke {
    #[schema(value_type = Option<String>)]
    grant_id: Option<GrantId>,
    #[schema(value_type = Option<String>)]
    refresh_token: Option<Secret>,
    subject: Option<String>,
    client_id: Option<String>,
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Revokes a grant, or all of a subject or a client
#[utoipa::path(post, path = "/grants/revoke", operation_id = "revoke_grants", tag = "grants",
    request_body = GrantRevoke, responses((status = 200, body = Revoked)))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<GrantRevoke>,
) -> Result<Json<Revoked>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let token;
    let what = match (body.grant_id, body.refresh_token, &body.subject, &body.client_id) {
        (Some(id), None, None, None) => Revoke::Grant(id),
        (None, Some(refresh_token), None, None) => {
            token = refresh_token;
            Revoke::from(&token)
        }
        (None, None, Some(subject), None) => Revoke::Holder(Holder::Subject(subject)),
        (None, None, None, Some(client_id)) => Revoke::Holder(Holder::Client(client_id)),
        _ => {
            return Err(Problem::invalid("one of grant_id, refresh_token, subject or client_id is given")
                .with("member", "grant_id"));
        }
    };
    let revoked = app.stores.grants(&caller.scope).revoke(what, Some(&context)).await?;
    Ok(Json(Revoked { revoked }))
}

/// Reads a grant
#[utoipa::path(get, path = "/grants/{id}", operation_id = "read_grant", tag = "grants",
    params(("id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = GrantAnswer), (status = 404, description = "unknown")))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<GrantAnswer>, Problem> {
    let grant = app.stores.grants(&caller.scope).get(id.parse::<GrantId>()?).await?;
    grant.map(|grant| Json(grant.into())).ok_or_else(unknown)
}

/// Query of a listing of grants: one of `subject` and `client_id`.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhoseGrants {
    #[param(example = "alice")]
    subject: Option<String>,
    client_id: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Lists the grants of a subject or a client, without their payloads
#[utoipa::path(get, path = "/grants", operation_id = "list_grants", tag = "grants", params(WhoseGrants),
    responses((status = 200, body = Listed<GrantAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(whose): Query<WhoseGrants>,
) -> Result<Json<Listed<GrantAnswer>>, Problem> {
    let holder = match (&whose.subject, &whose.client_id) {
        (Some(subject), None) => Holder::Subject(subject),
        (None, Some(client_id)) => Holder::Client(client_id),
        _ => return Err(Problem::invalid("one of subject and client_id is given").with("member", "subject")),
    };
    let (after, limit) = page(whose.limit, whose.after.as_deref())?;
    let grants = app.stores.grants(&caller.scope).list(holder, after.as_ref(), limit).await?;
    Ok(Json(listed(&Listing { items: grants.items, next: grants.next })))
}

/// Revokes a grant
#[utoipa::path(delete, path = "/grants/{id}", operation_id = "revoke_grant", tag = "grants",
    params(("id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = Revoked), (status = 404, description = "unknown, or revoked before")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Revoked>, Problem> {
    let context = caller.context(None, None)?;
    let id = id.parse::<GrantId>()?;
    if app.stores.grants(&caller.scope).revoke(id, Some(&context)).await? == 1 {
        Ok(Json(Revoked { revoked: 1 }))
    } else {
        Err(unknown())
    }
}

fn unknown() -> Problem {
    Problem::not_found("no such grant in this scope")
}
