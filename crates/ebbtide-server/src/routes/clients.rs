//! `/v1/clients`

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::clients::{
    ClientRequest, ClientUpdate, RegisterOutcome, RotateSecretOutcome, UpdateOutcome, VerifyOutcome,
};
use ebbtide_api::answers::{Listed, millis};
use ebbtide_api::clients::{ClientAnswer, ClientDeleted, ClientRegistered, ClientRotated, ClientVerified};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(register))
        .reader(routes!(list))
        .reader(routes!(read))
        .writer(routes!(put))
        .writer(routes!(update))
        .writer(routes!(remove))
        .walks()
        .reader(routes!(verify))
        .writer(routes!(rotate_secret))
}

/// Registers a client
#[utoipa::path(post, path = "/clients", operation_id = "register_client", tag = "clients",
    request_body = ClientRequest,
    responses((status = 201, body = ClientRegistered), (status = 409, description = "conflict: the id is taken")))]
async fn register(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<ClientRequest>,
) -> Result<(StatusCode, Json<ClientRegistered>), Problem> {
    match app.stores.clients(&caller.scope).register(request).await? {
        RegisterOutcome::Registered(registered) => Ok((StatusCode::CREATED, Json((*registered).into()))),
        _ => Err(Problem::conflict("conflict", "another client has that client_id")),
    }
}

/// Reads a client, without its secret
#[utoipa::path(get, path = "/clients/{id}", operation_id = "read_client", tag = "clients",
    params(("id" = String, Path)),
    responses((status = 200, body = ClientAnswer), (status = 404, description = "unknown")))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ClientAnswer>, Problem> {
    let client = app.stores.clients(&caller.scope).find(&id).await?;
    client.map(|client| Json(ClientAnswer::from(&client))).ok_or_else(unknown)
}

/// Query of a listing of clients.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhoseClients {
    #[param(example = "alice")]
    owner: String,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<String>,
}

/// Lists an owner's clients
#[utoipa::path(get, path = "/clients", operation_id = "list_clients", tag = "clients", params(WhoseClients),
    responses((status = 200, body = Listed<ClientAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(whose): Query<WhoseClients>,
) -> Result<Json<Listed<ClientAnswer>>, Problem> {
    let (after, limit) = page(whose.limit, whose.after.as_deref())?;
    Ok(Json(listed(&app.stores.clients(&caller.scope).list(&whose.owner, after.as_ref(), limit).await?)))
}

/// Changes a client
///
/// What is left out stays as it is.
#[utoipa::path(post, path = "/clients/{id}/update", operation_id = "update_client", tag = "clients",
    params(("id" = String, Path)),
    request_body = ClientUpdate,
    responses((status = 200, body = ClientAnswer), (status = 404, description = "unknown")))]
async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Json(update): Json<ClientUpdate>,
) -> Result<Json<ClientAnswer>, Problem> {
    match app.stores.clients(&caller.scope).update(&id, update).await? {
        UpdateOutcome::Updated(client) => Ok(Json(ClientAnswer::from(client.as_ref()))),
        _ => Err(unknown()),
    }
}

/// Changes a client, like `update`
#[utoipa::path(put, path = "/clients/{id}", operation_id = "put_client", tag = "clients",
    params(("id" = String, Path)),
    request_body = ClientUpdate,
    responses((status = 200, body = ClientAnswer), (status = 404, description = "unknown")))]
async fn put(
    app: State<App>,
    caller: Caller,
    id: Path<String>,
    change: Json<ClientUpdate>,
) -> Result<Json<ClientAnswer>, Problem> {
    update(app, caller, id, change).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClientVerify {
    #[schema(value_type = String)]
    client_secret: Secret,
}

/// Checks a client's secret
#[utoipa::path(post, path = "/clients/{id}/verify", operation_id = "verify_client", tag = "clients",
    params(("id" = String, Path)),
    request_body = ClientVerify,
    responses(
        (status = 200, body = ClientVerified),
        (status = 404, description = "unknown"),
        (status = 422, description = "mismatch: not the client's secret"),
    ))]
async fn verify(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<ClientVerify>,
) -> Result<Json<ClientVerified>, Problem> {
    match app.stores.clients(&caller.scope).verify(&id, &body.client_secret).await? {
        VerifyOutcome::Verified(client) => {
            Ok(Json(ClientVerified { verified: true, client: ClientAnswer::from(client.as_ref()) }))
        }
        VerifyOutcome::Mismatch => Err(Problem::mismatch("client_secret")),
        _ => Err(unknown()),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClientRotate {
    /// Time for which the present secret stays valid; 0 by default, which ends all old ones.
    overlap_seconds: Option<u64>,
}

/// Gives a client a new secret; the body is optional
#[utoipa::path(post, path = "/clients/{id}/rotate-secret", operation_id = "rotate_client_secret", tag = "clients",
    params(("id" = String, Path)),
    request_body = Option<ClientRotate>,
    responses(
        (status = 200, body = ClientRotated),
        (status = 404, description = "unknown"),
        (status = 409, description = "conflict: a public client has no secret; or too many old ones are valid yet"),
    ))]
async fn rotate_secret(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Option<Json<ClientRotate>>,
) -> Result<Json<ClientRotated>, Problem> {
    let overlap = body.and_then(|Json(body)| body.overlap_seconds).unwrap_or_default();
    match app.stores.clients(&caller.scope).rotate_secret(&id, Duration::from_secs(overlap)).await? {
        RotateSecretOutcome::Rotated { client_secret, old_until } => {
            app.access.forget_client(&caller.scope, &id);
            let client_secret = client_secret.expose().to_owned();
            Ok(Json(ClientRotated { client_secret, old_expires_at: millis(old_until) }))
        }
        RotateSecretOutcome::Public => Err(Problem::conflict("conflict", "a public client has no secret")),
        RotateSecretOutcome::TooMany => Err(Problem::conflict(
            "conflict",
            "too many old secrets are valid yet; rotate without an overlap",
        )),
        _ => Err(unknown()),
    }
}

/// Actor and reason for the audit log.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ClientDelete {
    /// Actor for the audit log; the API key by default.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Deletes a client, with its grants and tokens
#[utoipa::path(delete, path = "/clients/{id}", operation_id = "delete_client", tag = "clients",
    params(("id" = String, Path), ClientDelete),
    responses((status = 200, body = ClientDeleted), (status = 404, description = "unknown")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(why): Query<ClientDelete>,
) -> Result<Json<ClientDeleted>, Problem> {
    let context = caller.context(why.actor, why.reason)?;
    let deletion = app.stores.clients(&caller.scope).delete(&id, &context).await;
    app.access.forget_client(&caller.scope, &id);
    let removed = deletion?.ok_or_else(unknown)?.finish().await?;
    Ok(Json(ClientDeleted::from(&removed)))
}

fn unknown() -> Problem {
    Problem::not_found("no such client in this scope")
}
