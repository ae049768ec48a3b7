//! The routes, one file for each store.

mod admin;
mod approvals;
mod attributes;
mod codes;
mod grants;
mod health;
mod nonces;
mod relationships;
mod replays;
mod tokens;

use axum::Router;

use crate::app::App;

/// What needs no key.
pub(crate) fn open() -> Router<App> {
    health::routes()
}

/// What does.
pub(crate) fn v1() -> Router<App> {
    Router::new()
        .merge(replays::routes())
        .merge(nonces::routes())
        .merge(codes::routes())
        .merge(grants::routes())
        .merge(tokens::routes())
        .merge(attributes::routes())
        .merge(approvals::routes())
        .merge(relationships::routes())
        .merge(admin::routes())
}
