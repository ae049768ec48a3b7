//! Selection of entries.

use super::entry::{Action, AuditEntry};
use crate::model::time::Timestamp;

/// Selection of entries of a log. Members that are not set select everything.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AuditFilter {
    /// A name among the target's: a subject, an identity, a client, a resource.
    pub subject: Option<String>,
    /// Id of the authenticated key.
    pub key: Option<String>,
    /// Action.
    pub action: Option<Action>,
    /// Earliest time.
    pub from: Option<Timestamp>,
    /// First time that is not selected any more.
    pub to: Option<Timestamp>,
}

impl AuditFilter {
    /// Returns whether the entry is selected.
    #[must_use]
    pub fn selects(&self, entry: &AuditEntry) -> bool {
        self.subject
            .as_ref()
            .is_none_or(|subject| entry.target.contains(subject) || entry.subject.as_ref() == Some(subject))
            && self.key.as_ref().is_none_or(|key| entry.key_id.as_ref() == Some(key))
            && self.action.is_none_or(|action| entry.action == action)
            && self.from.is_none_or(|from| entry.at >= from)
            && self.to.is_none_or(|to| entry.at < to)
    }
}
