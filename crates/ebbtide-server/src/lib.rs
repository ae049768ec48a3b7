//! The HTTP API of Ebbtide, and its listener for the Redis protocol.
//!
//! A refusal is never 2xx, so that a client which looks only at the status is safe; what is not a success is
//! `application/problem+json` with a stable type.

mod app;
pub mod http;
pub mod local;
pub mod metrics;
pub mod openapi;
pub mod resp;
mod routes;
pub mod upkeep;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;

pub use app::App;
pub use http::cores::Cores;
use http::edge::{EdgeLayer, Front};
use http::problem::Problem;
use http::route::Routes;
use http::table::Table;
pub use http::{Serving, serve, serve_tls};

/// All routes.
pub fn router(app: App) -> Router {
    front(app).router
}

/// All routes.
pub(crate) fn front(app: App) -> Front {
    build(app, routes::open().merge(routes::operator()), routes::v1())
}

/// All routes but those that are for operators alone: metrics, the description and its page.
pub fn public_router(app: App) -> Router {
    public_front(app).router
}

/// All routes but those that are for operators alone.
pub(crate) fn public_front(app: App) -> Front {
    build(app, routes::open(), routes::v1())
}

/// The routes for operators.
pub(crate) fn operator_front(app: App) -> Front {
    build(app, routes::open().merge(routes::operator()), Table::new())
}

fn build(app: App, open: OpenApiRouter<App>, guarded: Table) -> Front {
    let templates: Vec<String> = open.get_openapi().paths.paths.keys().cloned().collect();
    let (guarded, needs) = guarded.under(routes::BASE);
    let routes = Arc::new(Routes::new(needs, templates));
    let edge = EdgeLayer::new(app.clone(), Arc::clone(&routes));
    let router = Router::from(open.merge(guarded))
        .fallback(|| async { Problem::no_such_path() })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .layer(edge)
        .with_state(app.clone());
    Front { app, routes, router }
}
