//! The routes, one file for each store.

mod admin;
mod approvals;
mod attributes;
mod clients;
mod codes;
mod device_codes;
mod grants;
mod nonces;
mod owners;
mod pushed_requests;
mod relationships;
mod replays;
mod sessions;
mod tokens;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::app::App;
use crate::problem::Problem;

/// What needs no key.
pub(crate) fn open() -> Router<App> {
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(ready))
}

/// What does.
pub(crate) fn v1() -> Router<App> {
    Router::new()
        .merge(replays::routes())
        .merge(nonces::routes())
        .merge(codes::routes())
        .merge(grants::routes())
        .merge(tokens::routes())
        .merge(sessions::routes())
        .merge(pushed_requests::routes())
        .merge(device_codes::routes())
        .merge(clients::routes())
        .merge(owners::routes())
        .merge(attributes::routes())
        .merge(approvals::routes())
        .merge(relationships::routes())
        .merge(admin::routes())
}

/// Ready is a store that answers.
async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    app.backend.0.clock_mark().await?;
    Ok("ready\n")
}
