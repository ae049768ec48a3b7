//! `/v1/owners`

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Deserialize;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::by_name;

pub(super) fn routes() -> Table {
    Table::new().writer(routes!(remove)).walks()
}

/// Actor and reason of the deletion.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OwnerDelete {
    /// Name that the caller acts for, for the audit log. The id of the key is in the log anyway.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Deletes everything of an owner in the scope, over all stores
///
/// After an error, repeat the request to delete what is left.
#[utoipa::path(delete, path = "/owners/{owner}", operation_id = "delete_owner", tag = "owners",
    params(("owner" = String, Path), OwnerDelete),
    responses((status = 200, description = "deleted records by kind", body = BTreeMap<String, u64>)))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(owner): Path<String>,
    Query(why): Query<OwnerDelete>,
) -> Result<Json<BTreeMap<String, u64>>, Problem> {
    let context = caller.context(why.actor, why.reason)?;
    let deletion = app.stores.owners(&caller.scope).delete(&owner, &context).await?;
    let removed = deletion.finish().await;
    // Also after an error: some of its clients may be gone.
    app.access.forget_clients(&caller.scope);
    Ok(Json(by_name(&removed?.records)))
}
