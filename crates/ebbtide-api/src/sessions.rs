//! Answers of `/v1/sessions`.

use ebbtide::Secret;
use ebbtide::stores::sessions::{CreatedSession, Session, SessionInfo};
use ebbtide::stores::shared::payload::Payload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;

#[derive(Serialize, Deserialize, ToSchema)]
pub struct SessionCreated {
    pub session_id: String,
    /// Handle of the session, as listings have it; no secret.
    pub handle: String,
    /// Name that codes and grants refer to the session by.
    pub sid: String,
    pub expires_at: Option<u64>,
    pub ends_at: Option<u64>,
}

impl From<CreatedSession> for SessionCreated {
    fn from(session: CreatedSession) -> Self {
        Self {
            session_id: session.session_id.expose().to_owned(),
            handle: session.handle,
            sid: session.sid,
            expires_at: millis(session.expires_at),
            ends_at: millis(session.ends_at),
        }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct SessionRead {
    pub handle: String,
    /// Name that codes and grants refer to the session by.
    pub sid: String,
    pub subject: Option<String>,
    pub data: Option<Value>,
    pub state: Option<String>,
    pub provider: Option<String>,
    pub code_verifier: Option<String>,
    pub verified_emails: Option<Vec<String>>,
    pub token_data: Option<Value>,
    pub user_info: Option<Value>,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
    pub ends_at: Option<u64>,
}

impl From<Session> for SessionRead {
    fn from(session: Session) -> Self {
        let json = |payload: Option<Payload>| payload.map(Payload::into_inner);
        let text = |secret: Option<Secret>| secret.map(|secret| secret.expose().to_owned());
        let fields = session.fields;
        Self {
            handle: session.handle,
            sid: session.sid,
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

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionDeleted {
    pub deleted: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionTouched {
    pub expires_at: Option<u64>,
}

/// A session in a listing. Its handle is not its id.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionListed {
    pub handle: String,
    /// Name that codes and grants refer to the session by.
    pub sid: String,
    pub subject: String,
    /// `active`: an ended session is not listed.
    pub state: String,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
    pub ends_at: Option<u64>,
}

impl From<&SessionInfo> for SessionListed {
    fn from(info: &SessionInfo) -> Self {
        Self {
            handle: info.handle.clone(),
            sid: info.sid.clone(),
            subject: info.subject.clone(),
            state: "active".to_owned(),
            created_at: millis(info.created_at),
            expires_at: millis(info.expires_at),
            ends_at: millis(info.ends_at),
        }
    }
}
