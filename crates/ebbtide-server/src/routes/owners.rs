//! `/v1/owners`

use axum::Json as Answer;
use axum::extract::State;
use axum::routing::delete;
use ebbtide::stores::owners::Removed;
use serde::Deserialize;
use serde_json::Value;

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Names};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().writer("/owners/{owner}", delete(remove))
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
    let because = caller.because(why.actor, why.reason)?;
    let removed = app.stores.owners(&caller.scope).delete(&owner, &because).await?.finish().await?;
    Ok(Answer(by_kind(&removed)))
}

/// How many records went, by the name of their kind.
pub(super) fn by_kind(removed: &Removed) -> Value {
    let counts = removed.records.iter().map(|(kind, &count)| (kind.name().to_owned(), count.into()));
    Value::Object(counts.collect())
}
