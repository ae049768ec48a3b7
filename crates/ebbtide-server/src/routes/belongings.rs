//! `/v1/belongings`

use axum::extract::State;
use ebbtide::Reach;
use ebbtide::stores::shared::belongings::Parent;
use ebbtide_api::answers::Listed;
use ebbtide_api::belongings::{BelongingAnswer, ReconcileRequest, ReconciledAnswer};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(list)).walks().admin(routes!(reconcile)).walks()
}

/// Lists every record that would be removed with an owner, a client or a relationship, because it belongs to it
#[utoipa::path(post, path = "/belongings", operation_id = "list_belongings", tag = "belongings",
    request_body = Parent, responses((status = 200, body = Listed<BelongingAnswer>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Json(parent): Json<Parent>,
) -> Result<Json<Listed<BelongingAnswer>>, Problem> {
    let found = app.stores.belongings(&caller.scope).list(&parent).await?;
    Ok(Json(Listed { items: found.iter().map(BelongingAnswer::from).collect(), next: None }))
}

/// Removes records whose client, grant or relationship is gone, and links and index records that lead to nothing
#[utoipa::path(post, path = "/belongings/reconcile", operation_id = "reconcile_belongings", tag = "belongings",
    request_body = Option<ReconcileRequest>, responses((status = 200, body = ReconciledAnswer)))]
async fn reconcile(
    State(app): State<App>,
    caller: Caller,
    body: Result<Option<Json<ReconcileRequest>>, Problem>,
) -> Result<Json<ReconciledAnswer>, Problem> {
    let ReconcileRequest { below } = body?.map(|Json(body)| body).unwrap_or_default();
    let done = if below {
        app.stores.reconcile_all(&Reach::Below(caller.scope.clone())).await?
    } else {
        app.stores.belongings(&caller.scope).reconcile().await?
    };
    Ok(Json(done.into()))
}
