//! `/v1/subjects`

use axum::extract::State;
use ebbtide_api::subjects::{SubjectOverview, SubjectSignedOut};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().writer(routes!(sign_out)).walks().reader(routes!(overview)).walks()
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SignOut {
    #[schema(min_length = 1, example = "alice")]
    subject: String,
    /// Name that the caller claims to act for; the audit log has it beside the API key.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    /// Reason for the audit log.
    reason: Option<String>,
}

/// Ends everything of a subject
///
/// Grants, access tokens, sessions, outstanding codes and approved device codes: nothing that was issued before the answer
/// works after it.
#[utoipa::path(post, path = "/subjects/sign-out", operation_id = "sign_out", tag = "subjects",
    request_body = SignOut, responses((status = 200, body = SubjectSignedOut)))]
async fn sign_out(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SignOut>,
) -> Result<Json<SubjectSignedOut>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let ended = app.stores.owners(&caller.scope).sign_out(&body.subject, &context).await?;
    Ok(Json(ended.into()))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SubjectNamed {
    #[schema(min_length = 1, example = "alice")]
    subject: String,
}

/// Lists the grants, access tokens, sessions and clients of a subject
///
/// Each has its state, times and the reason of a revocation; up to 1,000 of each kind, without payloads. An access token
/// under a grant has its `grant_id` and the state of the grant.
#[utoipa::path(post, path = "/subjects/overview", operation_id = "subject_overview", tag = "subjects",
    request_body = SubjectNamed, responses((status = 200, body = SubjectOverview)))]
async fn overview(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SubjectNamed>,
) -> Result<Json<SubjectOverview>, Problem> {
    let overview = app.stores.owners(&caller.scope).overview(&body.subject).await?;
    Ok(Json(SubjectOverview::new(body.subject, &overview)))
}
