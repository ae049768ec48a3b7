//! `/v1/device-codes`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use ebbtide::stores::device_codes::{
    Deciding, DeviceRedemption, DeviceRequest, Poll, PresentedDevice, Verdict,
};
use ebbtide::stores::payload::Payload;
use ebbtide::{Clock as _, Secret};
use serde::Deserialize;
use serde_json::{Value, json};

use super::codes::{redeemed, reused};
use super::grants::Lifetimes;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, given, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator("/device-codes", post(start))
        .writer("/device-codes/approve", post(approve))
        .writer("/device-codes/deny", post(deny))
        .writer("/device-codes/poll", post(poll))
        .writer("/device-codes/redeem", post(redeem))
}

#[derive(Deserialize)]
struct Start {
    client_id: String,
    scope: Option<String>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    ttl_seconds: Option<i64>,
    interval_seconds: Option<u64>,
}

async fn start(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Start>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    let mut request = DeviceRequest::new(body.client_id);
    if let Some(scope) = body.scope {
        request = request.scope(scope);
    }
    if let Some(data) = body.data {
        request = request.data(Payload::new(data));
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        request = request.ttl(ttl);
    }
    if let Some(interval) = body.interval_seconds {
        request = request.interval_seconds(interval);
    }
    let started = app.stores.device_codes(&caller.scope).start(request).await?;
    let answer = json!({
        "device_code": started.device_code.expose(),
        "user_code": started.user_code.expose(),
        "interval": started.interval_seconds,
        "expires_at": millis(started.expires_at),
    });
    Ok((StatusCode::CREATED, Answer(answer)))
}

#[derive(Deserialize)]
struct Approve {
    user_code: String,
    subject: String,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    source: Option<String>,
}

async fn approve(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Approve>,
) -> Result<Answer<Value>, Problem> {
    let mut verdict = Verdict::approve(body.subject);
    if let Some(data) = body.data {
        verdict = verdict.data(Payload::new(data));
    }
    decide(&app, &caller, &body.user_code, verdict, body.source, "approved").await
}

#[derive(Deserialize)]
struct Deny {
    user_code: String,
    source: Option<String>,
}

async fn deny(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Deny>,
) -> Result<Answer<Value>, Problem> {
    decide(&app, &caller, &body.user_code, Verdict::deny(), body.source, "denied").await
}

async fn decide(
    app: &App,
    caller: &Caller,
    user_code: &str,
    mut verdict: Verdict,
    source: Option<String>,
    outcome: &str,
) -> Result<Answer<Value>, Problem> {
    if let Some(source) = source {
        verdict = verdict.source(source);
    }
    match app.stores.device_codes(&caller.scope).decide(user_code, verdict).await? {
        Deciding::Decided { client_id, scope } => {
            Ok(Answer(json!({"outcome": outcome, "client_id": client_id, "scope": scope})))
        }
        Deciding::Used => Err(Problem::conflict("used", "the user code was decided on before")),
        Deciding::Expired => Err(Problem::expired("the user code was not decided on in its time")),
        Deciding::Unknown => Err(Problem::not_found("no such user code in this scope")),
        Deciding::TooManyGuesses { retry_at } => {
            let wait = retry_at.since(app.guard.now()).as_millis().div_ceil(1_000);
            let status = StatusCode::TOO_MANY_REQUESTS;
            let problem =
                Problem::new(status, "too_many_guesses", "too many wrong user codes came from there");
            Err(problem.retry_after(u64::try_from(wait).unwrap_or(u64::MAX)))
        }
    }
}

#[derive(Deserialize)]
struct Presented {
    device_code: String,
    client_id: String,
    dpop_jkt: Option<String>,
    grant: Option<Lifetimes>,
}

async fn poll(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Presented>,
) -> Result<Answer<Value>, Problem> {
    let codes = app.stores.device_codes(&caller.scope);
    match codes.poll(&Secret::new(body.device_code), &body.client_id).await? {
        Poll::Approved { subject, scope } => {
            let client_id = body.client_id;
            let answer =
                json!({"outcome": "approved", "subject": subject, "client_id": client_id, "scope": scope});
            Ok(Answer(answer))
        }
        refused => Err(refusal(&refused)),
    }
}

async fn redeem(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Presented>,
) -> Result<Answer<Value>, Problem> {
    let mut presented = PresentedDevice::new(Secret::new(body.device_code), body.client_id);
    if let Some(jkt) = body.dpop_jkt {
        presented = presented.thumbprint(jkt);
    }
    if let Some(lifetimes) = body.grant {
        presented = presented.grant(lifetimes.terms(&app)?);
    }
    match app.stores.device_codes(&caller.scope).redeem(&presented).await? {
        DeviceRedemption::Redeemed(device) => Ok(Answer(redeemed(*device))),
        DeviceRedemption::Reused { grant_id } => Err(reused(grant_id)),
        DeviceRedemption::Refused(refused) => Err(refusal(&refused)),
    }
}

/// The problem of a code that cannot be redeemed, as RFC 8628 §3.5 tells them apart.
fn refusal(poll: &Poll) -> Problem {
    match *poll {
        Poll::Pending { interval_seconds } => {
            let problem = Problem::conflict("pending", "the user has not decided yet");
            problem.with("interval", interval_seconds).retry_after(interval_seconds)
        }
        Poll::SlowDown { interval_seconds } => {
            let status = StatusCode::TOO_MANY_REQUESTS;
            let problem = Problem::new(status, "slow_down", "wait longer from one poll to the next");
            problem.with("interval", interval_seconds).retry_after(interval_seconds)
        }
        Poll::Denied => Problem::new(StatusCode::FORBIDDEN, "denied", "the user has said no"),
        Poll::Used => Problem::conflict("used", "the device code was redeemed before"),
        Poll::Mismatch(field) => Problem::mismatch(field),
        Poll::Expired => Problem::expired("the device code was not redeemed in its time"),
        // An approved code is redeemed, and never refused.
        Poll::Unknown | Poll::Approved { .. } => Problem::not_found("no such device code in this scope"),
    }
}
