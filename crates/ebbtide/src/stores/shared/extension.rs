//! Extensions: privileged calls with an actor and a reason, audited in the same commit.

use std::fmt;

use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::record::Version;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::audit::{Action, AuditContext, Note};
use crate::timekeeping::Now;

/// Extension of a lifetime, with actor and reason. It prolongs access: authorize the caller first.
#[derive(Clone)]
pub struct Extension {
    context: AuditContext,
    expiry: NewExpiry,
}

#[derive(Debug, Clone, Copy)]
enum NewExpiry {
    By(Ttl),
    FromNow(Ttl),
    Until(Timestamp),
}

impl Extension {
    /// Extends by `more`. A call whose answer was lost may have happened: repeating it extends again, which
    /// [`until`](Self::until) does not.
    pub fn by(more: Ttl, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::new(NewExpiry::By(more), actor.into(), reason.into())
    }

    /// Extends to `ttl` from now.
    pub fn from_now(ttl: Ttl, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::new(NewExpiry::FromNow(ttl), actor.into(), reason.into())
    }

    /// Extends to a time.
    pub fn until(time: Timestamp, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::new(NewExpiry::Until(time), actor.into(), reason.into())
    }

    /// Extends to `ttl` from now, in the context of the author.
    #[must_use]
    pub fn from_now_in(ttl: Ttl, context: AuditContext) -> Self {
        Self { context, expiry: NewExpiry::FromNow(ttl) }
    }

    fn new(expiry: NewExpiry, actor: String, reason: String) -> Result<Self> {
        Ok(Self { context: AuditContext::new(actor, reason)?, expiry })
    }

    /// Judges the extension of a record that expires at `present` and must not pass `cap_at`.
    pub(crate) fn judge(&self, present: Timestamp, cap_at: Timestamp, now: Now) -> Result<ExtensionVerdict> {
        let asked = match self.expiry {
            NewExpiry::By(more) => present.checked_add(more.duration())?,
            NewExpiry::FromNow(ttl) => now.end(ttl)?,
            NewExpiry::Until(time) => time,
        };
        Ok(if asked <= present {
            ExtensionVerdict::Refused(ExtendOutcome::NotLonger { expires_at: present })
        } else if asked > cap_at {
            ExtensionVerdict::Refused(ExtendOutcome::BeyondCap { expires_at: present, cap_at })
        } else {
            ExtensionVerdict::Longer(asked)
        })
    }

    /// Entry of the audit log.
    pub(crate) fn note(
        &self,
        kind: Kind,
        target: Vec<String>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Note> {
        let note = Note::of(Action::Extend, &self.context)?.about(kind, target);
        Ok(note.with_expiry(from, to))
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({:?})", self.expiry)
    }
}

pub(crate) enum ExtensionVerdict {
    Longer(Timestamp),
    Refused(ExtendOutcome),
}

/// Answer to an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only `Extended` is an extension"]
#[non_exhaustive]
pub enum ExtendOutcome {
    /// It was extended, and the audit log has an entry.
    Extended {
        /// Time at which it expires.
        expires_at: Timestamp,
        /// Previous expiry.
        was: Timestamp,
        /// Version that the extension wrote.
        version: Version,
    },
    /// It does not expire before that anyway: an extension never shortens.
    NotLonger {
        /// Time at which it expires.
        expires_at: Timestamp,
    },
    /// It would pass its cap, or the longest lifetime that the policy allows.
    BeyondCap {
        /// Time at which it expires.
        expires_at: Timestamp,
        /// Latest time to which it can be extended.
        cap_at: Timestamp,
    },
    /// There is none: an extension never revives.
    Unknown,
}

impl ExtendOutcome {
    /// Returns whether it was extended.
    #[must_use]
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Extended { .. })
    }
}
