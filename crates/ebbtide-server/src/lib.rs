//! The HTTP API of Ebbtide.
//!
//! A refusal is never 2xx, so that a client which looks only at the status is safe; what is not a success is
//! `application/problem+json` with a stable type.

mod app;
pub mod http;
pub mod metrics;
pub mod openapi;
mod routes;
pub mod upkeep;

use axum::Router;

pub use app::App;
use http::edge::EdgeLayer;
use http::problem::Problem;
use http::route::Routes;
pub use http::{serve, serve_tls};

/// The routes.
pub fn router(app: App) -> Router {
    let open = routes::open();
    let templates: Vec<String> = open.get_openapi().paths.paths.keys().cloned().collect();
    let (guarded, needs) = routes::v1().under(routes::BASE);
    let edge = EdgeLayer::new(app.clone(), Routes::new(needs, templates));
    Router::from(open.merge(guarded))
        .fallback(|| async { Problem::no_such_path() })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .layer(edge)
        .with_state(app)
}
