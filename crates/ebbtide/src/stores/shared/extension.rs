//! Longer lives: a privileged call, with an actor and a reason, that is audited in the commit that extends.

use std::fmt;

use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::record::Version;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::audit::{Action, Note};

/// A longer life, by whom and why. Whoever can make one can keep access alive: ask for the right to first.
#[derive(Clone)]
pub struct Extension {
    actor: String,
    reason: String,
    life: Life,
}

#[derive(Debug, Clone, Copy)]
enum Life {
    By(Ttl),
    FromNow(Ttl),
    Until(Timestamp),
}

impl Extension {
    /// So much longer than it would have lived. A call whose answer was lost may have happened: repeating it adds
    /// again, which [`until`](Self::until) does not.
    pub fn by(more: Ttl, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::new(Life::By(more), actor.into(), reason.into())
    }

    /// For that long from now.
    pub fn from_now(ttl: Ttl, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::new(Life::FromNow(ttl), actor.into(), reason.into())
    }

    /// Until that time.
    pub fn until(time: Timestamp, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::new(Life::Until(time), actor.into(), reason.into())
    }

    fn new(life: Life, actor: String, reason: String) -> Result<Self> {
        crate::stores::audit::check_words(&actor, &reason)?;
        Ok(Self { actor, reason, life })
    }

    /// What becomes of a life that ends at `present` and must not pass `cap_at`.
    pub(crate) fn judge(
        &self,
        present: Timestamp,
        cap_at: Timestamp,
        now: Timestamp,
    ) -> Result<ExtensionVerdict> {
        let asked = match self.life {
            Life::By(more) => present.checked_add(more.duration())?,
            Life::FromNow(ttl) => ttl.expires_at(now)?,
            Life::Until(time) => time,
        };
        Ok(if asked <= present {
            ExtensionVerdict::Refused(ExtendOutcome::NotLonger { expires_at: present })
        } else if asked > cap_at {
            ExtensionVerdict::Refused(ExtendOutcome::BeyondCap { expires_at: present, cap_at })
        } else {
            ExtensionVerdict::Longer(asked)
        })
    }

    /// The entry of the audit log for it.
    pub(crate) fn note(
        &self,
        kind: Kind,
        target: Vec<String>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Note> {
        let note = Note::new(Action::Extend, &self.actor, &self.reason)?.about(kind, target);
        Ok(note.with_expiry(from, to))
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({:?})", self.life)
    }
}

pub(crate) enum ExtensionVerdict {
    Longer(Timestamp),
    Refused(ExtendOutcome),
}

/// The answer to an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only one of the answers means that it lives longer"]
pub enum ExtendOutcome {
    /// It lives longer now, and the audit log says so.
    ExtendOutcome {
        /// When it ends.
        expires_at: Timestamp,
        /// When it would have ended.
        was: Timestamp,
        /// The version that this wrote.
        version: Version,
    },
    /// It lives that long anyway: an extension never shortens.
    NotLonger {
        /// When it ends.
        expires_at: Timestamp,
    },
    /// It would live past its cap, or past the longest life that the policy allows.
    BeyondCap {
        /// When it ends.
        expires_at: Timestamp,
        /// The latest time to which it can be extended.
        cap_at: Timestamp,
    },
    /// There is none, or no longer: an extension never revives.
    Unknown,
}

impl ExtendOutcome {
    /// Whether it lives longer now.
    #[must_use]
    pub fn is_extended(self) -> bool {
        matches!(self, Self::ExtendOutcome { .. })
    }
}
