//! `/v1/nonces`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::nonces::{NonceCheck, NonceOutcome, NonceRequest};
use ebbtide_api::nonces::{NonceGood, NonceIssued};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(issue)).reader(routes!(check)).writer(routes!(accept))
}

/// Issues a nonce
#[utoipa::path(post, path = "/nonces", operation_id = "issue_nonce", tag = "nonces",
    request_body = NonceRequest, responses((status = 201, body = NonceIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<NonceRequest>,
) -> Result<(StatusCode, Json<NonceIssued>), Problem> {
    let issued = app.stores.nonces(&caller.scope).issue(request).await?;
    Ok((StatusCode::CREATED, Json(issued.into())))
}

/// Checks a nonce without consuming it
#[utoipa::path(post, path = "/nonces/check", operation_id = "check_nonce", tag = "nonces",
    request_body = NonceCheck,
    responses(
        (status = 200, body = NonceGood),
        (status = 404, description = "unknown: not a nonce of this scope and audience"),
        (status = 409, description = "used: the nonce was accepted before"),
        (status = 410, description = "expired"),
    ))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(nonce): Json<NonceCheck>,
) -> Result<Json<NonceGood>, Problem> {
    answer("valid", app.stores.nonces(&caller.scope).check(&nonce).await?)
}

/// Accepts a nonce once
#[utoipa::path(post, path = "/nonces/accept", operation_id = "accept_nonce", tag = "nonces",
    request_body = NonceCheck,
    responses(
        (status = 200, body = NonceGood),
        (status = 404, description = "unknown: not a nonce of this scope and audience"),
        (status = 409, description = "used: the nonce was accepted before"),
        (status = 410, description = "expired"),
    ))]
async fn accept(
    State(app): State<App>,
    caller: Caller,
    Json(nonce): Json<NonceCheck>,
) -> Result<Json<NonceGood>, Problem> {
    answer("accepted", app.stores.nonces(&caller.scope).accept(&nonce).await?)
}

fn answer(outcome: &str, answer: NonceOutcome) -> Result<Json<NonceGood>, Problem> {
    match answer {
        NonceOutcome::Accepted { expires_at } => Ok(Json(NonceGood::new(outcome, expires_at))),
        NonceOutcome::Used => Err(Problem::conflict("used", "the nonce was accepted before")),
        NonceOutcome::Expired => Err(Problem::expired("the nonce has expired")),
        _ => Err(Problem::not_found("not a nonce of this scope and audience")),
    }
}
