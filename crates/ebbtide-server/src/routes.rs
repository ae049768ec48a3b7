//! The routes, one file for each store.

mod admin;
mod approvals;
mod attributes;
mod audit;
mod codes;
mod docs;
mod explain;
mod grants;
mod keys;
mod nonces;
mod relationships;
mod replays;
mod scopes;
mod tokens;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::app::App;
use crate::problem::Problem;
use crate::table::Table;

/// What needs no key.
pub(crate) fn open() -> Router<App> {
    Router::new()
        .merge(docs::routes())
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
}

/// What does.
pub(crate) fn v1() -> Table {
    Table::new()
        .merge(replays::routes())
        .merge(nonces::routes())
        .merge(codes::routes())
        .merge(grants::routes())
        .merge(tokens::routes())
        .merge(attributes::routes())
        .merge(approvals::routes())
        .merge(relationships::routes())
        .merge(keys::routes())
        .merge(scopes::routes())
        .merge(audit::routes())
        .merge(explain::routes())
        .merge(admin::routes())
}

/// Ready is a store that answers.
async fn ready(State(app): State<App>) -> Result<&'static str, Problem> {
    app.backend.0.clock_mark().await?;
    Ok("ready\n")
}
