//! Answers of `/v1/subjects`.

use ebbtide::stores::access_tokens::AccessTokenInfo;
use ebbtide::stores::grants::GrantState;
use ebbtide::stores::owners::{Overview, SignedOut};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;
use crate::clients::ClientAnswer;
use crate::grants::{GrantAnswer, reason};
use crate::sessions::SessionListed;

/// Numbers of what a sign-out ended, among the first 1,000 of each. Outstanding codes and approved device codes are ended
/// too, and not counted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectSignedOut {
    pub grants: u64,
    /// Access tokens without a grant.
    pub access_tokens: u64,
    pub sessions: u64,
    /// Number of all of them.
    pub revoked: u64,
    /// True if more than is counted may have been ended: the numbers are the least.
    pub more: bool,
}

impl From<SignedOut> for SubjectSignedOut {
    fn from(ended: SignedOut) -> Self {
        let SignedOut { grants, access_tokens, sessions, more, .. } = ended;
        Self { grants, access_tokens, sessions, revoked: ended.total(), more }
    }
}

/// Access token. Its handle is its `jti`, not the token.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessTokenListed {
    pub handle: String,
    pub subject: String,
    pub client_id: String,
    pub scope: Option<String>,
    /// Grant that it is under; null without one.
    pub grant_id: Option<String>,
    pub issued_at: Option<u64>,
    pub expires_at: Option<u64>,
    /// `active`, `revoked`, or `expired` if its grant was idle for too long.
    pub state: String,
    /// Reason of the revocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl From<&AccessTokenInfo> for AccessTokenListed {
    fn from(token: &AccessTokenInfo) -> Self {
        let (state, why) = match token.state {
            GrantState::Active => ("active", None),
            GrantState::Revoked { why, .. } => ("revoked", Some(reason(why).to_owned())),
            _ => ("expired", None),
        };
        Self {
            handle: token.handle.clone(),
            subject: token.subject.clone(),
            client_id: token.client_id.clone(),
            scope: token.scope.clone(),
            issued_at: millis(token.issued_at),
            expires_at: millis(token.expires_at),
            grant_id: token.grant_id.map(|id| id.to_string()),
            state: state.to_owned(),
            why,
        }
    }
}

/// Grants, access tokens, sessions and clients of a subject: up to 1,000 of each, without payloads.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct SubjectOverview {
    pub subject: String,
    pub grants: Vec<GrantAnswer>,
    /// Access tokens, under a grant or without one, that have not reached their end.
    pub access_tokens: Vec<AccessTokenListed>,
    pub sessions: Vec<SessionListed>,
    /// Clients that the subject owns.
    pub clients: Vec<ClientAnswer>,
    /// True if there is more.
    pub more: bool,
}

impl SubjectOverview {
    /// Overview of `subject`.
    #[must_use]
    pub fn new(subject: String, overview: &Overview) -> Self {
        Self {
            subject,
            grants: overview.grants.iter().map(GrantAnswer::from).collect(),
            access_tokens: overview.access_tokens.iter().map(AccessTokenListed::from).collect(),
            sessions: overview.sessions.iter().map(SessionListed::from).collect(),
            clients: overview.clients.iter().map(ClientAnswer::from).collect(),
            more: overview.more,
        }
    }
}
