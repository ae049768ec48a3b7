//! `/v1/pushed-requests`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::pushed_requests::{Push, PushOutcome, TakeOutcome};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(put)).writer(routes!(take))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PushedRequest {
    #[schema(min_length = 1, example = "app")]
    client_id: String,
    /// The parameters, as any JSON value; kept sealed.
    params: Value,
    /// 90 by default.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
    /// One is made where none is given.
    #[schema(min_length = 1)]
    request_uri: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct PushedAnswer {
    request_uri: String,
    expires_at: Option<u64>,
}

/// Keeps a pushed authorization request (RFC 9126)
#[utoipa::path(post, path = "/pushed-requests", operation_id = "push_request", tag = "pushed requests",
    request_body = PushedRequest,
    responses(
        (status = 201, body = PushedAnswer),
        (status = 409, description = "conflict: the request_uri stands for another request"),
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PushedRequest>,
) -> Result<(StatusCode, Json<PushedAnswer>), Problem> {
    let mut push = Push::new(body.client_id, Payload::new(body.params));
    if let Some(uri) = body.request_uri {
        push = push.request_uri(Secret::new(uri));
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        push = push.ttl(ttl);
    }
    match app.stores.pushed_requests(&caller.scope).put(push).await? {
        PushOutcome::Pushed { request_uri, expires_at } => {
            let request_uri = request_uri.expose().to_owned();
            Ok((StatusCode::CREATED, Json(PushedAnswer { request_uri, expires_at: millis(expires_at) })))
        }
        PushOutcome::Conflict => {
            Err(Problem::conflict("conflict", "the request_uri stands for another request"))
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PushedPresented {
    request_uri: String,
    #[schema(example = "app")]
    client_id: String,
}

#[derive(Serialize, ToSchema)]
struct PushedTaken {
    client_id: String,
    params: Value,
}

/// Takes a pushed request once
#[utoipa::path(post, path = "/pushed-requests/take", operation_id = "take_request", tag = "pushed requests",
    request_body = PushedPresented,
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
    Json(body): Json<PushedPresented>,
) -> Result<Json<PushedTaken>, Problem> {
    let requests = app.stores.pushed_requests(&caller.scope);
    match requests.take(&Secret::new(body.request_uri), &body.client_id).await? {
        TakeOutcome::Taken { client_id, params } => {
            Ok(Json(PushedTaken { client_id, params: params.into_inner() }))
        }
        TakeOutcome::Used => Err(Problem::conflict("used", "the request was taken before")),
        TakeOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        TakeOutcome::Expired => Err(Problem::expired("the request was not taken in its time")),
        TakeOutcome::Unknown => Err(Problem::not_found("no such pushed request in this scope")),
    }
}
