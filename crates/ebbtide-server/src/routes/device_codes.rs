//! `/v1/device-codes`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::device_codes::{
    DecideOutcome, Decision, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest, PollOutcome,
};
use ebbtide::stores::shared::payload::Payload;
use ebbtide::{Clock as _, Secret};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::codes::{CodeRedeemed, reused};
use super::grants::Lifetimes;
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, given, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(start))
        .writer(routes!(approve))
        .writer(routes!(deny))
        .writer(routes!(poll))
        .writer(routes!(redeem))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DeviceStart {
    #[schema(min_length = 1, example = "tv")]
    client_id: String,
    scope: Option<String>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
    /// From one poll to the next; 5 by default.
    #[schema(minimum = 1)]
    interval_seconds: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct DeviceStarted {
    device_code: String,
    #[schema(example = "WDJB-MJHT")]
    user_code: String,
    interval: u64,
    expires_at: Option<u64>,
}

/// Begins the authorization of a device (RFC 8628)
#[utoipa::path(post, path = "/device-codes", operation_id = "start_device", tag = "device codes",
    request_body = DeviceStart, responses((status = 201, body = DeviceStarted)))]
async fn start(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DeviceStart>,
) -> Result<(StatusCode, Json<DeviceStarted>), Problem> {
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
    let answer = DeviceStarted {
        device_code: started.device_code.expose().to_owned(),
        user_code: started.user_code.expose().to_owned(),
        interval: started.interval_seconds,
        expires_at: millis(started.expires_at),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DeviceApprove {
    #[schema(example = "WDJB-MJHT")]
    user_code: String,
    #[schema(min_length = 1, example = "alice")]
    subject: String,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    /// Where the user code came from, such as an address: wrong ones are counted by it.
    source: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct DeviceDecided {
    /// `approved` or `denied`.
    #[schema(example = "approved")]
    outcome: &'static str,
    client_id: String,
    scope: Option<String>,
}

/// The user says yes
#[utoipa::path(post, path = "/device-codes/approve", operation_id = "approve_device", tag = "device codes",
    request_body = DeviceApprove,
    responses(
        (status = 200, body = DeviceDecided),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was decided on before"),
        (status = 410, description = "expired"),
    ))]
async fn approve(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DeviceApprove>,
) -> Result<Json<DeviceDecided>, Problem> {
    let mut verdict = Decision::approve(body.subject);
    if let Some(data) = body.data {
        verdict = verdict.data(Payload::new(data));
    }
    decide(&app, &caller, &body.user_code, verdict, body.source, "approved").await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DeviceDeny {
    #[schema(example = "WDJB-MJHT")]
    user_code: String,
    /// Where the user code came from, such as an address: wrong ones are counted by it.
    source: Option<String>,
}

/// The user says no
#[utoipa::path(post, path = "/device-codes/deny", operation_id = "deny_device", tag = "device codes",
    request_body = DeviceDeny,
    responses(
        (status = 200, body = DeviceDecided),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was decided on before"),
        (status = 410, description = "expired"),
    ))]
async fn deny(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DeviceDeny>,
) -> Result<Json<DeviceDecided>, Problem> {
    decide(&app, &caller, &body.user_code, Decision::deny(), body.source, "denied").await
}

async fn decide(
    app: &App,
    caller: &Caller,
    user_code: &str,
    mut verdict: Decision,
    source: Option<String>,
    outcome: &'static str,
) -> Result<Json<DeviceDecided>, Problem> {
    if let Some(source) = source {
        verdict = verdict.source(source);
    }
    match app.stores.device_codes(&caller.scope).decide(user_code, verdict).await? {
        DecideOutcome::Decided { client_id, scope } => Ok(Json(DeviceDecided { outcome, client_id, scope })),
        DecideOutcome::Used => Err(Problem::conflict("used", "the user code was decided on before")),
        DecideOutcome::Expired => Err(Problem::expired("the user code was not decided on in its time")),
        DecideOutcome::Unknown => Err(Problem::not_found("no such user code in this scope")),
        DecideOutcome::TooManyGuesses { retry_at } => {
            let wait = retry_at.since(app.guard.now()).as_millis().div_ceil(1_000);
            let wait = u32::try_from(wait).unwrap_or(u32::MAX);
            Err(Problem::too_many("too_many_guesses", "too many wrong user codes came from there", wait))
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DevicePresented {
    device_code: String,
    #[schema(example = "tv")]
    client_id: String,
    dpop_jkt: Option<String>,
    /// Asks for a grant, where it is redeemed.
    grant: Option<Lifetimes>,
}

#[derive(Serialize, ToSchema)]
struct DeviceApproved {
    #[schema(example = "approved")]
    outcome: &'static str,
    subject: String,
    client_id: String,
    scope: Option<String>,
}

/// Asks whether the user has decided
#[utoipa::path(post, path = "/device-codes/poll", operation_id = "poll_device", tag = "device codes",
    request_body = DevicePresented,
    responses(
        (status = 200, body = DeviceApproved),
        (status = 403, description = "denied: the user has said no; or forbidden, as everywhere"),
        (status = 404, description = "unknown"),
        (status = 409, description = "pending: poll again after `interval` seconds; or used"),
        (status = 410, description = "expired"),
        (status = 422, description = "mismatch: it is another client's"),
        (status = 429, description = "slow_down: the interval is longer now; or limited, as everywhere"),
    ))]
async fn poll(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DevicePresented>,
) -> Result<Json<DeviceApproved>, Problem> {
    let codes = app.stores.device_codes(&caller.scope);
    match codes.poll(&Secret::new(body.device_code), &body.client_id).await? {
        PollOutcome::Approved { subject, scope } => {
            Ok(Json(DeviceApproved { outcome: "approved", subject, client_id: body.client_id, scope }))
        }
        refused => Err(refusal(&refused)),
    }
}

/// Redeems an approved device code once
#[utoipa::path(post, path = "/device-codes/redeem", operation_id = "redeem_device", tag = "device codes",
    request_body = DevicePresented,
    responses(
        (status = 200, body = CodeRedeemed),
        (status = 403, description = "denied: the user has said no; or forbidden, as everywhere"),
        (status = 404, description = "unknown"),
        (status = 409, description = "pending; or reused: what it gave is revoked"),
        (status = 410, description = "expired"),
        (status = 422, description = "mismatch: it is another client's"),
    ))]
async fn redeem(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DevicePresented>,
) -> Result<Json<CodeRedeemed>, Problem> {
    let mut presented = DeviceRedeem::new(Secret::new(body.device_code), body.client_id);
    if let Some(jkt) = body.dpop_jkt {
        presented = presented.thumbprint(jkt);
    }
    if let Some(lifetimes) = body.grant {
        presented = presented.grant(lifetimes.terms(&app)?);
    }
    match app.stores.device_codes(&caller.scope).redeem(&presented).await? {
        DeviceRedeemOutcome::Redeemed(device) => Ok(Json((*device).into())),
        DeviceRedeemOutcome::Reused { grant_id } => Err(reused(grant_id)),
        DeviceRedeemOutcome::Refused(refused) => Err(refusal(&refused)),
    }
}

/// The problem of a code that cannot be redeemed, as RFC 8628 §3.5 tells them apart.
fn refusal(poll: &PollOutcome) -> Problem {
    let seconds = |interval: u64| u32::try_from(interval).unwrap_or(u32::MAX);
    match *poll {
        PollOutcome::Pending { interval_seconds } => {
            let problem = Problem::conflict("pending", "the user has not decided yet");
            problem.with("interval", interval_seconds).retry_after(seconds(interval_seconds))
        }
        PollOutcome::SlowDown { interval_seconds } => {
            let wait = seconds(interval_seconds);
            let problem = Problem::too_many("slow_down", "wait longer from one poll to the next", wait);
            problem.with("interval", interval_seconds)
        }
        PollOutcome::Denied => Problem::new(StatusCode::FORBIDDEN, "denied", "the user has said no"),
        PollOutcome::Used => Problem::conflict("used", "the device code was redeemed before"),
        PollOutcome::Mismatch(field) => Problem::mismatch(field),
        PollOutcome::Expired => Problem::expired("the device code was not redeemed in its time"),
        // An approved code is redeemed, and never refused.
        PollOutcome::Unknown | PollOutcome::Approved { .. } => {
            Problem::not_found("no such device code in this scope")
        }
    }
}
