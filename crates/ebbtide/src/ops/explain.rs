//! Explanation of one record: its state, the reason, and who extended or revoked it.
//!
//! An explanation changes and renews nothing. A record that has expired is absent here as everywhere, unless its store
//! or the audit log keeps what happened to it.
//!
//! ```
//! use ebbtide::ops::explain::{ExplainQuestion, RecordState};
//! use ebbtide::stores::approvals::{Approval, ApprovalQuestion};
//! use ebbtide::Ebbtide;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! acme.approvals().grant(&Approval::new("alice", "doc", "GET", "admin")).await?;
//!
//! let question = ExplainQuestion::Approvals(ApprovalQuestion::new("alice", "doc", "GET"));
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
use crate::stores::audit::{Action, AuditEntry};
use crate::stores::grants::GrantId;
pub use crate::stores::registry::ExplainQuestion;
pub use crate::stores::shared::finding::RecordState;
use crate::stores::shared::lifetime::SLIDES;
use crate::timekeeping::Now;

/// Answer to an [`ExplainQuestion`].
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
    pub history: Vec<AuditEntry>,
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
    pub async fn explain(&self, question: &ExplainQuestion) -> Result<Explanation> {
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
    /// Takes the state of an absent record from the audit log: who granted and extended it, and since when it is over.
    fn recall(&mut self, now: Now) -> Result<()> {
        let Some(last) = self.history.last() else { return Ok(()) };
        let told = self.history.iter().filter_map(told).collect::<Vec<_>>().join(", ");
        match (last.action, last.after) {
            (Action::Revoke, _) => {
                self.state = RecordState::Revoked;
                self.why = format!("it was revoked {}; {told}", ago(last.at, now));
            }
            (Action::Grant | Action::Extend, Some(after)) if !now.before(after)? => {
                self.state = RecordState::Expired;
                // Renewal by use is not in the log.
                let least = if self.history.iter().any(slides) { "at the earliest " } else { "" };
                self.why = format!("it ended {least}{}; {told}", ago(after, now));
                self.expires_at = Some(after);
            }
            (Action::Grant | Action::Extend, _) => {
                self.why = format!(
                    "there is no record, though {told}: its owner or its scope was deleted, or it was moved to another scope"
                );
            }
            _ => {}
        }
        let granted = self.history.iter().rev().find(|entry| entry.action == Action::Grant);
        self.created_at = granted.map(|entry| entry.at);
        Ok(())
    }
}

/// Words about an entry: the actor and the time.
fn told(entry: &AuditEntry) -> Option<String> {
    let did = match entry.action {
        Action::Grant => "granted",
        Action::Extend => "extended",
        Action::Revoke => "revoked",
        _ => return None,
    };
    Some(format!("{} {did} it at {}", entry.actor, rfc3339(entry.at)))
}

fn slides(entry: &AuditEntry) -> bool {
    entry.detail.as_deref() == Some(SLIDES)
}

/// Distance from a time to now, and the time.
fn ago(at: Timestamp, now: Now) -> String {
    format!("{} ago, at {}", span(now.latest().since(at).as_secs()), rfc3339(at))
}

/// Time in UTC.
fn rfc3339(at: Timestamp) -> String {
    let time = i64::try_from(at.as_millis()).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    time.map_or_else(|| at.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Duration for people: its largest unit, and the next one where it matters.
#[must_use]
pub fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let Some(at) = UNITS.iter().position(|(size, _)| seconds >= *size) else { return "0 s".to_owned() };
    let (size, unit) = UNITS[at];
    let (whole, rest) = (seconds / size, seconds % size);
    match UNITS.get(at + 1) {
        Some((smaller, name)) if whole < 10 && rest / smaller > 0 => {
            format!("{whole} {unit} {} {name}", rest / smaller)
        }
        _ => format!("{whole} {unit}"),
    }
}
