//! Answers of `/v1/subjects`.

use ebbtide::stores::access_tokens::AccessTokenInfo;
use ebbtide::stores::owners::{Overview, SignedOut};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::millis;
use crate::clients::ClientAnswer;
use crate::grants::{GrantAnswer, reason};
use crate::sessions::SessionListed;

/// Numbers of what a sign-out ended. Outstanding codes and approved device codes are ended too, and not counted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectSignedOut {
    pub grants: u64,
    /// Access tokens without a grant.
    pub access_tokens: u64,
    pub sessions: u64,
    /// Number of all of them.
    pub revoked: u64,
}

impl From<SignedOut> for SubjectSignedOut {
    fn from(ended: SignedOut) -> Self {
        let SignedOut { grants, access_tokens, sessions, .. } = ended;
        Self { grants, access_tokens, sessions, revoked: ended.total() }
    }
}

/// Access token without a grant. Its handle is not the token.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessTokenListed {
    pub handle: String,
    pub subject: String,
    pub client_id: String,
    pub scope: Option<String>,
    pub issued_at: Option<u64>,
    pub expires_at: Option<u64>,
    /// `active` or `revoked`.
    pub state: String,
    /// Reason of the revocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl From<&AccessTokenInfo> for AccessTokenListed {
    fn from(token: &AccessTokenInfo) -> Self {
        Self {
            handle: token.handle.clone(),
            subject: token.subject.clone(),
            client_id: token.client_id.clone(),
            scope: token.scope.clone(),
            issued_at: millis(token.issued_at),
            expires_at: millis(token.expires_at),
            state: if token.revoked.is_none() { "active" } else { "revoked" }.to_owned(),
            why: token.revoked.map(|why| reason(why).to_owned()),
        }
    }
}

/// Grants, sessions, clients and access tokens without a grant of a subject: up to 1,000 of each, without payloads.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct SubjectOverview {
    pub subject: String,
    pub grants: Vec<GrantAnswer>,
    /// Access tokens without a grant. Those under a grant are in no index and end with it, so they are not listed.
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
