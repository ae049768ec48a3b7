//! `/v1/explain`

use axum::extract::State;
use ebbtide::ops::explain::{Explain, ExplainQuestion, RecordState};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::explain::ExplanationAnswer;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(explain)).walks()
}

/// Explains why a record is live, expired, used or revoked, and who extended it
///
/// A record of which nothing is known is a 404.
#[utoipa::path(post, path = "/explain", operation_id = "explain", tag = "operator",
    request_body = ExplainQuestion,
    responses((status = 200, body = ExplanationAnswer), (status = 404, description = "unknown")))]
async fn explain(
    State(app): State<App>,
    caller: Caller,
    Json(question): Json<ExplainQuestion>,
) -> Result<Json<ExplanationAnswer>, Problem> {
    // The id of a key contains its scope.
    let scope = match &question {
        ExplainQuestion::ApiKeys(key) => key.id.scope().clone(),
        _ => caller.scope.clone(),
    };
    caller.require(&scope)?;
    let explanation = Explain::new(app.stores.clone(), scope.clone()).explain(&question).await?;
    match explanation.state {
        RecordState::Unknown => Err(Problem::not_found(&explanation.why)),
        _ => Ok(Json(ExplanationAnswer::from(&explanation))),
    }
}
