//! The HTTP API of Ebbtide. Until the stores stand, it answers health checks.

use std::io;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;

/// The routes.
pub fn router() -> Router {
    Router::new().route("/healthz", get(|| async { "ok\n" }))
}

/// Serves on `listener` until `stop` is done; what has begun by then is answered.
pub async fn serve(listener: TcpListener, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    axum::serve(listener, router()).with_graceful_shutdown(stop).await
}
