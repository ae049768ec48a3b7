//! `/v1/sessions`

use axum::extract::State;
use axum::http::StatusCode;
use ebbtide::stores::sessions::{SessionName, SessionOutcome, SessionRequest, TouchOutcome};
use ebbtide::{Secret, Ttl};
use ebbtide_api::answers::{Listed, Revoked, millis};
use ebbtide_api::sessions::{SessionCreated, SessionDeleted, SessionListed, SessionRead, SessionTouched};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::body::{Json, Query, listed, page};
use crate::http::problem::Problem;
use crate::http::route::Verb;
use crate::http::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator(routes!(create))
        .reader(routes!(list))
        .writer(routes!(revoke))
        .reader(routes!(read))
        .writer(routes!(remove))
        .writer(routes!(touch))
        .hot(Verb::Post, touch)
        .writer(routes!(claim))
}

/// Creates a session
#[utoipa::path(post, path = "/sessions", operation_id = "create_session", tag = "sessions",
    request_body = SessionRequest,
    responses((status = 201, body = SessionCreated)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<SessionRequest>,
) -> Result<(StatusCode, Json<SessionCreated>), Problem> {
    let session = app.stores.sessions(&caller.scope).create(request).await?;
    Ok((StatusCode::CREATED, Json(session.into())))
}

/// Session, by one of its names. The id is a secret, and stands in no URL.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionNamed {
    /// Id of the session.
    #[schema(value_type = Option<String>)]
    session_id: Option<Secret>,
    /// Handle of the session, as listings have it.
    handle: Option<String>,
}

impl SessionNamed {
    fn name(&self) -> Result<SessionName<'_>, Problem> {
        one_of(self.session_id.as_ref(), self.handle.as_deref())
    }
}

fn one_of<'a>(session_id: Option<&'a Secret>, handle: Option<&'a str>) -> Result<SessionName<'a>, Problem> {
    match (session_id, handle) {
        (Some(id), None) => Ok(SessionName::Id(id)),
        (None, Some(handle)) => Ok(SessionName::Handle(handle)),
        _ => Err(Problem::invalid("one of session_id and handle is given").with("member", "session_id")),
    }
}

/// Reads a session without consuming it
#[utoipa::path(post, path = "/sessions/get", operation_id = "read_session", tag = "sessions",
    request_body = SessionNamed,
    responses(
        (status = 200, body = SessionRead),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: the session was claimed"),
        (status = 410, description = "expired"),
    ))]
async fn read(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionNamed>,
) -> Result<Json<SessionRead>, Problem> {
    answered(app.stores.sessions(&caller.scope).get(body.name()?).await?)
}

/// Claims a session, once
#[utoipa::path(post, path = "/sessions/claim", operation_id = "claim_session", tag = "sessions",
    request_body = SessionNamed,
    responses(
        (status = 200, body = SessionRead),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: the session was claimed before"),
        (status = 410, description = "expired"),
    ))]
async fn claim(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionNamed>,
) -> Result<Json<SessionRead>, Problem> {
    answered(app.stores.sessions(&caller.scope).claim(body.name()?).await?)
}

fn answered(answer: SessionOutcome) -> Result<Json<SessionRead>, Problem> {
    match answer {
        SessionOutcome::Live(session) => Ok(Json((*session).into())),
        SessionOutcome::Used => Err(used()),
        SessionOutcome::Expired => Err(expired()),
        _ => Err(unknown()),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionTouch {
    /// Id of the session.
    #[schema(value_type = Option<String>)]
    session_id: Option<Secret>,
    /// Handle of the session, as listings have it.
    handle: Option<String>,
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    ttl: Option<Ttl>,
}

/// Renews a session
#[utoipa::path(post, path = "/sessions/touch", operation_id = "touch_session", tag = "sessions",
    request_body = SessionTouch,
    responses(
        (status = 200, body = SessionTouched),
        (status = 404, description = "unknown"),
        (status = 409, description = "used: the session was claimed"),
        (status = 410, description = "expired"),
    ))]
async fn touch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionTouch>,
) -> Result<Json<SessionTouched>, Problem> {
    let name = one_of(body.session_id.as_ref(), body.handle.as_deref())?;
    match app.stores.sessions(&caller.scope).touch(name, body.ttl).await? {
        TouchOutcome::Touched { expires_at } => Ok(Json(SessionTouched { expires_at: millis(expires_at) })),
        TouchOutcome::Used => Err(used()),
        TouchOutcome::Expired => Err(expired()),
        _ => Err(unknown()),
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionDelete {
    /// Id of the session.
    #[schema(value_type = Option<String>)]
    session_id: Option<Secret>,
    /// Handle of the session, as listings have it.
    handle: Option<String>,
    /// Ends the grants and tokens that came from the session, too.
    #[serde(default)]
    revoke_grants: bool,
}

/// Deletes a session
#[utoipa::path(post, path = "/sessions/delete", operation_id = "delete_session", tag = "sessions",
    request_body = SessionDelete,
    responses((status = 200, body = SessionDeleted), (status = 404, description = "unknown")))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionDelete>,
) -> Result<Json<SessionDeleted>, Problem> {
    let name = one_of(body.session_id.as_ref(), body.handle.as_deref())?;
    let sessions = app.stores.sessions(&caller.scope);
    let context = caller.context(None, None)?;
    let deleted = if body.revoke_grants {
        sessions.delete_with_grants(name, &context).await?
    } else {
        sessions.delete_audited(name, &context).await?
    };
    if deleted { Ok(Json(SessionDeleted { deleted })) } else { Err(unknown()) }
}

/// Query of a listing of sessions.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhoseSessions {
    #[param(example = "alice")]
    subject: String,
    /// 1 to 1,000 items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the previous page.
    after: Option<String>,
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
    Ok(Json(listed(&listing)))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionsRevoke {
    #[schema(example = "alice")]
    subject: String,
    #[serde(rename = "on_behalf_of", alias = "actor")]
    actor: Option<String>,
    reason: Option<String>,
}

/// Deletes all sessions of a subject
#[utoipa::path(post, path = "/sessions/revoke", operation_id = "revoke_sessions", tag = "sessions",
    request_body = SessionsRevoke, responses((status = 200, body = Revoked)))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<SessionsRevoke>,
) -> Result<Json<Revoked>, Problem> {
    let context = caller.context(body.actor, body.reason)?;
    let sessions = app.stores.sessions(&caller.scope);
    let revoked = sessions.revoke(&body.subject, Some(&context)).await?;
    Ok(Json(Revoked { revoked }))
}

fn used() -> Problem {
    Problem::conflict("used", "the session was claimed before")
}

fn expired() -> Problem {
    Problem::expired("the session has expired")
}

fn unknown() -> Problem {
    Problem::not_found("no such session in this scope")
}
