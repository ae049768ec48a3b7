//! `/v1/device-codes`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Timestamp;
use ebbtide::stores::device_codes::{
    Approve, DecideOutcome, Decision, Deny, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest, Inspect,
    InspectOutcome, PollOutcome,
};
use ebbtide_api::answers::millis;
use ebbtide_api::codes::CodeRedeemed;
use ebbtide_api::device_codes::{DeviceApproved, DeviceDecided, DeviceInspected, DeviceStarted};
use ebbtide_api::tokens::Audience;
use utoipa_axum::routes;

use super::codes::reused;
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(start))
        .writer(routes!(inspect))
        .writer(routes!(approve))
        .writer(routes!(deny))
        .writer(routes!(poll))
        .writer(routes!(redeem))
}

/// Starts the authorization of a device (RFC 8628)
#[utoipa::path(post, path = "/device-codes", operation_id = "start_device", tag = "device codes",
    request_body = DeviceRequest, responses((status = 201, body = DeviceStarted)))]
async fn start(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<DeviceRequest>,
) -> Result<(StatusCode, Json<DeviceStarted>), Problem> {
    let started = app.stores.device_codes(&caller.scope).start(request).await?;
    Ok((StatusCode::CREATED, Json(started.into())))
}

/// Reads what a user code asks for, for the page on which the user decides
///
/// A wrong code counts as a guess of its source.
#[utoipa::path(post, path = "/device-codes/inspect", operation_id = "inspect_device", tag = "device codes",
    request_body = Inspect,
    responses(
        (status = 200, body = DeviceInspected),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was decided on before"),
        (status = 410, description = "expired"),
    ))]
async fn inspect(
    State(app): State<App>,
    caller: Caller,
    Json(inspect): Json<Inspect>,
) -> Result<Json<DeviceInspected>, Problem> {
    match app.stores.device_codes(&caller.scope).inspect(&inspect).await? {
        InspectOutcome::Pending { client_id, scope, resource, expires_at } => Ok(Json(DeviceInspected {
            client_id,
            scope,
            aud: resource.as_ref().map(Audience::from),
            expires_at: millis(expires_at),
        })),
        InspectOutcome::Used => Err(Problem::conflict("used", "the user code was decided on before")),
        InspectOutcome::Expired => Err(Problem::expired("the user code was not decided on in its time")),
        InspectOutcome::TooManyGuesses { retry_at } => Err(too_many_guesses(&app, retry_at)?),
        _ => Err(Problem::not_found("no such user code in this scope")),
    }
}

/// Approves a device, for the user
#[utoipa::path(post, path = "/device-codes/approve", operation_id = "approve_device", tag = "device codes",
    request_body = Approve,
    responses(
        (status = 200, body = DeviceDecided),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was decided on before"),
        (status = 410, description = "expired"),
    ))]
async fn approve(
    State(app): State<App>,
    caller: Caller,
    Json(approve): Json<Approve>,
) -> Result<Json<DeviceDecided>, Problem> {
    decide(&app, &caller, approve.into(), "approved").await
}

/// Denies a device, for the user
#[utoipa::path(post, path = "/device-codes/deny", operation_id = "deny_device", tag = "device codes",
    request_body = Deny,
    responses(
        (status = 200, body = DeviceDecided),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was decided on before"),
        (status = 410, description = "expired"),
    ))]
async fn deny(
    State(app): State<App>,
    caller: Caller,
    Json(deny): Json<Deny>,
) -> Result<Json<DeviceDecided>, Problem> {
    decide(&app, &caller, deny.into(), "denied").await
}

async fn decide(
    app: &App,
    caller: &Caller,
    decision: Decision,
    outcome: &str,
) -> Result<Json<DeviceDecided>, Problem> {
    match app.stores.device_codes(&caller.scope).decide(decision).await? {
        DecideOutcome::Decided { client_id, scope } => {
            Ok(Json(DeviceDecided { outcome: outcome.to_owned(), client_id, scope }))
        }
        DecideOutcome::Used => Err(Problem::conflict("used", "the user code was decided on before")),
        DecideOutcome::Expired => Err(Problem::expired("the user code was not decided on in its time")),
        DecideOutcome::TooManyGuesses { retry_at } => Err(too_many_guesses(app, retry_at)?),
        _ => Err(Problem::not_found("no such user code in this scope")),
    }
}

fn too_many_guesses(app: &App, retry_at: Timestamp) -> Result<Problem, Problem> {
    let wait = retry_at.since(app.now()?.latest()).as_millis().div_ceil(1_000);
    let wait = u32::try_from(wait).unwrap_or(u32::MAX);
    Ok(Problem::too_many("too_many_guesses", "too many wrong user codes came from there", wait))
}

/// Polls for the decision of the user
#[utoipa::path(post, path = "/device-codes/poll", operation_id = "poll_device", tag = "device codes",
    request_body = DeviceRedeem,
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
    Json(presented): Json<DeviceRedeem>,
) -> Result<Json<DeviceApproved>, Problem> {
    match app.stores.device_codes(&caller.scope).poll(&presented).await? {
        PollOutcome::Approved { subject, scope } => {
            let client_id = presented.client_id;
            Ok(Json(DeviceApproved { outcome: "approved".to_owned(), subject, client_id, scope }))
        }
        refused => Err(refusal(&refused)),
    }
}

/// Redeems an approved device code once
#[utoipa::path(post, path = "/device-codes/redeem", operation_id = "redeem_device", tag = "device codes",
    request_body = DeviceRedeem,
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
    Json(presented): Json<DeviceRedeem>,
) -> Result<Json<CodeRedeemed>, Problem> {
    match app.stores.device_codes(&caller.scope).redeem(presented).await? {
        DeviceRedeemOutcome::Redeemed(device) => Ok(Json((*device).into())),
        DeviceRedeemOutcome::Reused { grant_id } => Err(reused(grant_id)),
        DeviceRedeemOutcome::Refused(refused) => Err(refusal(&refused)),
        _ => Err(Problem::not_found("no such device code in this scope")),
    }
}

/// Problem of a code that cannot be redeemed (RFC 8628 §3.5).
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
        _ => Problem::not_found("no such device code in this scope"),
    }
}
