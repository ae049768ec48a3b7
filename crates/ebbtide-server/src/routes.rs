//! Routes, one file for each store.

mod access;
mod admin;
mod approvals;
mod attributes;
mod audit;
mod belongings;
mod challenges;
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
mod policies;
mod provider_tokens;
mod pushed_requests;
mod records;
mod relationships;
mod replays;
mod scopes;
mod sessions;
mod subjects;
mod tokens;
mod transfer;
mod why;

use utoipa_axum::router::OpenApiRouter;

pub(crate) use health::Readiness;

use crate::app::App;
use crate::http::table::Table;

/// Routes that need no key.
pub(crate) fn open() -> OpenApiRouter<App> {
    docs::problems().merge(health::routes())
}

/// Routes for operators that need no key.
pub(crate) fn operator() -> OpenApiRouter<App> {
    docs::routes().merge(health::metrics_routes())
}

/// Base path of the routes that need a key.
pub(crate) const BASE: &str = "/v1";

/// Routes that need a key.
pub(crate) fn v1() -> Table {
    Table::new()
        .merge(replays::routes())
        .merge(nonces::routes())
        .merge(codes::routes())
        .merge(grants::routes())
        .merge(tokens::routes())
        .merge(sessions::routes())
        .merge(subjects::routes())
        .merge(pushed_requests::routes())
        .merge(device_codes::routes())
        .merge(challenges::routes())
        .merge(clients::routes())
        .merge(owners::routes())
        .merge(attributes::routes())
        .merge(approvals::routes())
        .merge(relationships::routes())
        .merge(provider_tokens::routes())
        .merge(records::routes())
        .merge(belongings::routes())
        .merge(access::routes())
        .merge(policies::routes())
        .merge(keys::routes())
        .merge(scopes::routes())
        .merge(transfer::routes())
        .merge(audit::routes())
        .merge(explain::routes())
        .merge(why::routes())
        .merge(admin::routes())
}
