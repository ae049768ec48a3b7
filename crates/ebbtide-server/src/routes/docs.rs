//! `/openapi.json`, and `/docs`: a page to read it, from this server alone

use axum::Router;
use axum::http::header;
use axum::response::{Html, IntoResponse};
use axum::routing::get;

use crate::app::App;
use crate::openapi;

const PAGE: &str = include_str!("docs.html");

/// The page loads nothing but the description, from where it came itself.
const POLICY: &str = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<App> {
    Router::new().route("/openapi.json", get(description)).route("/docs", get(page))
}

async fn description() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::text())
}

async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE))
}
