//! `/v1/pushed-requests`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use ebbtide::Secret;
use ebbtide::stores::payload::Payload;
use ebbtide::stores::pushed_requests::{Push, Pushing, Take};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator("/pushed-requests", post(put)).writer("/pushed-requests/take", post(take))
}

#[derive(Deserialize)]
struct Pushed {
    client_id: String,
    params: Value,
    ttl_seconds: Option<i64>,
    request_uri: Option<String>,
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Pushed>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    let mut push = Push::new(body.client_id, Payload::new(body.params));
    if let Some(uri) = body.request_uri {
        push = push.request_uri(Secret::new(uri));
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        push = push.ttl(ttl);
    }
    match app.stores.pushed_requests(&caller.scope).put(push).await? {
        Pushing::Pushed { request_uri, expires_at } => {
            let answer = json!({"request_uri": request_uri.expose(), "expires_at": millis(expires_at)});
            Ok((StatusCode::CREATED, Answer(answer)))
        }
        Pushing::Conflict => Err(Problem::conflict("conflict", "the request_uri stands for another request")),
    }
}

#[derive(Deserialize)]
struct Presented {
    request_uri: String,
    client_id: String,
}

async fn take(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Presented>,
) -> Result<Answer<Value>, Problem> {
    let requests = app.stores.pushed_requests(&caller.scope);
    match requests.take(&Secret::new(body.request_uri), &body.client_id).await? {
        Take::Taken { client_id, params } => {
            Ok(Answer(json!({"client_id": client_id, "params": params.into_inner()})))
        }
        Take::Used => Err(Problem::conflict("used", "the request was taken before")),
        Take::Mismatch(field) => Err(Problem::mismatch(field)),
        Take::Expired => Err(Problem::expired("the request was not taken in its time")),
        Take::Unknown => Err(Problem::not_found("no such pushed request in this scope")),
    }
}
