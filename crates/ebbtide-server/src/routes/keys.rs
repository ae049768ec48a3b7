//! `/v1/keys`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Reach;
use ebbtide::stores::api_keys::{KeyId, KeyRequest};
use ebbtide_api::answers::Listed;
use ebbtide_api::keys::{KeyAnswer, KeyCreated};
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(create)).admin(routes!(list)).admin(routes!(revoke))
}

/// Author and reason of a change, for the audit log.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeyChange {
    /// Name that the caller acts for. The id of the key that was authenticated is in the log anyway.
    on_behalf_of: Option<String>,
    reason: Option<String>,
}

/// Creates an API key for a scope that the caller's scope covers
#[utoipa::path(post, path = "/keys", operation_id = "create_key", tag = "keys", params(KeyChange),
    request_body = KeyRequest, responses((status = 201, body = KeyCreated)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Query(change): Query<KeyChange>,
    Json(request): Json<KeyRequest>,
) -> Result<(StatusCode, Json<KeyCreated>), Problem> {
    caller.require(&request.scope)?;
    let context = caller.context(change.on_behalf_of, change.reason)?;
    let created = app.stores.api_keys(&caller.scope).create(&request, &context).await?;
    Ok((StatusCode::CREATED, Json(created.into())))
}

/// Query of a listing of keys.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichKeys {
    /// Exactly this scope; by default, the scope of the request and all below it.
    #[param(example = "tenant:acme")]
    scope: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Lists the keys that the caller manages, without their secrets
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

/// Revokes a key, and writes to the audit log
#[utoipa::path(delete, path = "/keys/{id}", operation_id = "revoke_key", tag = "keys",
    params(("id" = String, Path), KeyChange),
    responses((status = 204, description = "revoked"), (status = 404, description = "unknown")))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(change): Query<KeyChange>,
) -> Result<StatusCode, Problem> {
    let unknown = || Problem::not_found("no such key");
    let id: KeyId = id.parse().map_err(|_| unknown())?;
    caller.require(id.scope())?;
    let context = caller.context(change.on_behalf_of, change.reason)?;
    let revoked = app.stores.api_keys(&caller.scope).revoke(&id, &context).await;
    // Also after an error: the key itself is revoked before those that it has created.
    app.access.forget(&id);
    revoked?.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}
