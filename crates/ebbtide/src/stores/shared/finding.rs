//! Findings of a store about one of its records, for `explain`.

use super::epochs::Death;
use super::lifetime::{Present, RecordHandle};
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::stores::grants::GrantId;

/// State of a record, as `explain` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordState {
    /// It is live.
    Live,
    /// It has expired.
    Expired,
    /// It was used, and is valid for one use.
    Used,
    /// It was revoked.
    Revoked,
    /// Nothing is known of it: it was never written, was deleted, or has expired.
    Unknown,
}

impl RecordState {
    /// Name, in lower case.
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

/// Finding of a store, and the names of the record in the audit log.
pub(crate) struct Finding {
    pub(crate) state: RecordState,
    pub(crate) why: String,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) cap_at: Option<Timestamp>,
    pub(crate) grant_id: Option<GrantId>,
    pub(crate) target: Option<Vec<String>>,
}

impl Finding {
    pub(crate) fn new(state: RecordState, why: impl Into<String>) -> Self {
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

    pub(crate) fn unknown(why: &str) -> Self {
        Self::new(RecordState::Unknown, why)
    }

    /// Finding about what a sign-out, a revocation by client or the end of a session has ended.
    pub(crate) fn dead(death: Death) -> Self {
        if death.deleting {
            return Self::unknown("its subject or its client is being deleted");
        }
        Self::new(RecordState::Revoked, death.why.words())
    }

    pub(crate) fn until(mut self, expires_at: Timestamp) -> Self {
        self.expires_at = Some(expires_at);
        self
    }

    pub(crate) fn since(mut self, created_at: Timestamp) -> Self {
        self.created_at = Some(created_at);
        self
    }

    pub(crate) fn of_grant(mut self, id: Option<GrantId>) -> Self {
        self.grant_id = id;
        self
    }

    /// Finding about a record with a lifetime, without renewing it.
    pub(crate) async fn of(handle: &RecordHandle<'_>) -> Result<Self> {
        let now = handle.stores.now()?;
        let mut finding = match handle.present(now).await? {
            Some(Present::Ended(record)) => {
                let lifetime = (handle.lifetime)(&record)?;
                let mut ended = Self::new(RecordState::Expired, ORPHANED)
                    .since(lifetime.began_at()?)
                    .until(record.expires_at);
                ended.cap_at = lifetime.cap_at()?;
                ended
            }
            Some(Present::Live(record)) => {
                let lifetime = (handle.lifetime)(&record)?;
                let why = if lifetime.slides() { "it is live, and use renews it" } else { "it is live" };
                let mut finding =
                    Self::new(RecordState::Live, why).since(lifetime.began_at()?).until(record.expires_at);
                finding.cap_at = lifetime.cap_at()?;
                finding
            }
            None => Self::unknown(ABSENT),
        };
        finding.target = Some(handle.target.clone());
        Ok(finding)
    }
}

const ORPHANED: &str = "what it belongs to has ended or was removed, and it ended with that";

const ABSENT: &str = "there is no record: it was never written, was deleted, or has expired";
