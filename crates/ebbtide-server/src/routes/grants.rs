//! `/v1/grants`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use ebbtide::Secret;
use ebbtide::stores::grants::{
    Grant, GrantId, GrantRequest, GrantState, Holder, IssuedGrant, Rotated, Rotation, Terms, Why,
};
use ebbtide::stores::payload::Payload;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, Names, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator("/grants", post(issue))
        .writer("/grants/rotate", post(rotate))
        .writer("/grants/revoke", post(revoke))
        .reader("/grants/{id}", get(read))
        .writer("/grants/{id}", delete(remove))
}

/// How long a grant lives.
#[derive(Deserialize)]
pub(super) struct Lifetimes {
    profile: Option<String>,
    idle_ttl_seconds: Option<i64>,
    max_ttl_seconds: Option<i64>,
}

impl Lifetimes {
    pub(super) fn terms(&self, app: &App) -> Result<Terms, Problem> {
        let mut terms = Terms::default();
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

#[derive(Deserialize)]
struct Issue {
    subject: String,
    client_id: String,
    scope: Option<String>,
    data: Option<Value>,
    dpop_jkt: Option<String>,
    #[serde(flatten)]
    lifetimes: Lifetimes,
}

async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Issue>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    let mut request = GrantRequest::new(body.subject, body.client_id).terms(body.lifetimes.terms(&app)?);
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
    Ok((StatusCode::CREATED, Answer(issued(&grant))))
}

pub(super) fn issued(grant: &IssuedGrant) -> Value {
    json!({
        "grant_id": grant.grant_id.to_string(),
        "refresh_token": grant.refresh_token.expose(),
        "expires_at": millis(grant.expires_at),
        "ends_at": millis(grant.ends_at),
    })
}

#[derive(Deserialize)]
struct Rotate {
    refresh_token: String,
    client_id: String,
    dpop_jkt: Option<String>,
}

async fn rotate(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Rotate>,
) -> Result<Answer<Value>, Problem> {
    let token = Secret::new(body.refresh_token);
    let grants = app.stores.grants(&caller.scope);
    match grants.rotate(&token, &body.client_id, body.dpop_jkt.as_deref()).await? {
        Rotation::Rotated(rotated) => Ok(Answer(rotation(*rotated, false))),
        Rotation::Retried(rotated) => Ok(Answer(rotation(*rotated, true))),
        Rotation::Reused { grant_id } => {
            let problem = Problem::conflict("reused", "the token was used before; its family is revoked");
            Err(problem.with("grant_id", grant_id.to_string()))
        }
        Rotation::Mismatch(field) => Err(Problem::mismatch(field)),
        Rotation::Revoked { why, .. } => Err(revoked(why)),
        Rotation::Expired => Err(Problem::expired("the grant has ended")),
        Rotation::Unknown => Err(Problem::not_found("not a refresh token of this scope")),
    }
}

fn rotation(rotated: Rotated, retried: bool) -> Value {
    json!({
        "refresh_token": rotated.refresh_token.expose(),
        "generation": rotated.generation,
        "retried": retried,
        "grant_id": rotated.grant_id.to_string(),
        "subject": rotated.subject,
        "client_id": rotated.client_id,
        "scope": rotated.scope,
        "data": rotated.data.map(Payload::into_inner),
        "expires_at": millis(rotated.expires_at),
        "ends_at": millis(rotated.ends_at),
    })
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

#[derive(Deserialize)]
struct Revoke {
    grant_id: Option<String>,
    refresh_token: Option<String>,
    subject: Option<String>,
    client_id: Option<String>,
    actor: Option<String>,
    reason: Option<String>,
}

async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Revoke>,
) -> Result<Answer<Value>, Problem> {
    let grants = app.stores.grants(&caller.scope);
    let because = caller.because(body.actor, body.reason)?;
    let revoked = match (body.grant_id, body.refresh_token, body.subject, body.client_id) {
        (Some(id), None, None, None) => {
            u64::from(grants.revoke_audited(id.parse::<GrantId>()?, &because).await?)
        }
        (None, Some(token), None, None) => {
            u64::from(grants.revoke_token_audited(&Secret::new(token), &because).await?)
        }
        (None, None, Some(subject), None) => {
            app.stores.revoke_all_audited(&caller.scope, Holder::Subject(&subject), &because).await?
        }
        (None, None, None, Some(client)) => {
            app.stores.revoke_all_audited(&caller.scope, Holder::Client(&client), &because).await?
        }
        _ => return Err(Problem::invalid("one of grant_id, refresh_token, subject or client_id is given")),
    };
    Ok(Answer(json!({ "revoked": revoked })))
}

async fn read(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<Answer<Value>, Problem> {
    let grant = app.stores.grants(&caller.scope).get(id.parse::<GrantId>()?).await?;
    grant.map(|grant| Answer(description(grant))).ok_or_else(unknown)
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<Answer<Value>, Problem> {
    let because = caller.because(None, None)?;
    if app.stores.grants(&caller.scope).revoke_audited(id.parse::<GrantId>()?, &because).await? {
        Ok(Answer(json!({"revoked": 1})))
    } else {
        Err(unknown())
    }
}

fn unknown() -> Problem {
    Problem::not_found("no such grant in this scope")
}

fn description(grant: Grant) -> Value {
    let state = match grant.state {
        GrantState::Active => json!("active"),
        GrantState::Revoked { at, why } => json!({"revoked": {"at": millis(at), "why": reason(why)}}),
        GrantState::Expired => json!("expired"),
    };
    json!({
        "grant_id": grant.id.to_string(),
        "subject": grant.subject,
        "client_id": grant.client_id,
        "scope": grant.scope,
        "dpop_jkt": grant.thumbprint,
        "data": grant.data.map(Payload::into_inner),
        "generation": grant.generation,
        "created_at": millis(grant.created_at),
        "rotated_at": millis(grant.rotated_at),
        "expires_at": millis(grant.expires_at),
        "ends_at": millis(grant.ends_at),
        "state": state,
    })
}
