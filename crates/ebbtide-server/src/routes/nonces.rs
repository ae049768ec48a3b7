//! `/v1/nonces`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use ebbtide::Secret;
use ebbtide::stores::nonces::NonceAnswer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator("/nonces", post(issue))
        .reader("/nonces/check", post(check))
        .writer("/nonces/accept", post(accept))
}

#[derive(Deserialize)]
struct Issue {
    audience: String,
    ttl_seconds: Option<i64>,
}

async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Issue>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    let issued = app.stores.nonces(&caller.scope).issue(&body.audience, ttl(body.ttl_seconds)?).await?;
    let answer = json!({"nonce": issued.nonce.expose(), "expires_at": millis(issued.expires_at)});
    Ok((StatusCode::CREATED, Answer(answer)))
}

#[derive(Deserialize)]
struct Presented {
    audience: String,
    nonce: String,
}

async fn check(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Presented>,
) -> Result<Answer<Value>, Problem> {
    let nonce = Secret::new(body.nonce);
    answer("valid", app.stores.nonces(&caller.scope).check(&body.audience, &nonce).await?)
}

async fn accept(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Presented>,
) -> Result<Answer<Value>, Problem> {
    let nonce = Secret::new(body.nonce);
    answer("accepted", app.stores.nonces(&caller.scope).accept(&body.audience, &nonce).await?)
}

fn answer(outcome: &str, answer: NonceAnswer) -> Result<Answer<Value>, Problem> {
    match answer {
        NonceAnswer::Accepted { expires_at } => {
            Ok(Answer(json!({"outcome": outcome, "expires_at": millis(expires_at)})))
        }
        NonceAnswer::Used => Err(Problem::conflict("used", "the nonce was accepted before")),
        NonceAnswer::Expired => Err(Problem::expired("the nonce has expired")),
        NonceAnswer::Unknown => Err(Problem::not_found("not a nonce of this scope and audience")),
    }
}
