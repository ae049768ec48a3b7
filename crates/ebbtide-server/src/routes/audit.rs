//! `/v1/audit`

use axum::Json as Answer;
use axum::extract::State;
use axum::routing::get;
use ebbtide::Scope;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, PageAsked, next};
use crate::describe;
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin("/audit", get(list))
}

/// The log of the request's scope, unless another that it covers is named.
#[derive(Deserialize)]
struct Which {
    scope: Option<String>,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<Which>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let scope: Scope = which.scope.map_or_else(|| Ok(caller.scope.clone()), |scope| scope.parse())?;
    caller.require(&scope)?;
    let listing = app.stores.audit(&scope).list(page.after()?.as_ref(), page.limit()?).await?;
    let items: Vec<_> = listing.items.iter().map(describe::entry).collect();
    Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
}
