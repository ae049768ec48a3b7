//! `/v1/clients`

use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use ebbtide::Secret;
use ebbtide::stores::clients::{Client, ClientRequest, Registration, SecretRotation, Verification};
use ebbtide::stores::payload::Payload;
use serde::Deserialize;
use serde_json::{Value, json};

use super::owners::by_kind;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Json, Names, PageAsked, given, millis, next, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator("/clients", post(register))
        .reader("/clients", get(list))
        .reader("/clients/{id}", get(read))
        .writer("/clients/{id}", delete(remove))
        .reader("/clients/{id}/verify", post(verify))
        .writer("/clients/{id}/rotate-secret", post(rotate_secret))
}

#[derive(Deserialize)]
struct Register {
    client_id: Option<String>,
    owner: Option<String>,
    name: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
    #[serde(default, deserialize_with = "given")]
    metadata: Option<Value>,
    confidential: Option<bool>,
    ttl_seconds: Option<i64>,
}

async fn register(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Register>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    let mut request = if body.confidential.unwrap_or(true) {
        ClientRequest::confidential()
    } else {
        ClientRequest::public()
    };
    request = request.redirect_uris(body.redirect_uris);
    if let Some(client_id) = body.client_id {
        request = request.client_id(client_id);
    }
    if let Some(owner) = body.owner {
        request = request.owner(owner);
    }
    if let Some(name) = body.name {
        request = request.name(name);
    }
    if let Some(metadata) = body.metadata {
        request = request.metadata(Payload::new(metadata));
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        request = request.ttl(ttl);
    }
    match app.stores.clients(&caller.scope).register(request).await? {
        Registration::Registered(registered) => {
            let mut answer = description(registered.client);
            if let Some(secret) = &registered.client_secret {
                answer["client_secret"] = secret.expose().into();
            }
            Ok((StatusCode::CREATED, Answer(answer)))
        }
        Registration::Taken => Err(Problem::conflict("conflict", "another client has that client_id")),
    }
}

/// Never the secret.
fn description(client: Client) -> Value {
    json!({
        "client_id": client.client_id,
        "owner": client.owner,
        "name": client.name,
        "redirect_uris": client.redirect_uris,
        "metadata": client.metadata.map(Payload::into_inner),
        "confidential": client.confidential,
        "created_at": millis(client.created_at),
        "expires_at": millis(client.expires_at),
    })
}

async fn read(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<Answer<Value>, Problem> {
    let client = app.stores.clients(&caller.scope).find(&id).await?;
    client.map(|client| Answer(description(client))).ok_or_else(unknown)
}

#[derive(Deserialize)]
struct Whose {
    owner: String,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(whose): Asked<Whose>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let clients = app.stores.clients(&caller.scope);
    let listing = clients.list(&whose.owner, page.after()?.as_ref(), page.limit()?).await?;
    let items: Vec<_> = listing.items.into_iter().map(description).collect();
    Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
}

#[derive(Deserialize)]
struct Presented {
    client_secret: String,
}

async fn verify(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
    Json(body): Json<Presented>,
) -> Result<Answer<Value>, Problem> {
    match app.stores.clients(&caller.scope).verify(&id, &Secret::new(body.client_secret)).await? {
        Verification::Verified(client) => {
            let mut answer = description(*client);
            answer["verified"] = true.into();
            Ok(Answer(answer))
        }
        Verification::Mismatch => Err(Problem::mismatch("client_secret")),
        Verification::Unknown => Err(unknown()),
    }
}

#[derive(Deserialize)]
struct Rotate {
    overlap_seconds: Option<u64>,
}

/// The body may be left out: then the old secret is good no longer.
async fn rotate_secret(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
    body: Option<Json<Rotate>>,
) -> Result<Answer<Value>, Problem> {
    let overlap = body.and_then(|Json(body)| body.overlap_seconds).unwrap_or_default();
    match app.stores.clients(&caller.scope).rotate_secret(&id, Duration::from_secs(overlap)).await? {
        SecretRotation::Rotated { client_secret, old_until } => {
            let answer =
                json!({"client_secret": client_secret.expose(), "old_expires_at": millis(old_until)});
            Ok(Answer(answer))
        }
        SecretRotation::Public => Err(Problem::conflict("conflict", "a public client has no secret")),
        SecretRotation::Unknown => Err(unknown()),
    }
}

#[derive(Deserialize)]
struct Why {
    actor: Option<String>,
    reason: Option<String>,
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
    Asked(why): Asked<Why>,
) -> Result<Answer<Value>, Problem> {
    let because = caller.because(why.actor, why.reason)?;
    let deletion = app.stores.clients(&caller.scope).delete(&id, &because).await?;
    let removed = deletion.ok_or_else(unknown)?.finish().await?;
    let deleted = by_kind(&removed);
    Ok(Answer(json!({"revoked": removed.revoked, "deleted": removed.total(), "kinds": deleted})))
}

fn unknown() -> Problem {
    Problem::not_found("no such client in this scope")
}
