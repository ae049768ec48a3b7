//! `/v1/sessions`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::Secret;
use ebbtide::stores::sessions::{
    Session, SessionFields, SessionInfo, SessionOutcome, SessionRequest, TouchOutcome,
};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Path, Query, given, listed_as, millis, page, ttl};
use crate::http::problem::Problem;
use crate::http::table::Table;
use ebbtide_api::answers::{Listed, Revoked};

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(create))
        .reader(routes!(list))
        .writer(routes!(revoke))
        .reader(routes!(read))
        .writer(routes!(remove))
        .writer(routes!(touch))
        .writer(routes!(claim))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionCreate {
    #[schema(min_length = 1, example = "alice")]
    subject: Option<String>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    state: Option<String>,
    provider: Option<String>,
    code_verifier: Option<String>,
    verified_emails: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    token_data: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    user_info: Option<Value>,
    /// From the last touch.
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
    /// However often it is touched.
    #[schema(minimum = 1)]
    max_ttl_seconds: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct SessionCreated {
    session_id: String,
    expires_at: Option<u64>,
    ends_at: Option<u64>,
}

/// Begins a session
#[utoipa::path(post, path = "/sessions", operation_id = "create_session", tag = "sessions",
    request_body = SessionCreate,
    responses((status = 201, body = SessionCreated)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionCreate>,
) -> Result<(StatusCode, Json<SessionCreated>), Problem> {
    let mut request = SessionRequest::new(SessionFields {
        data: body.data.map(Payload::new),
        state: body.state.map(Secret::new),
        provider: body.provider,
        code_verifier: body.code_verifier.map(Secret::new),
        verified_emails: body.verified_emails,
        token_data: body.token_data.map(Payload::new),
        user_info: body.user_info.map(Payload::new),
    });
    if let Some(subject) = body.subject {
        request = request.subject(subject);
    }
    if let Some(ttl) = ttl(body.ttl_seconds)? {
        request = request.ttl(ttl);
    }
    if let Some(max) = ttl(body.max_ttl_seconds)? {
        request = request.max(max);
    }
    let session = app.stores.sessions(&caller.scope).create(request).await?;
    let answer = SessionCreated {
        session_id: session.session_id.expose().to_owned(),
        expires_at: millis(session.expires_at),
        ends_at: millis(session.ends_at),
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

#[derive(Serialize, ToSchema)]
struct SessionRead {
    subject: Option<String>,
    data: Option<Value>,
    state: Option<String>,
    provider: Option<String>,
    code_verifier: Option<String>,
    verified_emails: Option<Vec<String>>,
    token_data: Option<Value>,
    user_info: Option<Value>,
    created_at: Option<u64>,
    expires_at: Option<u64>,
    ends_at: Option<u64>,
}

impl From<Session> for SessionRead {
    fn from(session: Session) -> Self {
        let json = |payload: Option<Payload>| payload.map(Payload::into_inner);
        let text = |secret: Option<Secret>| secret.map(|secret| secret.expose().to_owned());
        let fields = session.fields;
        Self {
            subject: session.subject,
            data: json(fields.data),
            state: text(fields.state),
            provider: fields.provider,
            code_verifier: text(fields.code_verifier),
            verified_emails: fields.verified_emails,
            token_data: json(fields.token_data),
            user_info: json(fields.user_info),
            created_at: millis(session.created_at),
            expires_at: millis(session.expires_at),
            ends_at: millis(session.ends_at),
        }
    }
}

/// Reads a session; it may be read again
#[utoipa::path(get, path = "/sessions/{id}", operation_id = "read_session", tag = "sessions",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = SessionRead),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was claimed"),
        (status = 410, description = "expired"),
    ))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SessionRead>, Problem> {
    answered(app.stores.sessions(&caller.scope).get(&Secret::new(id)).await?)
}

/// Takes a session once
#[utoipa::path(post, path = "/sessions/{id}/claim", operation_id = "claim_session", tag = "sessions",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = SessionRead),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was claimed before"),
        (status = 410, description = "expired"),
    ))]
async fn claim(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SessionRead>, Problem> {
    answered(app.stores.sessions(&caller.scope).claim(&Secret::new(id)).await?)
}

fn answered(answer: SessionOutcome) -> Result<Json<SessionRead>, Problem> {
    match answer {
        SessionOutcome::Live(session) => Ok(Json((*session).into())),
        SessionOutcome::Used => Err(used()),
        SessionOutcome::Expired => Err(expired()),
        SessionOutcome::Unknown => Err(unknown()),
    }
}

#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionTouch {
    #[schema(minimum = 1)]
    ttl_seconds: Option<i64>,
}

#[derive(Serialize, ToSchema)]
struct SessionTouched {
    expires_at: Option<u64>,
}

/// Lets a session live on; the body may be left out
#[utoipa::path(post, path = "/sessions/{id}/touch", operation_id = "touch_session", tag = "sessions",
    params(("id" = String, Path)),
    request_body = Option<SessionTouch>,
    responses(
        (status = 200, body = SessionTouched),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: it was claimed"),
        (status = 410, description = "expired"),
    ))]
async fn touch(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    body: Option<Json<SessionTouch>>,
) -> Result<Json<SessionTouched>, Problem> {
    let ttl = ttl(body.and_then(|Json(body)| body.ttl_seconds))?;
    match app.stores.sessions(&caller.scope).touch(&Secret::new(id), ttl).await? {
        TouchOutcome::Touched { expires_at } => Ok(Json(SessionTouched { expires_at: millis(expires_at) })),
        TouchOutcome::Used => Err(used()),
        TouchOutcome::Expired => Err(expired()),
        TouchOutcome::Unknown => Err(unknown()),
    }
}

/// Ends a session
#[utoipa::path(delete, path = "/sessions/{id}", operation_id = "delete_session", tag = "sessions",
    params(("id" = String, Path)),
    responses((status = 204, description = "it is gone"), (status = 404, description = "unknown")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let removed = app.stores.sessions(&caller.scope).delete(&Secret::new(id)).await?;
    removed.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}

/// Whose sessions.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhoseSessions {
    #[param(example = "alice")]
    subject: String,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// A session as it is listed: a handle, which is not the id.
#[derive(Serialize, ToSchema)]
struct SessionListed {
    handle: String,
    subject: String,
    created_at: Option<u64>,
    expires_at: Option<u64>,
    ends_at: Option<u64>,
}

impl SessionListed {
    fn new(info: &SessionInfo, subject: &str) -> Self {
        Self {
            handle: info.handle.clone(),
            subject: subject.to_owned(),
            created_at: millis(info.created_at),
            expires_at: millis(info.expires_at),
            ends_at: millis(info.ends_at),
        }
    }
}

/// Lists a subject's sessions
#[utoipa::path(get, path = "/sessions", operation_id = "list_sessions", tag = "sessions", params(WhoseSessions),
    responses((status = 200, body = Listed<SessionListed>)))]
async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(whose): Query<WhoseSessions>,
) -> Result<Json<Listed<SessionListed>>, Problem> {
    let (after, limit) = page(whose.limit, whose.after.as_deref())?;
    let listing = app.stores.sessions(&caller.scope).list(&whose.subject, after.as_ref(), limit).await?;
    Ok(Json(listed_as(&listing, |info| SessionListed::new(info, &whose.subject))))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionsRevoke {
    #[schema(example = "alice")]
    subject: String,
    actor: Option<String>,
    reason: Option<String>,
}

/// Ends every session of a subject
#[utoipa::path(post, path = "/sessions/revoke", operation_id = "revoke_sessions", tag = "sessions",
    request_body = SessionsRevoke, responses((status = 200, body = Revoked)))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionsRevoke>,
) -> Result<Json<Revoked>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let sessions = app.stores.sessions(&caller.scope);
    let revoked = sessions.revoke_all_audited(&body.subject, &context).await?;
    Ok(Json(Revoked { revoked }))
}

fn used() -> Problem {
    Problem::conflict("used", "the session was claimed before")
}

fn expired() -> Problem {
    Problem::expired("the session has ended")
}

fn unknown() -> Problem {
    Problem::not_found("no such session in this scope")
}
