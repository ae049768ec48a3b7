//! `/v1/access-tokens`, `/v1/introspect` (RFC 7662), `/v1/revoke` (RFC 7009)

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::access_tokens::{AccessRequest, Active, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::grants::{Grant, GrantId, GrantState};
use ebbtide::stores::shared::payload::Payload;
use ebbtide::{Secret, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::grants::revoked;
use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Form, Json, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new().creator(routes!(issue)).reader(routes!(introspect)).writer(routes!(revoke))
}

/// Under a grant, or alone: then with a subject and a client.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AccessIssue {
    grant_id: Option<String>,
    #[schema(example = "alice")]
    subject: Option<String>,
    #[schema(example = "app")]
    client_id: Option<String>,
    scope: Option<String>,
    dpop_jkt: Option<String>,
    data: Option<Value>,
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
}

impl AccessIssue {
    fn request(self) -> Result<AccessRequest, Problem> {
        let mut request = match (self.grant_id, self.subject, self.client_id) {
            (Some(id), subject, client_id) => {
                let mut request = AccessRequest::under(id.parse::<GrantId>()?);
                if let Some(subject) = subject {
                    request = request.subject(subject);
                }
                if let Some(client_id) = client_id {
                    request = request.client_id(client_id);
                }
                request
            }
            (None, Some(subject), Some(client_id)) => AccessRequest::alone(subject, client_id),
            _ => return Err(Problem::invalid("without a grant_id, subject and client_id are given")),
        };
        if let Some(scope) = self.scope {
            request = request.scope(scope);
        }
        if let Some(jkt) = self.dpop_jkt {
            request = request.thumbprint(jkt);
        }
        if let Some(data) = self.data {
            request = request.data(data);
        }
        if let Some(ttl) = ttl(self.ttl_seconds)? {
            request = request.ttl(ttl);
        }
        Ok(request)
    }
}

#[derive(Serialize, ToSchema)]
struct AccessIssued {
    access_token: String,
    expires_at: Option<u64>,
}

/// Issues an access token
#[utoipa::path(post, path = "/access-tokens", operation_id = "issue_access_token", tag = "tokens",
    request_body = AccessIssue,
    responses(
        (status = 201, body = AccessIssued),
        (status = 404, description = "unknown: no such grant in this scope"),
        (status = 410, description = "expired: the grant has ended, or was revoked"),
        (status = 422, description = "mismatch: `field` contradicts the grant"),
    ))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<AccessIssue>,
) -> Result<(StatusCode, Json<AccessIssued>), Problem> {
    match app.stores.access_tokens(&caller.scope).issue(body.request()?).await? {
        IssueOutcome::Issued(issued) => {
            let access_token = issued.access_token.expose().to_owned();
            let answer = AccessIssued { access_token, expires_at: millis(issued.expires_at) };
            Ok((StatusCode::CREATED, Json(answer)))
        }
        IssueOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        IssueOutcome::Revoked { why, .. } => Err(revoked(why)),
        IssueOutcome::Expired => Err(Problem::expired("the grant has ended")),
        IssueOutcome::Unknown => Err(Problem::not_found("no such grant in this scope")),
    }
}

/// A token of either kind. Members that are not listed are ignored, as the RFCs want it.
#[derive(Deserialize, ToSchema)]
struct Token {
    token: String,
    /// Revokes the token only if it is this client's.
    client_id: Option<String>,
}

/// The confirmation of RFC 9449 §6.
#[derive(Serialize, ToSchema)]
struct Confirmation {
    jkt: String,
}

/// The members of RFC 7662 §2.2, with its times in seconds. What is not said is left out.
#[derive(Default, Serialize, ToSchema)]
struct IntrospectionAnswer {
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cnf: Option<Confirmation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<u64>,
}

fn seconds(time: Timestamp) -> Option<u64> {
    millis(time).map(|millis| millis / 1_000)
}

fn confirmation(thumbprint: Option<String>) -> Option<Confirmation> {
    thumbprint.map(|jkt| Confirmation { jkt })
}

impl From<Active> for IntrospectionAnswer {
    fn from(active: Active) -> Self {
        Self {
            active: true,
            token_type: Some(if active.thumbprint.is_some() { "DPoP" } else { "Bearer" }),
            sub: Some(active.subject),
            client_id: Some(active.client_id),
            scope: active.scope,
            cnf: confirmation(active.thumbprint),
            data: active.data.map(Payload::into_inner),
            grant_id: active.grant_id.map(|id| id.to_string()),
            iat: seconds(active.issued_at),
            exp: seconds(active.expires_at),
        }
    }
}

impl From<Grant> for IntrospectionAnswer {
    fn from(grant: Grant) -> Self {
        Self {
            active: true,
            token_type: None,
            sub: Some(grant.subject),
            client_id: Some(grant.client_id),
            scope: grant.scope,
            cnf: confirmation(grant.thumbprint),
            data: None,
            grant_id: Some(grant.id.to_string()),
            iat: seconds(grant.created_at),
            exp: seconds(grant.expires_at),
        }
    }
}

/// What a token stands for, if it is active (RFC 7662)
#[utoipa::path(post, path = "/introspect", operation_id = "introspect", tag = "tokens",
    request_body(content = Token, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "`active` says whether it is good", body = IntrospectionAnswer)))]
async fn introspect(
    State(app): State<App>,
    caller: Caller,
    Form(body): Form<Token>,
) -> Result<Json<IntrospectionAnswer>, Problem> {
    let token = Secret::new(body.token);
    if let IntrospectOutcome::Active(active) =
        app.stores.access_tokens(&caller.scope).introspect(&token).await?
    {
        return Ok(Json((*active).into()));
    }
    // RFC 7662 leaves it to the server which kinds of token it looks at: refresh tokens too.
    let grant = app.stores.grants(&caller.scope).find(&token).await?;
    let grant = grant.filter(|grant| grant.state == GrantState::Active);
    Ok(Json(grant.map(IntrospectionAnswer::from).unwrap_or_default()))
}

/// Revokes a token, a refresh token with its family (RFC 7009)
///
/// An unknown token is answered like one that was revoked (§2.2). What was revoked is in the audit log.
#[utoipa::path(post, path = "/revoke", operation_id = "revoke", tag = "tokens",
    request_body(content = Token, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "it is good no more")))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Form(body): Form<Token>,
) -> Result<StatusCode, Problem> {
    let token = Secret::new(body.token);
    let context = caller.context(None, None)?;
    app.stores.revoke_token_audited(&caller.scope, &token, body.client_id.as_deref(), &context).await?;
    Ok(StatusCode::OK)
}
