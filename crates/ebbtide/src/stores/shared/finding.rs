//! Findings of a store about one of its records, for `explain`.

use super::lifetime::Standing;
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::stores::grants::GrantId;

/// State of a record, as `explain` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordState {
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

impl RecordState {
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

/// What a store itself knows of a record, and what the audit log calls it.
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

    /// That of a record with a life of its own, without renewing it.
    pub(crate) async fn of(standing: &Standing<'_>) -> Result<Self> {
        let now = standing.stores.now();
        let record = standing.stores.backend().get(&standing.keys[0], now).await?;
        let mut finding = match record {
            Some(record) => {
                let lifetime = (standing.lifetime)(&record)?;
                let why = if lifetime.slides() { "it stands, and use renews it" } else { "it stands" };
                let mut finding =
                    Self::new(RecordState::Live, why).since(lifetime.began_at()?).until(record.expires_at);
                finding.cap_at = lifetime.cap_at()?;
                finding
            }
            None => Self::unknown(ABSENT),
        };
        finding.target = Some(standing.target.clone());
        Ok(finding)
    }
}

const ABSENT: &str = "nothing stands there: it was never written, or was deleted, or its time is over";
