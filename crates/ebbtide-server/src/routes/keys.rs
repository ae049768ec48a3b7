//! `/v1/keys`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use ebbtide::stores::api_keys::{KeyId, KeyRequest, Role};
use ebbtide::{Reach, Scope};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Json, Names, PageAsked, next, ttl};
use crate::describe;
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin("/keys", post(create)).admin("/keys", get(list)).admin("/keys/{id}", delete(revoke))
}

#[derive(Deserialize)]
struct Create {
    scope: String,
    role: String,
    name: Option<String>,
    ttl_seconds: Option<i64>,
    rate_limit: Option<u32>,
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Create>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
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
    let created = app.stores.api_keys(&caller.scope).create(&request, &caller.because(None, None)?).await?;
    let mut answer = describe::api_key(&created.about);
    answer["key"] = created.key.expose().into();
    Ok((StatusCode::CREATED, Answer(answer)))
}

#[derive(Deserialize)]
struct Which {
    scope: Option<String>,
}

/// The keys that the caller manages: of its scope and all below it, or of exactly the one that is named.
async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<Which>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let reach = match which.scope {
        Some(scope) => Reach::Exact(scope.parse()?),
        None => Reach::Below(caller.scope.clone()),
    };
    caller.require(reach.scope())?;
    let keys = app.stores.api_keys(&caller.scope);
    let listing = keys.list(&reach, page.after()?.as_ref(), page.limit()?).await?;
    let items: Vec<_> = listing.items.iter().map(describe::api_key).collect();
    Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
}

async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<StatusCode, Problem> {
    let unknown = || Problem::not_found("no such key");
    let id: KeyId = id.parse().map_err(|_| unknown())?;
    caller.require(id.scope())?;
    let revoked = app.stores.api_keys(&caller.scope).revoke(&id, &caller.because(None, None)?).await?;
    app.access.forget(&id);
    revoked.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}
