//! `/v1/keys`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::api_keys::{KeyId, KeyRequest, Role};
use ebbtide::{Reach, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query, listed, page, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::{KeyAnswer, Listed};

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(create)).admin(routes!(list)).admin(routes!(revoke))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyCreate {
    /// Where it is good, with what that covers.
    #[schema(example = "tenant:acme")]
    scope: String,
    /// `reader`, `writer` or `admin`.
    #[schema(example = "writer")]
    role: String,
    /// What it is for.
    #[schema(min_length = 1, max_length = 128)]
    name: Option<String>,
    /// Without it, it is good until it is revoked.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
    /// The most requests in a second, on each node.
    #[schema(minimum = 1, maximum = 1_000_000)]
    rate_limit: Option<u32>,
}

#[derive(Serialize, ToSchema)]
struct KeyCreated {
    /// The key, which is shown this once.
    key: String,
    #[serde(flatten)]
    about: KeyAnswer,
}

/// Makes an API key for a scope that the caller's covers
#[utoipa::path(post, path = "/keys", operation_id = "create_key", tag = "keys",
    request_body = KeyCreate, responses((status = 201, body = KeyCreated)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<KeyCreate>,
) -> Result<(StatusCode, Json<KeyCreated>), Problem> {
    let scope: Scope = body.scope.parse()?;
    caller.require(&scope)?;
    let mut request = KeyRequest::new(scope, body.role.parse::<Role>()?);
    if let Some(name) = body.name {
        request = request.name(name);
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        request = request.ttl(ttl);
    }
    if let Some(per_second) = body.rate_limit {
        request = request.rate_limit(per_second);
    }
    let created = app.stores.api_keys(&caller.scope).create(&request, &caller.context(None, None)?).await?;
    let key = created.key.expose().to_owned();
    Ok((StatusCode::CREATED, Json(KeyCreated { key, about: KeyAnswer::from(&created.about) })))
}

/// Whose keys.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichKeys {
    /// Exactly this scope; without it, the request's and all below it.
    #[param(example = "tenant:acme")]
    scope: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Lists the keys that the caller manages, never the keys themselves
#[utoipa::path(get, path = "/keys", operation_id = "list_keys", tag = "keys", params(WhichKeys),
    responses((status = 200, body = Listed<KeyAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(which): Query<WhichKeys>,
) -> Result<Json<Listed<KeyAnswer>>, Problem> {
    let reach = match which.scope {
        Some(scope) => Reach::Exact(scope.parse()?),
        None => Reach::Below(caller.scope.clone()),
    };
    caller.require(reach.scope())?;
    let (after, limit) = page(which.limit, which.after.as_deref())?;
    let keys = app.stores.api_keys(&caller.scope);
    Ok(Json(listed(&keys.list(&reach, after.as_ref(), limit).await?)))
}

/// Takes a key back, and tells the audit log
#[utoipa::path(delete, path = "/keys/{id}", operation_id = "revoke_key", tag = "keys",
    params(("id" = String, Path)),
    responses((status = 204, description = "it is refused from now on"), (status = 404, description = "unknown")))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let unknown = || Problem::not_found("no such key");
    let id: KeyId = id.parse().map_err(|_| unknown())?;
    caller.require(id.scope())?;
    let revoked = app.stores.api_keys(&caller.scope).revoke(&id, &caller.context(None, None)?).await?;
    app.access.forget(&id);
    revoked.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}
