//! `/v1/sessions`

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use ebbtide::Secret;
use ebbtide::stores::payload::Payload;
use ebbtide::stores::sessions::{Session, SessionAnswer, SessionFields, SessionInfo, SessionRequest, Touch};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Caller;
use crate::body::{Asked, Json, Names, PageAsked, given, millis, next, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator("/sessions", post(create))
        .reader("/sessions", get(list))
        .writer("/sessions/revoke", post(revoke))
        .reader("/sessions/{id}", get(read))
        .writer("/sessions/{id}", delete(remove))
        .writer("/sessions/{id}/touch", post(touch))
        .writer("/sessions/{id}/claim", post(claim))
}

#[derive(Deserialize)]
struct Create {
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
    ttl_seconds: Option<i64>,
    max_ttl_seconds: Option<i64>,
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Create>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
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
    let answer = json!({
        "session_id": session.session_id.expose(),
        "expires_at": millis(session.expires_at),
        "ends_at": millis(session.ends_at),
    });
    Ok((StatusCode::CREATED, Answer(answer)))
}

async fn read(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<Answer<Value>, Problem> {
    answered(app.stores.sessions(&caller.scope).get(&Secret::new(id)).await?)
}

async fn claim(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<Answer<Value>, Problem> {
    answered(app.stores.sessions(&caller.scope).claim(&Secret::new(id)).await?)
}

fn answered(answer: SessionAnswer) -> Result<Answer<Value>, Problem> {
    match answer {
        SessionAnswer::Live(session) => Ok(Answer(description(*session))),
        SessionAnswer::Used => Err(used()),
        SessionAnswer::Expired => Err(expired()),
        SessionAnswer::Unknown => Err(unknown()),
    }
}

fn description(session: Session) -> Value {
    let json = |payload: Option<Payload>| payload.map(Payload::into_inner);
    let text = |secret: Option<Secret>| secret.map(|secret| secret.expose().to_owned());
    let fields = session.fields;
    json!({
        "subject": session.subject,
        "data": json(fields.data),
        "state": text(fields.state),
        "provider": fields.provider,
        "code_verifier": text(fields.code_verifier),
        "verified_emails": fields.verified_emails,
        "token_data": json(fields.token_data),
        "user_info": json(fields.user_info),
        "created_at": millis(session.created_at),
        "expires_at": millis(session.expires_at),
        "ends_at": millis(session.ends_at),
    })
}

#[derive(Deserialize, Default)]
struct Renew {
    ttl_seconds: Option<i64>,
}

/// The body may be left out.
async fn touch(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
    body: Option<Json<Renew>>,
) -> Result<Answer<Value>, Problem> {
    let ttl = ttl(body.and_then(|Json(body)| body.ttl_seconds))?;
    match app.stores.sessions(&caller.scope).touch(&Secret::new(id), ttl).await? {
        Touch::Touched { expires_at } => Ok(Answer(json!({ "expires_at": millis(expires_at) }))),
        Touch::Used => Err(used()),
        Touch::Expired => Err(expired()),
        Touch::Unknown => Err(unknown()),
    }
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Names(id): Names<String>,
) -> Result<StatusCode, Problem> {
    let removed = app.stores.sessions(&caller.scope).delete(&Secret::new(id)).await?;
    removed.then_some(StatusCode::NO_CONTENT).ok_or_else(unknown)
}

#[derive(Deserialize)]
struct Whose {
    subject: String,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(whose): Asked<Whose>,
    Asked(page): Asked<PageAsked>,
) -> Result<Answer<Value>, Problem> {
    let sessions = app.stores.sessions(&caller.scope);
    let listing = sessions.list(&whose.subject, page.after()?.as_ref(), page.limit()?).await?;
    let item = |info: &SessionInfo| {
        json!({
            "handle": info.handle,
            "subject": whose.subject,
            "created_at": millis(info.created_at),
            "expires_at": millis(info.expires_at),
            "ends_at": millis(info.ends_at),
        })
    };
    let items: Vec<_> = listing.items.iter().map(item).collect();
    Ok(Answer(json!({"items": items, "next": next(listing.next.as_ref())})))
}

#[derive(Deserialize)]
struct Revoke {
    subject: String,
    actor: Option<String>,
    reason: Option<String>,
}

async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Revoke>,
) -> Result<Answer<Value>, Problem> {
    let because = caller.because(body.actor, body.reason)?;
    let sessions = app.stores.sessions(&caller.scope);
    let revoked = sessions.revoke_all_audited(&body.subject, &because).await?;
    Ok(Answer(json!({ "revoked": revoked })))
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
