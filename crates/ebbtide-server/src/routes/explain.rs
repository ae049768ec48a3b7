//! `/v1/explain`

use axum::extract::State;
use ebbtide::Secret;
use ebbtide::ops::explain::{Explain, Question, RecordState};
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::relationships::Edge;
use ebbtide::stores::replays::Proof;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::relationships::RelationshipType;
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::Json;
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::ExplanationAnswer;

pub(super) fn routes() -> Table {
    Table::new().admin(routes!(explain))
}

/// A kind of record, and the names of one; or its secret, for what is known by one.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ExplainQuestion {
    Replays { namespace: String, jti: String, jkt: Option<String> },
    Nonces { audience: String, nonce: String },
    Codes { code: String },
    Grants { grant_id: Option<String>, refresh_token: Option<String> },
    AccessTokens { access_token: String },
    Attributes { owner: String, bucket: String, name: String },
    Approvals { identity: String, resource: String, action: String },
    Relationships { subject: String, relation: String, object: String, relation_type: RelationshipType },
    ApiKeys { id: String },
    Sessions { session_id: String },
    PushedRequests { request_uri: String },
    DeviceCodes { device_code: String },
    Clients { client_id: String },
}

impl ExplainQuestion {
    fn question(self) -> Result<Question, Problem> {
        Ok(match self {
            Self::Replays { namespace, jti, jkt } => {
                let mut proof = Proof::new(namespace, jti);
                proof.jkt = jkt;
                Question::Replay(proof)
            }
            Self::Nonces { audience, nonce } => Question::Nonce { audience, nonce: Secret::new(nonce) },
            Self::Codes { code } => Question::Code(Secret::new(code)),
            Self::Grants { grant_id: Some(id), refresh_token: None } => {
                Question::Grant(id.parse::<GrantId>()?)
            }
            Self::Grants { grant_id: None, refresh_token: Some(token) } => {
                Question::RefreshToken(Secret::new(token))
            }
            Self::Grants { .. } => {
                return Err(Problem::invalid("either grant_id or refresh_token is given"));
            }
            Self::AccessTokens { access_token } => Question::AccessToken(Secret::new(access_token)),
            Self::Attributes { owner, bucket, name } => Question::Attribute { owner, bucket, name },
            Self::Approvals { identity, resource, action } => {
                Question::Approval { identity, resource, action }
            }
            Self::Relationships { subject, relation, object, relation_type } => {
                Question::Relationship(Edge::new(subject, relation, object, relation_type.into()))
            }
            Self::ApiKeys { id } => Question::ApiKey(id.parse()?),
            Self::Sessions { session_id } => Question::Session(Secret::new(session_id)),
            Self::PushedRequests { request_uri } => Question::PushedRequest(Secret::new(request_uri)),
            Self::DeviceCodes { device_code } => Question::DeviceCode(Secret::new(device_code)),
            Self::Clients { client_id } => Question::Client(client_id),
        })
    }
}

/// Says why a record is live, expired, used or revoked, and who extended it
///
/// What became of a record is an answer; that nothing is known of it is a refusal.
#[utoipa::path(post, path = "/explain", operation_id = "explain", tag = "operator",
    request_body = ExplainQuestion,
    responses((status = 200, body = ExplanationAnswer), (status = 404, description = "unknown")))]
async fn explain(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ExplainQuestion>,
) -> Result<Json<ExplanationAnswer>, Problem> {
    let question = body.question()?;
    // The id of a key says where it stands.
    let scope = match &question {
        Question::ApiKey(id) => id.scope().clone(),
        _ => caller.scope.clone(),
    };
    caller.require(&scope)?;
    let explanation = Explain::new(app.stores.clone(), scope.clone()).explain(&question).await?;
    match explanation.state {
        RecordState::Unknown => Err(Problem::not_found(&explanation.why)),
        _ => Ok(Json(ExplanationAnswer::from(&explanation))),
    }
}
