//! `/v1/owners`

use axum::extract::State;
use axum::routing::delete;
use axum::{Json as Answer, Router};
use ebbtide::stores::owners::Removed;
use serde::Deserialize;
use serde_json::Value;

use super::approvals::because;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Names};
use crate::problem::Problem;

pub(super) fn routes() -> Router<App> {
    Router::new().route("/owners/{owner}", delete(remove))
}

#[derive(Deserialize)]
struct Why {
    actor: Option<String>,
    reason: Option<String>,
}

/// Everything of an owner in the scope, over all stores. After a fault, ask again: it goes on with what is left.
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Names(owner): Names<String>,
    Asked(why): Asked<Why>,
) -> Result<Answer<Value>, Problem> {
    let because = because(&caller.scope, why.actor, why.reason)?;
    let removed = app.stores.owners(&caller.scope).delete(&owner, &because).await?.finish().await?;
    Ok(Answer(by_kind(&removed)))
}

/// How many records went, by the name of their kind.
pub(super) fn by_kind(removed: &Removed) -> Value {
    let counts = removed.records.iter().map(|(kind, &count)| (kind.name().to_owned(), count.into()));
    Value::Object(counts.collect())
}
