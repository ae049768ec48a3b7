//! `/v1/audit`

use axum::Json as Answer;
use axum::extract::State;
use ebbtide::Scope;
use serde::Deserialize;
use utoipa_axum::routes;

use crate::answers::{EntryAnswer, Listed};
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, listed, page};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(list))
}

/// Which log.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichLog {
    /// That of this scope; without it, of the request's.
    #[param(example = "tenant:acme")]
    scope: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Reads the audit log of a scope, oldest first
#[utoipa::path(get, path = "/audit", operation_id = "read_audit", tag = "operator", params(WhichLog),
    responses((status = 200, body = Listed<EntryAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<WhichLog>,
) -> Result<Answer<Listed<EntryAnswer>>, Problem> {
    let scope: Scope = which.scope.map_or_else(|| Ok(caller.scope.clone()), |scope| scope.parse())?;
    caller.require(&scope)?;
    let (after, limit) = page(which.limit, which.after.as_deref())?;
    Ok(Answer(listed(&app.stores.audit(&scope).list(after.as_ref(), limit).await?)))
}
