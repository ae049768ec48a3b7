//! `/v1/access-tokens`, `/v1/introspect` (RFC 7662), `/v1/revoke` (RFC 7009)

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use ebbtide::stores::access_tokens::{AccessRequest, Introspection, Issuing};
use ebbtide::stores::grants::{GrantId, GrantState};
use ebbtide::stores::payload::Payload;
use ebbtide::{Secret, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::grants::revoked;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{FormBody, Json, millis, ttl};
use crate::problem::Problem;
use crate::table::Table;

pub(super) fn routes() -> Table {
    Table::new()
        .creator("/access-tokens", post(issue))
        .reader("/introspect", post(introspect))
        .writer("/revoke", post(revoke))
}

#[derive(Deserialize)]
struct Issue {
    grant_id: Option<String>,
    subject: Option<String>,
    client_id: Option<String>,
    scope: Option<String>,
    dpop_jkt: Option<String>,
    data: Option<Value>,
    ttl_seconds: Option<i64>,
}

impl Issue {
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

async fn issue(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Issue>,
) -> Result<(StatusCode, Answer<Value>), Problem> {
    match app.stores.access_tokens(&caller.scope).issue(body.request()?).await? {
        Issuing::Issued(issued) => {
            let answer = json!({"access_token": issued.access_token.expose(), "expires_at": millis(issued.expires_at)});
            Ok((StatusCode::CREATED, Answer(answer)))
        }
        Issuing::Mismatch(field) => Err(Problem::mismatch(field)),
        Issuing::Revoked { why, .. } => Err(revoked(why)),
        Issuing::Expired => Err(Problem::expired("the grant has ended")),
        Issuing::Unknown => Err(Problem::not_found("no such grant in this scope")),
    }
}

#[derive(Deserialize)]
struct Token {
    token: String,
    client_id: Option<String>,
}

/// The members of RFC 7662 §2.2, with its times in seconds.
#[derive(Default)]
struct Members(Map<String, Value>);

impl Members {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.0.insert(name.to_owned(), value);
        }
    }

    fn put_time(&mut self, name: &str, time: Timestamp) {
        if !time.is_never() {
            self.put(name, time.as_millis() / 1_000);
        }
    }
}

async fn introspect(
    State(app): State<App>,
    caller: Caller,
    FormBody(body): FormBody<Token>,
) -> Result<Answer<Value>, Problem> {
    let token = Secret::new(body.token);
    let mut members = Members::default();
    if let Introspection::Active(active) = app.stores.access_tokens(&caller.scope).introspect(&token).await? {
        members.put("active", true);
        members.put("token_type", if active.thumbprint.is_some() { "DPoP" } else { "Bearer" });
        members.put("sub", active.subject);
        members.put("client_id", active.client_id);
        members.put("scope", active.scope);
        members.put("cnf", active.thumbprint.map(|jkt| json!({ "jkt": jkt })));
        members.put("data", active.data.map(Payload::into_inner));
        members.put("grant_id", active.grant_id.map(|id| id.to_string()));
        members.put_time("iat", active.issued_at);
        members.put_time("exp", active.expires_at);
        return Ok(Answer(Value::Object(members.0)));
    }
    // RFC 7662 leaves it to the server which kinds of token it looks at: refresh tokens too.
    let grant = app.stores.grants(&caller.scope).find(&token).await?;
    if let Some(grant) = grant.filter(|grant| grant.state == GrantState::Active) {
        members.put("active", true);
        members.put("sub", grant.subject);
        members.put("client_id", grant.client_id);
        members.put("scope", grant.scope);
        members.put("cnf", grant.thumbprint.map(|jkt| json!({ "jkt": jkt })));
        members.put("grant_id", grant.id.to_string());
        members.put_time("iat", grant.created_at);
        members.put_time("exp", grant.expires_at);
    } else {
        members.put("active", false);
    }
    Ok(Answer(Value::Object(members.0)))
}

/// RFC 7009 §2.2: an unknown token is answered like one that was revoked.
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    FormBody(body): FormBody<Token>,
) -> Result<StatusCode, Problem> {
    let token = Secret::new(body.token);
    match body.client_id {
        Some(client_id) => app.stores.revoke_token_of(&caller.scope, &token, &client_id).await?,
        None => app.stores.revoke_token(&caller.scope, &token).await?,
    };
    Ok(StatusCode::OK)
}
