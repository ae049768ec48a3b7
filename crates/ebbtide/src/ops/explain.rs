//! Explanation of one record: its state, the reason, and who extended or revoked it.
//!
//! An explanation changes and renews nothing. A record that has expired is absent here as everywhere, unless its store
//! or the audit log keeps what happened to it.
//!
//! ```
//! use ebbtide::ops::explain::{Question, RecordState};
//! use ebbtide::stores::approvals::{Approval, ApprovalQuestion};
//! use ebbtide::Ebbtide;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! acme.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await?;
//!
//! let question = Question::Approvals(ApprovalQuestion::new("alice", "doc", "GET"));
//! let explanation = acme.explain().explain(&question).await?;
//! assert_eq!(explanation.state, RecordState::Live);
//! # Ok(())
//! # }
//! ```

use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::audit::{Action, Entry};
use crate::stores::grants::GrantId;
pub use crate::stores::registry::Question;
pub use crate::stores::shared::finding::RecordState;
use crate::timekeeping::Now;

/// Answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Explanation {
    /// Kind of the record.
    pub kind: Kind,
    /// Scope in which it was looked for.
    pub scope: Scope,
    /// State of the record.
    pub state: RecordState,
    /// Reason for the state, in words.
    pub why: String,
    /// Time at which it was first written, where that is known.
    pub created_at: Option<Timestamp>,
    /// Time at which it expires or expired, where that is known.
    pub expires_at: Option<Timestamp>,
    /// Latest expiry that it can have, where there is one.
    pub cap_at: Option<Timestamp>,
    /// Grant that it is, belongs to, or issued.
    pub grant_id: Option<GrantId>,
    /// Entries about it in the audit log of the scope, oldest first: extensions and revocations.
    pub history: Vec<Entry>,
}

/// Explains the records of one scope.
#[derive(Debug, Clone)]
pub struct Explain {
    stores: Stores,
    scope: Scope,
}

impl Explain {
    /// Explains records of `scope`.
    #[must_use]
    pub fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Explains a record. It reads the whole audit log of the scope: an administrator's operation.
    pub async fn explain(&self, question: &Question) -> Result<Explanation> {
        let finding = question.find(&self.stores, &self.scope).await?;
        let kind = question.kind();
        let history = match &finding.target {
            Some(target) => self.stores.audit(&self.scope).about(kind, target).await?,
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
            explanation.recall(self.stores.now()?)?;
        }
        Ok(explanation)
    }
}

impl Explanation {
    /// Takes the state of an absent record from the audit log.
    fn recall(&mut self, now: Now) -> Result<()> {
        let Some(last) = self.history.last() else { return Ok(()) };
        match (last.action, last.after) {
            (Action::Revoke, _) => {
                self.state = RecordState::Revoked;
                self.why = format!("it was revoked at {}, and there is no record since", last.at);
            }
            (Action::Extend, Some(after)) if !now.before(after)? => {
                self.state = RecordState::Expired;
                self.why = format!("its last extension was until {after}, and there is no record since");
                self.expires_at = Some(after);
            }
            _ => {}
        }
        Ok(())
    }
}
