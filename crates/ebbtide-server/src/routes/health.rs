//! `/healthz`, `/readyz`, `/metrics`

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use ebbtide::ops::sweeper::{self, SILENCE};
use ebbtide::timekeeping::ClockState;
use ebbtide::{Key, Kind, Scope, Stopwatch};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::timeout;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::metrics::scrape;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(ready))
}

pub(super) fn metrics_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Liveness of the process
#[utoipa::path(get, path = "/healthz", operation_id = "health", tag = "open",
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn health() -> &'static str {
    "ok\n"
}

#[derive(Serialize, ToSchema)]
struct Ready {
    #[schema(example = "ready")]
    status: &'static str,
    /// Problems that an operator should fix.
    warnings: Vec<String>,
    keyring: ReadyKeyring,
}

/// Keyring of this node.
#[derive(Serialize, ToSchema)]
struct ReadyKeyring {
    /// Id of the key that new tokens are derived with.
    #[schema(example = "1f2e3d4c")]
    active: String,
    /// Ids of all keys.
    keys: Vec<String>,
}

/// Timeout of the engine's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum age of the engine's answer.
const AGE: Duration = Duration::from_secs(1);

/// Readiness: the store answers, and its time is known
///
/// The body lists problems that an operator should fix.
#[utoipa::path(get, path = "/readyz", operation_id = "ready", tag = "open",
    responses((status = 200, body = Ready), (status = 503, description = "unavailable: not ready")))]
async fn ready(State(app): State<App>) -> Result<Json<Ready>, Problem> {
    if app.edge.draining.load(Ordering::Relaxed) {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "shutting down"));
    }
    if let Err(error) = app.now() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.message()));
    }
    let mut last = app.readiness.0.lock().await;
    let answer = match last.as_ref().filter(|(asked, _)| asked.elapsed() < AGE) {
        Some((_, answer)) => answer.clone(),
        None => last.insert((Stopwatch::start(), ask(&app).await)).1.clone(),
    };
    let ring = app.stores.keyring();
    let keys = ring.keys().iter().map(|key| key.id.to_string()).collect();
    let keyring = ReadyKeyring { active: ring.active().to_string(), keys };
    answer.map(|warnings| Json(Ready { status: "ready", warnings, keyring }))
}

/// Last answer of the engine. Readiness needs no key, so one request at a time asks the engine, and a recent answer
/// is reused.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<(Stopwatch, Warnings)>>);

/// Warnings for an operator, or the failure.
type Warnings = Result<Vec<String>, Problem>;

async fn ask(app: &App) -> Warnings {
    let late = |_| {
        let detail = "the engine did not answer in time";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    };
    Ok(timeout(PATIENCE, warnings(app)).await.map_err(late)??)
}

/// Reads a record that does not exist, and collects the warnings.
async fn warnings(app: &App) -> ebbtide::Result<Vec<String>> {
    let key = Key::new(Kind::System, &Scope::Global, &["ready".into()], &[])?;
    let now = app.now()?;
    // The record never exists, so the clock is not asked.
    app.timed().get(&key, now).await?;
    let mut warnings = sweeper::warnings(app.backend.0.as_ref(), now.latest(), SILENCE).await?;
    let clock = app.time().status();
    if clock.state != ClockState::Normal {
        warnings.push(clock.sentence());
    }
    Ok(warnings)
}

/// Metrics in Prometheus format
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "open",
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], scrape(&app).await)
}
