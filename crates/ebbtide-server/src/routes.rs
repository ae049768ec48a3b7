//! The routes, one file for each store.

mod admin;
mod approvals;
mod attributes;
mod audit;
mod codes;
mod docs;
mod explain;
mod grants;
mod health;
mod keys;
mod nonces;
mod relationships;
mod replays;
mod scopes;
mod tokens;

use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::table::Table;

/// What needs no key.
pub(crate) fn open() -> OpenApiRouter<App> {
    docs::routes().merge(health::routes())
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
