//! The routes, one file for each store.

mod admin;
mod approvals;
mod attributes;
mod audit;
mod clients;
mod codes;
mod device_codes;
mod docs;
mod explain;
mod grants;
mod health;
mod keys;
mod nonces;
mod owners;
mod pushed_requests;
mod relationships;
mod replays;
mod scopes;
mod sessions;
mod tokens;

use utoipa_axum::router::OpenApiRouter;

pub(crate) use health::Readiness;

use crate::app::App;
use crate::http::table::Table;

/// What needs no key.
pub(crate) fn open() -> OpenApiRouter<App> {
    docs::routes().merge(health::routes())
}

/// Under which everything stands that needs one.
pub(crate) const BASE: &str = "/v1";

/// What does.
pub(crate) fn v1() -> Table {
    Table::new()
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
        .merge(keys::routes())
        .merge(scopes::routes())
        .merge(audit::routes())
        .merge(explain::routes())
        .merge(admin::routes())
}
