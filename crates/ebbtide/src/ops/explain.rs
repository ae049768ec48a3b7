//! Why a record is live, expired, used or revoked, and who extended it: what an operator asks when someone complains.
//!
//! An explanation changes nothing and renews nothing. It tells only what the store would answer by: a record that has
//! expired is as absent here as everywhere, unless its kind remembers what became of it, or the audit log does.

use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::api_keys::KeyId;
use crate::stores::audit::{Action, Entry};
use crate::stores::grants::GrantId;
use crate::stores::relationships::Edge;
use crate::stores::replays::Proof;
use crate::stores::shared::finding::Finding;
pub use crate::stores::shared::finding::RecordState;

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
    /// A session, by its id.
    Session(Secret),
    /// A pushed request, by its URI.
    PushedRequest(Secret),
    /// A device code.
    DeviceCode(Secret),
    /// A client, by its id.
    Client(String),
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
            Self::Session(_) => Kind::Session,
            Self::PushedRequest(_) => Kind::PushedRequest,
            Self::DeviceCode(_) => Kind::DeviceCode,
            Self::Client(_) => Kind::Client,
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
    pub state: RecordState,
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

/// Explains the records of one scope.
#[derive(Debug, Clone)]
pub struct Explain {
    stores: Stores,
    scope: Scope,
}

impl Explain {
    /// Explanations of the records of `scope`.
    #[must_use]
    pub fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// What has become of a record, and what the audit log tells of it. It reads the whole log of the scope: an
    /// administrator's operation.
    pub async fn explain(&self, question: &Question) -> Result<Explanation> {
        let finding = self.find(question).await?;
        let kind = question.kind();
        let history = match &finding.target {
            Some(target) => self.history(kind, target).await?,
            None => Vec::new(),
        };
        let mut explanation = Explanation {
            kind,
            scope: self.scope.clone(),
            state: finding.state,
            why: finding.why,
            created_at: finding.created_at,
            expires_at: finding.expires_at,
            cap_at: finding.cap_at,
            grant_id: finding.grant_id,
            history,
        };
        if explanation.state == RecordState::Unknown {
            explanation.remember(self.stores.now());
        }
        Ok(explanation)
    }

    async fn find(&self, question: &Question) -> Result<Finding> {
        let (stores, scope) = (&self.stores, &self.scope);
        match question {
            Question::Replay(proof) => stores.replays(scope).explain(proof).await,
            Question::Nonce { audience, nonce } => stores.nonces(scope).explain(audience, nonce).await,
            Question::Code(code) => stores.codes(scope).explain(code).await,
            Question::Grant(id) => stores.grants(scope).explain(*id).await,
            Question::RefreshToken(token) => stores.grants(scope).explain_token(token).await,
            Question::AccessToken(token) => stores.access_tokens(scope).explain(token).await,
            Question::Attribute { owner, bucket, name } => {
                stores.attributes(scope).bucket(owner, bucket)?.explain(name).await
            }
            Question::Approval { identity, resource, action } => {
                stores.approvals(scope).explain(identity, resource, action).await
            }
            Question::Relationship(edge) => stores.relationships(scope).explain(edge).await,
            Question::ApiKey(id) if id.scope() == scope => stores.api_keys(scope).explain(id).await,
            Question::ApiKey(_) => Ok(Finding::unknown("it is a key of another scope")),
            Question::Session(id) => stores.sessions(scope).explain(id).await,
            Question::PushedRequest(uri) => stores.pushed_requests(scope).explain(uri).await,
            Question::DeviceCode(code) => stores.device_codes(scope).explain(code).await,
            Question::Client(id) => stores.clients(scope).explain(id).await,
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
                self.state = RecordState::Revoked;
                self.why = format!("it was revoked at {}, and nothing stands there since", last.at);
            }
            (Action::Extend, Some(after)) if after <= now => {
                self.state = RecordState::Expired;
                self.why = format!("its last extension was until {after}, and nothing stands there since");
                self.expires_at = Some(after);
            }
            _ => {}
        }
    }
}
