//! `/v1/codes`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::grants::GrantId;
use ebbtide_api::codes::{CodeIssued, CodeRedeemed};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::route::Verb;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(issue))
        .hot(Verb::Post, issue)
        .writer(routes!(redeem))
        .hot(Verb::Post, redeem)
}

/// Issues an authorization code
#[utoipa::path(post, path = "/codes", operation_id = "issue_code", tag = "codes",
    request_body = CodeRequest, responses((status = 201, body = CodeIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<CodeRequest>,
) -> Result<(StatusCode, Json<CodeIssued>), Problem> {
    let issued = app.stores.codes(&caller.scope).issue(request).await?;
    Ok((StatusCode::CREATED, Json(issued.into())))
}

/// Redeems a code once
///
/// A second redemption is answered 409. It revokes the grant of the first, or its access token without one, if everything
/// that is presented fits the code. A mismatch invalidates the code.
#[utoipa::path(post, path = "/codes/redeem", operation_id = "redeem_code", tag = "codes",
    request_body = Redeem,
    responses(
        (status = 200, body = CodeRedeemed),
        (status = 404, description = "unknown: not a code of this scope"),
        (status = 409, description = "reused: `grant_id` names the grant that is revoked, if everything presented fits"),
        (status = 410, description = "expired"),
        (status = 422, description = "mismatch: `field` names what was not as bound"),
    ))]
async fn redeem(
    State(app): State<App>,
    caller: Caller,
    Json(presented): Json<Redeem>,
) -> Result<Json<CodeRedeemed>, Problem> {
    match app.stores.codes(&caller.scope).redeem(presented).await? {
        RedeemOutcome::Redeemed(code) => Ok(Json((*code).into())),
        RedeemOutcome::Reused { grant_id } => Err(reused(grant_id)),
        RedeemOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        RedeemOutcome::Expired => Err(Problem::expired("the code was not redeemed in its time")),
        _ => Err(Problem::not_found("not a code of this scope")),
    }
}

pub(super) fn reused(grant_id: Option<GrantId>) -> Problem {
    let detail = match grant_id {
        Some(_) => "the code was presented before; its grant is revoked",
        None => "the code was presented before",
    };
    Problem::conflict("reused", detail).with("grant_id", grant_id.map(|id| id.to_string()))
}
