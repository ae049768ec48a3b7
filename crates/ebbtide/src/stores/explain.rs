//! Why a record is live, expired, used or revoked, and who extended it: what an operator asks when someone complains.
//!
//! An explanation changes nothing and renews nothing. It tells only what the store would answer by: a record that has
//! expired is as absent here as everywhere, unless its kind remembers what became of it, or the audit log does.

use super::Stores;
use super::api_keys::KeyId;
use super::grants::GrantId;
use super::lives::Standing;
use super::relationships::Edge;
use super::replays::Proof;
use crate::audit::{Action, Entry};
use crate::error::Result;
use crate::kind::Kind;
use crate::scope::Scope;
use crate::secret::Secret;
use crate::time::Timestamp;

/// What is asked about.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Question {
    /// Whether a proof was seen.
    Replay(Proof),
    /// A nonce, and whom it was issued for.
    Nonce {
        /// The audience.
        audience: String,
        /// The nonce.
        nonce: Secret,
    },
    /// An authorization code.
    Code(Secret),
    /// A grant.
    Grant(GrantId),
    /// The grant of a refresh token, of whatever generation.
    RefreshToken(Secret),
    /// An access token.
    AccessToken(Secret),
    /// An attribute.
    Attribute {
        /// The owner.
        owner: String,
        /// The bucket.
        bucket: String,
        /// The name.
        name: String,
    },
    /// An approval.
    Approval {
        /// Who.
        identity: String,
        /// To what.
        resource: String,
        /// What.
        action: String,
    },
    /// A relationship.
    Relationship(Edge),
    /// An API key.
    ApiKey(KeyId),
}

impl Question {
    /// The kind of record that it is about.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Replay(_) => Kind::Replay,
            Self::Nonce { .. } => Kind::Nonce,
            Self::Code(_) => Kind::Code,
            Self::Grant(_) | Self::RefreshToken(_) => Kind::Grant,
            Self::AccessToken(_) => Kind::AccessToken,
            Self::Attribute { .. } => Kind::Attribute,
            Self::Approval { .. } => Kind::Approval,
            Self::Relationship(_) => Kind::Relationship,
            Self::ApiKey(_) => Kind::ApiKey,
        }
    }
}

/// What has become of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It stands, and is answered by.
    Live,
    /// Its time is over.
    Expired,
    /// It was used, and was good for one use.
    Used,
    /// It was revoked.
    Revoked,
    /// Nothing stands there, and nothing tells of it: it was never written, or was deleted, or its time is over.
    Unknown,
}

impl State {
    /// The name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Expired => "expired",
            Self::Used => "used",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        }
    }
}

/// What is known of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The kind of record.
    pub kind: Kind,
    /// Where it was looked for.
    pub scope: Scope,
    /// What has become of it.
    pub state: State,
    /// Why that is its state, in words.
    pub why: String,
    /// When it was written first, where that is known.
    pub created_at: Option<Timestamp>,
    /// When its life ends or ended, where that is known.
    pub expires_at: Option<Timestamp>,
    /// The latest end that it can have, where there is one.
    pub cap_at: Option<Timestamp>,
    /// The grant that it is, hangs on, or gave.
    pub grant_id: Option<GrantId>,
    /// What the audit log of the scope tells of it, oldest first: who extended it, and who revoked it.
    pub history: Vec<Entry>,
}

/// What a store itself knows of a record, and what the audit log calls it.
pub(super) struct Fate {
    pub(super) state: State,
    pub(super) why: String,
    pub(super) created_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) cap_at: Option<Timestamp>,
    pub(super) grant_id: Option<GrantId>,
    pub(super) target: Option<Vec<String>>,
}

impl Fate {
    pub(super) fn new(state: State, why: impl Into<String>) -> Self {
        Self {
            state,
            why: why.into(),
            created_at: None,
            expires_at: None,
            cap_at: None,
            grant_id: None,
            target: None,
        }
    }

    pub(super) fn unknown(why: &str) -> Self {
        Self::new(State::Unknown, why)
    }

    pub(super) fn until(mut self, expires_at: Timestamp) -> Self {
        self.expires_at = Some(expires_at);
        self
    }

    pub(super) fn since(mut self, created_at: Timestamp) -> Self {
        self.created_at = Some(created_at);
        self
    }

    pub(super) fn of_grant(mut self, id: Option<GrantId>) -> Self {
        self.grant_id = id;
        self
    }

    /// That of a record with a life of its own, without renewing it.
    pub(super) async fn of(standing: &Standing<'_>) -> Result<Self> {
        let now = standing.stores.now();
        let record = standing.stores.backend().get(&standing.keys[0], now).await?;
        let mut fate = match record {
            Some(record) => {
                let lifetime = (standing.lifetime)(&record)?;
                let why = if lifetime.slides() { "it stands, and use renews it" } else { "it stands" };
                let mut fate =
                    Self::new(State::Live, why).since(lifetime.began_at()?).until(record.expires_at);
                fate.cap_at = lifetime.cap_at()?;
                fate
            }
            None => Self::unknown(ABSENT),
        };
        fate.target = Some(standing.target.clone());
        Ok(fate)
    }
}

const ABSENT: &str = "nothing stands there: it was never written, or was deleted, or its time is over";

/// Explains the records of one scope.
#[derive(Debug, Clone)]
pub struct Explain {
    stores: Stores,
    scope: Scope,
}

impl Explain {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// What has become of a record, and what the audit log tells of it. It reads the whole log of the scope: an
    /// administrator's operation.
    pub async fn explain(&self, question: &Question) -> Result<Explanation> {
        let fate = self.fate(question).await?;
        let kind = question.kind();
        let history = match &fate.target {
            Some(target) => self.history(kind, target).await?,
            None => Vec::new(),
        };
        let mut explanation = Explanation {
            kind,
            scope: self.scope.clone(),
            state: fate.state,
            why: fate.why,
            created_at: fate.created_at,
            expires_at: fate.expires_at,
            cap_at: fate.cap_at,
            grant_id: fate.grant_id,
            history,
        };
        if explanation.state == State::Unknown {
            explanation.remember(self.stores.now());
        }
        Ok(explanation)
    }

    async fn fate(&self, question: &Question) -> Result<Fate> {
        let (stores, scope) = (&self.stores, &self.scope);
        match question {
            Question::Replay(proof) => stores.replays(scope).fate(proof).await,
            Question::Nonce { audience, nonce } => stores.nonces(scope).fate(audience, nonce).await,
            Question::Code(code) => stores.codes(scope).fate(code).await,
            Question::Grant(id) => stores.grants(scope).fate(*id).await,
            Question::RefreshToken(token) => stores.grants(scope).fate_of_token(token).await,
            Question::AccessToken(token) => stores.access_tokens(scope).fate(token).await,
            Question::Attribute { owner, bucket, name } => {
                stores.attributes(scope).bucket(owner, bucket)?.fate(name).await
            }
            Question::Approval { identity, resource, action } => {
                stores.approvals(scope).fate(identity, resource, action).await
            }
            Question::Relationship(edge) => stores.relationships(scope).fate(edge).await,
            Question::ApiKey(id) if id.scope() == scope => stores.api_keys(scope).fate(id).await,
            Question::ApiKey(_) => Ok(Fate::unknown("it is a key of another scope")),
        }
    }

    async fn history(&self, kind: Kind, target: &[String]) -> Result<Vec<Entry>> {
        let (audit, mut entries, mut after) = (self.stores.audit(&self.scope), Vec::new(), None);
        loop {
            let page = audit.list(after.as_ref(), 500).await?;
            entries.extend(
                page.items.into_iter().filter(|entry| entry.kind == Some(kind) && entry.target == target),
            );
            after = page.next;
            if after.is_none() {
                return Ok(entries);
            }
        }
    }
}

impl Explanation {
    /// What the log remembers of a record that is absent.
    fn remember(&mut self, now: Timestamp) {
        let Some(last) = self.history.last() else { return };
        match (last.action, last.after) {
            (Action::Revoke, _) => {
                self.state = State::Revoked;
                self.why = format!("it was revoked at {}, and nothing stands there since", last.at);
            }
            (Action::Extend, Some(after)) if after <= now => {
                self.state = State::Expired;
                self.why = format!("its last extension was until {after}, and nothing stands there since");
                self.expires_at = Some(after);
            }
            _ => {}
        }
    }
}
