//! `/v1/why`

use axum::extract::State;
use ebbtide_api::why::{RefusalAnswer, RevokedBy};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    // It looks for the author of a revocation in the audit log.
    Table::new().admin(routes!(why)).walks()
}

/// Tells the cause of a refusal, by the `request_id` of the problem
///
/// Each node keeps its own last refusals in memory: at most 256 for a key, fewer if keys share a ring. Refusals of other
/// scopes, and those that are no longer kept, are a 404. Where a grant was revoked, `revoked_by` tells by whom, from the
/// audit log of the scope, which is read for it.
#[utoipa::path(get, path = "/why/{request_id}", operation_id = "why", tag = "operator",
    params(("request_id" = String, Path)),
    responses((status = 200, body = RefusalAnswer), (status = 404, description = "unknown: not kept on this node")))]
async fn why(
    State(app): State<App>,
    caller: Caller,
    Path(request_id): Path<String>,
) -> Result<Json<RefusalAnswer>, Problem> {
    let unknown = || Problem::not_found("no refusal with that request id is kept on this node");
    let refusal = app.refusals.find(&request_id, &caller.scope).ok_or_else(unknown)?;
    let revoked_by = match (refusal.grant, &refusal.caller) {
        (Some(grant), Some((_, scope))) => app.stores.grants(scope).revocation(grant).await?,
        _ => None,
    };
    let (key_id, scope) = refusal.caller.map(|(id, scope)| (id, scope.to_string())).unzip();
    Ok(Json(RefusalAnswer {
        request_id: refusal.request_id,
        at: refusal.at,
        method: refusal.verb.name().to_owned(),
        route: refusal.route.template().to_owned(),
        status: refusal.status,
        title: refusal.kind.to_owned(),
        cause: refusal.cause.name().to_owned(),
        detail: refusal.detail,
        members: refusal.more,
        key_id,
        scope,
        revoked_by: revoked_by.as_ref().map(RevokedBy::from),
    }))
}
