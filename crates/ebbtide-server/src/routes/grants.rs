//! `/v1/grants`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::grants::{
    Grant, GrantId, GrantRequest, GrantState, GrantTtls, Holder, IssuedGrant, RotateOutcome, Rotated, Why,
};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, millis, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::Revoked;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(issue))
        .writer(routes!(rotate))
        .writer(routes!(revoke))
        .reader(routes!(read))
        .writer(routes!(remove))
}

/// How long a grant lives.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lifetimes {
    /// `oauth`, `spa`, `mcp`, or one that was configured.
    #[schema(example = "spa")]
    profile: Option<String>,
    #[schema(minimum = 1)]
    idle_ttl_seconds: Option<i64>,
    #[schema(minimum = 1)]
    max_ttl_seconds: Option<i64>,
}

impl Lifetimes {
    pub(super) fn terms(&self, app: &App) -> Result<GrantTtls, Problem> {
        let mut terms = GrantTtls::default();
        if let Some(profile) = &self.profile {
            terms = terms.profile(app.stores.profile_named(profile)?);
        }
        if let Some(idle) = ttl(self.idle_ttl_seconds)? {
            terms = terms.idle(idle);
        }
        if let Some(max) = ttl(self.max_ttl_seconds)? {
            terms = terms.max(max);
        }
        Ok(terms)
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrantIssue {
    #[schema(min_length = 1, example = "alice")]
    subject: String,
    #[schema(min_length = 1, example = "app")]
    client_id: String,
    scope: Option<String>,
    /// Kept with the grant, sealed.
    data: Option<Value>,
    dpop_jkt: Option<String>,
    /// `oauth`, `spa`, `mcp`, or one that was configured.
    #[schema(example = "spa")]
    profile: Option<String>,
    #[schema(minimum = 1)]
    idle_ttl_seconds: Option<i64>,
    #[schema(minimum = 1)]
    max_ttl_seconds: Option<i64>,
}

/// A grant and its first refresh token.
#[derive(Serialize, ToSchema)]
pub(super) struct GrantIssued {
    grant_id: String,
    refresh_token: String,
    /// When it ends unless it is rotated before.
    expires_at: Option<u64>,
    /// When it ends, however often it is rotated.
    ends_at: Option<u64>,
}

impl From<&IssuedGrant> for GrantIssued {
    fn from(grant: &IssuedGrant) -> Self {
        Self {
            grant_id: grant.grant_id.to_string(),
            refresh_token: grant.refresh_token.expose().to_owned(),
            expires_at: millis(grant.expires_at),
            ends_at: millis(grant.ends_at),
        }
    }
}

/// Issues a grant: a family of refresh tokens
#[utoipa::path(post, path = "/grants", operation_id = "issue_grant", tag = "grants",
    request_body = GrantIssue, responses((status = 201, body = GrantIssued)))]
async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<GrantIssue>,
) -> Result<(StatusCode, Json<GrantIssued>), Problem> {
    let GrantIssue { profile, idle_ttl_seconds, max_ttl_seconds, .. } = &body;
    let lifetimes = Lifetimes {
        profile: profile.clone(),
        idle_ttl_seconds: *idle_ttl_seconds,
        max_ttl_seconds: *max_ttl_seconds,
    };
    let mut request = GrantRequest::new(body.subject, body.client_id).terms(lifetimes.terms(&app)?);
    if let Some(scope) = body.scope {
        request = request.scope(scope);
    }
    if let Some(data) = body.data {
        request = request.data(data);
    }
    if let Some(jkt) = body.dpop_jkt {
        request = request.thumbprint(jkt);
    }
    let grant = app.stores.grants(&caller.scope).issue(request).await?;
    Ok((StatusCode::CREATED, Json(GrantIssued::from(&grant))))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrantRotate {
    refresh_token: String,
    #[schema(example = "app")]
    client_id: String,
    dpop_jkt: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct GrantRotated {
    refresh_token: String,
    generation: u64,
    /// Whether this is an answer that was given before.
    retried: bool,
    grant_id: String,
    subject: String,
    client_id: String,
    scope: Option<String>,
    data: Option<Value>,
    expires_at: Option<u64>,
    ends_at: Option<u64>,
}

impl GrantRotated {
    fn new(rotated: Rotated, retried: bool) -> Self {
        Self {
            refresh_token: rotated.refresh_token.expose().to_owned(),
            generation: rotated.generation,
            retried,
            grant_id: rotated.grant_id.to_string(),
            subject: rotated.subject,
            client_id: rotated.client_id,
            scope: rotated.scope,
            data: rotated.data.map(Payload::into_inner),
            expires_at: millis(rotated.expires_at),
            ends_at: millis(rotated.ends_at),
        }
    }
}

/// Exchanges a refresh token for its successor
///
/// A token that was rotated before gets the same successor again for a short time, while nothing was done with it.
/// After that it is 409, and the family is revoked.
#[utoipa::path(post, path = "/grants/rotate", operation_id = "rotate_grant", tag = "grants",
    request_body = GrantRotate,
    responses(
        (status = 200, body = GrantRotated),
        (status = 404, description = "unknown: not a refresh token of this scope"),
        (status = 409, description = "reused: the family is revoked; `grant_id` names it"),
        (status = 410, description = "expired, or `revoked` for the reason given"),
        (status = 422, description = "mismatch: `field` names what was not as bound"),
    ))]
async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<GrantRotate>,
) -> Result<Json<GrantRotated>, Problem> {
    let token = Secret::new(body.refresh_token);
    let grants = app.stores.grants(&caller.scope);
    match grants.rotate(&token, &body.client_id, body.dpop_jkt.as_deref()).await? {
        RotateOutcome::Rotated(rotated) => Ok(Json(GrantRotated::new(*rotated, false))),
        RotateOutcome::Retried(rotated) => Ok(Json(GrantRotated::new(*rotated, true))),
        RotateOutcome::Reused { grant_id } => {
            let problem = Problem::conflict("reused", "the token was used before; its family is revoked");
            Err(problem.with("grant_id", grant_id.to_string()))
        }
        RotateOutcome::Mismatch(field) => Err(Problem::mismatch(field)),
        RotateOutcome::Revoked { why, .. } => Err(revoked(why)),
        RotateOutcome::Expired => Err(Problem::expired("the grant has ended")),
        RotateOutcome::Unknown => Err(Problem::not_found("not a refresh token of this scope")),
    }
}

/// A revoked grant is over, like one that has expired; the reason goes along.
pub(super) fn revoked(why: Why) -> Problem {
    Problem::expired("the grant was revoked").with("revoked", reason(why))
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::RefreshReused => "refresh_reused",
        Why::CodeReused => "code_reused",
        _ => "requested",
    }
}

/// One of the first four is given; who and why go into the audit log.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct GrantRevoke {
    grant_id: Option<String>,
    refresh_token: Option<String>,
    subject: Option<String>,
    client_id: Option<String>,
    actor: Option<String>,
    reason: Option<String>,
}

/// Revokes a grant, or all of a subject or a client
#[utoipa::path(post, path = "/grants/revoke", operation_id = "revoke_grants", tag = "grants",
    request_body = GrantRevoke, responses((status = 200, body = Revoked)))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<GrantRevoke>,
) -> Result<Json<Revoked>, Problem> {
    let grants = app.stores.grants(&caller.scope);
    let context = caller.context(body.actor, body.reason)?;
    let revoked = match (body.grant_id, body.refresh_token, body.subject, body.client_id) {
        (Some(id), None, None, None) => {
            u64::from(grants.revoke_audited(id.parse::<GrantId>()?, &context).await?)
        }
        (None, Some(token), None, None) => {
            u64::from(grants.revoke_token_audited(&Secret::new(token), &context).await?)
        }
        (None, None, Some(subject), None) => {
            app.stores.revoke_all_audited(&caller.scope, Holder::Subject(&subject), &context).await?
        }
        (None, None, None, Some(client)) => {
            app.stores.revoke_all_audited(&caller.scope, Holder::Client(&client), &context).await?
        }
        _ => return Err(Problem::invalid("one of grant_id, refresh_token, subject or client_id is given")),
    };
    Ok(Json(Revoked { revoked }))
}

/// What is known of a grant
#[utoipa::path(get, path = "/grants/{id}", operation_id = "read_grant", tag = "grants",
    params(("id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = GrantAnswer), (status = 404, description = "unknown")))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<GrantAnswer>, Problem> {
    let grant = app.stores.grants(&caller.scope).get(id.parse::<GrantId>()?).await?;
    grant.map(|grant| Json(grant.into())).ok_or_else(unknown)
}

/// Revokes a grant
#[utoipa::path(delete, path = "/grants/{id}", operation_id = "revoke_grant", tag = "grants",
    params(("id" = String, Path, description = "32 hexadecimal digits")),
    responses((status = 200, body = Revoked), (status = 404, description = "unknown, or revoked before")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Revoked>, Problem> {
    let context = caller.context(None, None)?;
    if app.stores.grants(&caller.scope).revoke_audited(id.parse::<GrantId>()?, &context).await? {
        Ok(Json(Revoked { revoked: 1 }))
    } else {
        Err(unknown())
    }
}

fn unknown() -> Problem {
    Problem::not_found("no such grant in this scope")
}

/// What has become of a grant.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum GrantStateAnswer {
    Active,
    Expired,
    Revoked { at: Option<u64>, why: &'static str },
}

#[derive(Serialize, ToSchema)]
struct GrantAnswer {
    grant_id: String,
    subject: String,
    client_id: String,
    scope: Option<String>,
    dpop_jkt: Option<String>,
    data: Option<Value>,
    generation: u64,
    created_at: Option<u64>,
    rotated_at: Option<u64>,
    expires_at: Option<u64>,
    ends_at: Option<u64>,
    state: GrantStateAnswer,
}

impl From<Grant> for GrantAnswer {
    fn from(grant: Grant) -> Self {
        Self {
            state: match grant.state {
                GrantState::Active => GrantStateAnswer::Active,
                GrantState::Revoked { at, why } => {
                    GrantStateAnswer::Revoked { at: millis(at), why: reason(why) }
                }
                GrantState::Expired => GrantStateAnswer::Expired,
            },
            grant_id: grant.id.to_string(),
            subject: grant.subject,
            client_id: grant.client_id,
            scope: grant.scope,
            dpop_jkt: grant.thumbprint,
            data: grant.data.map(Payload::into_inner),
            generation: grant.generation,
            created_at: millis(grant.created_at),
            rotated_at: millis(grant.rotated_at),
            expires_at: millis(grant.expires_at),
            ends_at: millis(grant.ends_at),
        }
    }
}
