//! `/v1/codes`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use ebbtide::Secret;
use ebbtide::stores::codes::{CodeRequest, Presented, Redeemed, Redemption};
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::payload::Payload;
use serde::Deserialize;
use serde_json::{Value, json};

use super::grants::{Lifetimes, issued};
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator("/codes", post(issue)).writer("/codes/redeem", post(redeem))
}

#[derive(Deserialize)]
struct Issue {
    client_id: String,
    subject: String,
    redirect_uri: String,
    code_challenge: Option<String>,
    dpop_jkt: Option<String>,
    scope: Option<String>,
    data: Option<Value>,
    ttl_seconds: Option<i64>,
}

async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Issue>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    let mut request = CodeRequest::new(body.client_id, body.subject, body.redirect_uri);
    if let Some(challenge) = body.code_challenge {
        request = request.challenge(challenge);
    }
    if let Some(jkt) = body.dpop_jkt {
        request = request.thumbprint(jkt);
    }
    if let Some(scope) = body.scope {
        request = request.scope(scope);
    }
    if let Some(data) = body.data {
        request = request.data(data);
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        request = request.ttl(ttl);
    }
    let issued = app.stores.codes(&caller.scope).issue(request).await?;
    let answer = json!({"code": issued.code.expose(), "expires_at": millis(issued.expires_at)});
    Ok((StatusCode::CREATED, Answer(answer)))
}

#[derive(Deserialize)]
struct Redeem {
    code: String,
    client_id: String,
    redirect_uri: String,
    code_verifier: Option<String>,
    dpop_jkt: Option<String>,
    grant: Option<Lifetimes>,
}

async fn redeem(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Redeem>,
) -> Result<Answer<Value>, Problem> {
    let mut presented = Presented::new(Secret::new(body.code), body.client_id, body.redirect_uri);
    if let Some(verifier) = body.code_verifier {
        presented = presented.verifier(Secret::new(verifier));
    }
    if let Some(jkt) = body.dpop_jkt {
        presented = presented.thumbprint(jkt);
    }
    if let Some(lifetimes) = body.grant {
        presented = presented.grant(lifetimes.terms(&app)?);
    }
    match app.stores.codes(&caller.scope).redeem(&presented).await? {
        Redemption::Redeemed(code) => Ok(Answer(redeemed(*code))),
        Redemption::Reused { grant_id } => Err(reused(grant_id)),
        Redemption::Mismatch(field) => Err(Problem::mismatch(field)),
        Redemption::Expired => Err(Problem::expired("the code was not redeemed in its time")),
        Redemption::Unknown => Err(Problem::not_found("not a code of this scope")),
    }
}

/// What a code stood for, and the grant that it gave.
pub(super) fn redeemed(redeemed: Redeemed) -> Value {
    let mut answer = json!({
        "subject": redeemed.subject,
        "client_id": redeemed.client_id,
        "scope": redeemed.scope,
        "data": redeemed.data.map(Payload::into_inner),
    });
    if let Some(grant) = &redeemed.grant {
        answer["grant"] = issued(grant);
    }
    answer
}

pub(super) fn reused(grant_id: Option<GrantId>) -> Problem {
    let problem = Problem::conflict("reused", "the code was presented before; what it gave is revoked");
    problem.with("grant_id", grant_id.map(|id| id.to_string()))
}
