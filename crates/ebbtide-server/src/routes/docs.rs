//! `/openapi.json`, and `/docs`: a page that displays it, served without external resources

use axum::http::header;
use axum::response::{Html, IntoResponse, Redirect};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::body::Path;
use crate::http::catalogue;
use crate::http::problem::Problem;
use crate::openapi;

const PAGE: &str = include_str!("docs.html");

/// Content security policy: the page loads nothing but the description, from its own origin.
const POLICY: &str = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(description)).routes(routes!(page)).route("/", get(root))
}

pub(super) fn problems() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(problem))
}

/// OpenAPI description of this API
#[utoipa::path(get, path = "/openapi.json", operation_id = "description", tag = "open",
    responses((status = 200, body = Value)))]
async fn description() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::text())
}

/// API documentation page
#[utoipa::path(get, path = "/docs", operation_id = "docs", tag = "open",
    responses((status = 200, body = String, content_type = "text/html")))]
async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE))
}

/// Leads to the documentation page. It is no call, and not in the description.
async fn root() -> Redirect {
    Redirect::temporary("/docs")
}

/// Page about a type of problem: its cause and its remedy
#[utoipa::path(get, path = "/problems/{name}", operation_id = "problem", tag = "open",
    params(("name" = String, Path, example = "replay")),
    responses(
        (status = 200, description = "the page", body = String, content_type = "text/plain"),
        (status = 404, description = "not-found: no such type"),
    ))]
async fn problem(Path(name): Path<String>) -> Result<impl IntoResponse, Problem> {
    let entry = catalogue::find(&name).ok_or_else(Problem::no_such_path)?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], entry.page()))
}
