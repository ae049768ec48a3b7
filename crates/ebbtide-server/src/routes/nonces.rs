//! `/v1/nonces`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::nonces::NonceOutcome;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(issue)).reader(routes!(check)).writer(routes!(accept))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NonceRequest {
    /// Whom it is for, such as one server.
    #[schema(min_length = 1, max_length = 1024, example = "as.example")]
    audience: String,
    /// 300 by default.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct NonceIssued {
    nonce: String,
    expires_at: Option<u64>,
}

/// Issues a nonce
#[utoipa::path(post, path = "/nonces", operation_id = "issue_nonce", tag = "nonces",
    request_body = NonceRequest, responses((status = 201, body = NonceIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<NonceRequest>,
) -> Result<(StatusCode, Json<NonceIssued>), Problem> {
    let issued = app.stores.nonces(&caller.scope).issue(&body.audience, ttl(body.ttl_seconds)?).await?;
    let nonce = issued.nonce.expose().to_owned();
    Ok((StatusCode::CREATED, Json(NonceIssued { nonce, expires_at: millis(issued.expires_at) })))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NoncePresented {
    #[schema(example = "as.example")]
    audience: String,
    nonce: String,
}

#[derive(Serialize, ToSchema)]
struct NonceGood {
    /// `valid` or `accepted`.
    #[schema(example = "accepted")]
    outcome: &'static str,
    expires_at: Option<u64>,
}

/// Whether a nonce is good; it may be used again
#[utoipa::path(post, path = "/nonces/check", operation_id = "check_nonce", tag = "nonces",
    request_body = NoncePresented,
    responses(
        (status = 200, body = NonceGood),
        (status = 404, description = "unknown: not a nonce of this scope and audience"),
        (status = 409, description = "used: it was accepted before"),
        (status = 410, description = "expired"),
    ))]
async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<NoncePresented>,
) -> Result<Json<NonceGood>, Problem> {
    let nonce = Secret::new(body.nonce);
    answer("valid", app.stores.nonces(&caller.scope).check(&body.audience, &nonce).await?)
}

/// Accepts a nonce once
#[utoipa::path(post, path = "/nonces/accept", operation_id = "accept_nonce", tag = "nonces",
    request_body = NoncePresented,
    responses(
        (status = 200, body = NonceGood),
        (status = 404, description = "unknown: not a nonce of this scope and audience"),
        (status = 409, description = "used: it was accepted before"),
        (status = 410, description = "expired"),
    ))]
async fn accept(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<NoncePresented>,
) -> Result<Json<NonceGood>, Problem> {
    let nonce = Secret::new(body.nonce);
    answer("accepted", app.stores.nonces(&caller.scope).accept(&body.audience, &nonce).await?)
}

fn answer(outcome: &'static str, answer: NonceOutcome) -> Result<Json<NonceGood>, Problem> {
    match answer {
        NonceOutcome::Accepted { expires_at } => {
            Ok(Json(NonceGood { outcome, expires_at: millis(expires_at) }))
        }
        NonceOutcome::Used => Err(Problem::conflict("used", "the nonce was accepted before")),
        NonceOutcome::Expired => Err(Problem::expired("the nonce has expired")),
        NonceOutcome::Unknown => Err(Problem::not_found("not a nonce of this scope and audience")),
    }
}
