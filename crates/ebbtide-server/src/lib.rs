//! The HTTP API of Ebbtide.
//!
//! A refusal is never 2xx, so that a client which looks only at the status is safe; what is not a success is
//! `application/problem+json` with a stable type.

mod answers;
mod app;
mod auth;
mod body;
pub mod describe;
pub mod openapi;
mod problem;
pub mod quota;
mod routes;
mod table;

use std::io;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use tokio::net::TcpListener;

pub use app::App;
use problem::Problem;

/// The largest body that is read: what the largest attribute or payload takes, and some more.
const MOST_BODY_BYTES: usize = 1 << 20;

/// The routes.
pub fn router(app: App) -> Router {
    Router::new()
        .merge(routes::open())
        .nest("/v1", routes::v1().guarded(&app).into())
        .fallback(|| async { Problem::not_found("no such path") })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .with_state(app)
}

/// Serves on `listener` until `stop` is done; what has begun by then is answered.
pub async fn serve(
    listener: TcpListener,
    app: App,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(app)).with_graceful_shutdown(stop).await
}
