//! `/v1/pushed-requests`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::pushed_requests::{Push, PushOutcome, Take, TakeOutcome};
use ebbtide_api::answers::millis;
use ebbtide_api::pushed_requests::{PushedAnswer, PushedTaken};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(put)).reader(routes!(peek)).writer(routes!(take))
}

/// Stores a pushed authorization request (RFC 9126)
#[utoipa::path(post, path = "/pushed-requests", operation_id = "push_request", tag = "pushed requests",
    request_body = Push,
    responses(
        (status = 201, body = PushedAnswer),
        (status = 409, description = "conflict: the request_uri names another request"),
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller,
    Json(push): Json<Push>,
) -> Result<(StatusCode, Json<PushedAnswer>), Problem> {
    match app.stores.pushed_requests(&caller.scope).put(push).await? {
        PushOutcome::Pushed { request_uri, expires_at } => {
            let request_uri = request_uri.expose().to_owned();
            Ok((StatusCode::CREATED, Json(PushedAnswer { request_uri, expires_at: millis(expires_at) })))
        }
        _ => Err(Problem::conflict("conflict", "the request_uri names another request")),
    }
}

/// Reads a pushed request without taking it
#[utoipa::path(post, path = "/pushed-requests/peek", operation_id = "peek_request", tag = "pushed requests",
    request_body = Take,
    responses(
        (status = 200, body = PushedTaken),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was taken before"),
        (status = 410, description = "expired"),
        (status = 422, description = "mismatch: it is another client's"),
    ))]
async fn peek(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<Take>,
) -> Result<Json<PushedTaken>, Problem> {
    answered(app.stores.pushed_requests(&caller.scope).peek(&request).await?)
}

/// Takes a pushed request once
#[utoipa::path(post, path = "/pushed-requests/take", operation_id = "take_request", tag = "pushed requests",
    request_body = Take,
    responses(
        (status = 200, body = PushedTaken),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was taken before"),
        (status = 410, description = "expired"),
        (status = 422, description = "mismatch: it is another client's"),
    ))]
async fn take(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<Take>,
) -> Result<Json<PushedTaken>, Problem> {
    answered(app.stores.pushed_requests(&caller.scope).take(request).await?)
}

fn answered(answer: TakeOutcome) -> Result<Json<PushedTaken>, Problem> {
    match answer {
        TakeOutcome::Taken { client_id, params } => {
            Ok(Json(PushedTaken { client_id, params: params.into_inner() }))
        }
        TakeOutcome::Used => Err(Problem::conflict("used", "the request was taken before")),
        TakeOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        TakeOutcome::Expired => Err(Problem::expired("the request was not taken in its time")),
        _ => Err(Problem::not_found("no such pushed request in this scope")),
    }
}
