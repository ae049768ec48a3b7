//! `/healthz`, `/readyz`, `/metrics`

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json as Answer, Router};
use ebbtide::sweeper::{self, SILENCE};
use ebbtide::{Clock as _, Key, Kind, Scope};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::app::App;
use crate::metrics::scrape;
use crate::problem::Problem;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// How long an engine may take to answer before it counts as one that does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ready is a store that answers, on a node whose clock is right. What an operator should mend stands in the body.
async fn ready(State(app): State<App>) -> Result<Answer<Value>, Problem> {
    if let Err(error) = app.edge.gate.check() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", error.message()));
    }
    let warnings = timeout(PATIENCE, warnings(&app)).await.map_err(|_| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the engine takes too long to answer")
    })??;
    Ok(Answer(json!({"status": "ready", "warnings": warnings})))
}

/// Asks the engine for a record that nobody has, and for what is not as it should be.
async fn warnings(app: &App) -> ebbtide::Result<Vec<String>> {
    let key = Key::new(Kind::System, &Scope::Global, &["ready".into()], &[])?;
    let now = app.guard.now();
    app.backend.0.get(&key, now).await?;
    let mut warnings = sweeper::warnings(app.backend.0.as_ref(), now, SILENCE).await?;
    warnings.extend(app.guard.leap().await?.map(|leap| leap.to_string()));
    Ok(warnings)
}

async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], scrape(&app).await)
}
