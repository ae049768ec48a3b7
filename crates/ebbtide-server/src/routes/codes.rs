//! `/v1/codes`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome, Redeemed};
use ebbtide::stores::grants::GrantId;
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::grants::{GrantIssued, Lifetimes};
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(issue)).writer(routes!(redeem))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CodeIssue {
    #[schema(min_length = 1, example = "app")]
    client_id: String,
    #[schema(min_length = 1, example = "alice")]
    subject: String,
    #[schema(min_length = 1, max_length = 4096, example = "https://app.example/cb")]
    redirect_uri: String,
    /// Of PKCE, by S256.
    code_challenge: Option<String>,
    dpop_jkt: Option<String>,
    scope: Option<String>,
    /// Kept with the code, sealed; its grant gets it too.
    data: Option<Value>,
    /// 60 by default, 600 at the most.
    #[schema(minimum = 1, maximum = 600)]
    ttl_seconds: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct CodeIssued {
    code: String,
    expires_at: Option<u64>,
}

/// Issues an authorization code
#[utoipa::path(post, path = "/codes", operation_id = "issue_code", tag = "codes",
    request_body = CodeIssue, responses((status = 201, body = CodeIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<CodeIssue>,
) -> Result<(StatusCode, Json<CodeIssued>), Problem> {
    let mut request = CodeRequest::new(body.client_id, body.subject, body.redirect_uri);
    if let Some(challenge) = body.code_challenge {
        request = request.challenge(challenge);
    }
    if let Some(jkt) = body.dpop_jkt {
        request = request.thumbprint(jkt);
    }
    if let Some(scope) = body.scope {
        request = request.scope(scope);
    }
    if let Some(data) = body.data {
        request = request.data(data);
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        request = request.ttl(ttl);
    }
    let issued = app.stores.codes(&caller.scope).issue(request).await?;
    let code = issued.code.expose().to_owned();
    Ok((StatusCode::CREATED, Json(CodeIssued { code, expires_at: millis(issued.expires_at) })))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CodePresented {
    code: String,
    #[schema(example = "app")]
    client_id: String,
    #[schema(example = "https://app.example/cb")]
    redirect_uri: String,
    code_verifier: Option<String>,
    dpop_jkt: Option<String>,
    /// Asks for a grant, issued in the commit that redeems the code.
    grant: Option<Lifetimes>,
}

/// What a code stood for, and the grant that it gave.
#[derive(Serialize, ToSchema)]
pub(super) struct CodeRedeemed {
    subject: String,
    client_id: String,
    scope: Option<String>,
    data: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<GrantIssued>,
}

impl From<Redeemed> for CodeRedeemed {
    fn from(redeemed: Redeemed) -> Self {
        Self {
            grant: redeemed.grant.as_ref().map(GrantIssued::from),
            subject: redeemed.subject,
            client_id: redeemed.client_id,
            scope: redeemed.scope,
            data: redeemed.data.map(Payload::into_inner),
        }
    }
}

/// Redeems a code once
///
/// A second redemption is answered 409, and revokes the grant that the first one gave. A mismatch burns the code.
#[utoipa::path(post, path = "/codes/redeem", operation_id = "redeem_code", tag = "codes",
    request_body = CodePresented,
    responses(
        (status = 200, body = CodeRedeemed),
        (status = 404, description = "unknown: not a code of this scope"),
        (status = 409, description = "reused: what it gave is revoked; `grant_id` names it"),
        (status = 410, description = "expired"),
        (status = 422, description = "mismatch: `field` names what was not as bound"),
    ))]
async fn redeem(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<CodePresented>,
) -> Result<Json<CodeRedeemed>, Problem> {
    let mut presented = Redeem::new(Secret::new(body.code), body.client_id, body.redirect_uri);
    if let Some(verifier) = body.code_verifier {
        presented = presented.verifier(Secret::new(verifier));
    }
    if let Some(jkt) = body.dpop_jkt {
        presented = presented.thumbprint(jkt);
    }
    if let Some(lifetimes) = body.grant {
        presented = presented.grant(lifetimes.terms(&app)?);
    }
    match app.stores.codes(&caller.scope).redeem(&presented).await? {
        RedeemOutcome::Redeemed(code) => Ok(Json((*code).into())),
        RedeemOutcome::Reused { grant_id } => Err(reused(grant_id)),
        RedeemOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        RedeemOutcome::Expired => Err(Problem::expired("the code was not redeemed in its time")),
        RedeemOutcome::Unknown => Err(Problem::not_found("not a code of this scope")),
    }
}

pub(super) fn reused(grant_id: Option<GrantId>) -> Problem {
    let problem = Problem::conflict("reused", "the code was presented before; what it gave is revoked");
    problem.with("grant_id", grant_id.map(|id| id.to_string()))
}
