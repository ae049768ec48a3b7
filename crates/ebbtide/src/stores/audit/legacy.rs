//! Verification of a log from before there was a chain for each process. Nothing is appended to such a log any more.

use super::Audit;
use super::chain::Head;
use super::entry::{AuditEntry, Sealed};
use super::verify::Break;
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::timekeeping::Now;

/// Continues the walk, or ends it with a fault.
pub(super) type LegacyStep = std::result::Result<(), (u64, Break)>;

impl Audit {
    /// End of the log from before; none if there was none.
    pub(super) async fn legacy_head(&self, now: Now) -> Result<Option<(Head, Version)>> {
        let record = self.stores.backend().get(&self.legacy_head_key()?, now).await?;
        record.map(|record| Ok((codec::decode(&record.value)?, record.version))).transpose()
    }

    fn legacy_head_key(&self) -> Result<Key> {
        Key::new(Kind::Audit, &self.scope, &["head".into()], &[])
    }
}

/// Walk along the entries from before, oldest first.
pub(super) struct LegacyWalk<'a> {
    audit: &'a Audit,
    head: Option<Head>,
    now: Now,
    pub(super) entries: u64,
    last: Option<Head>,
    /// True after the walk has passed the head.
    passed: bool,
}

impl<'a> LegacyWalk<'a> {
    pub(super) fn new(audit: &'a Audit, head: Option<Head>, now: Now) -> Self {
        Self { audit, head, now, entries: 0, last: None, passed: false }
    }

    /// Checks the next entry.
    pub(super) fn step(&mut self, key: &Key, sequence: u64, record: &Record) -> Result<LegacyStep> {
        let changed = Ok(Err((sequence, Break::Changed)));
        let Ok(sealed) = codec::decode::<Sealed>(&record.value) else { return changed };
        let is_whole = sealed.sequence == sequence
            && *sealed.hash == sealed.computed_hash(&self.audit.scope)
            && AuditEntry::read(key, record).is_ok();
        if !is_whole {
            return changed;
        }
        if let Err(broken) = self.follows(&sealed)? {
            return Ok(Err(broken));
        }
        let reached = sealed.head(record.expires_at);
        let head = self.head.as_ref();
        if head.is_none_or(|head| head.sequence < sequence) {
            return Ok(Err((sequence, Break::Added)));
        }
        if head.is_some_and(|head| head.sequence == sequence) {
            self.passed = true;
            if head != Some(&reached) {
                return changed;
            }
        }
        self.entries += 1;
        self.last = Some(reached);
        Ok(Ok(()))
    }

    /// Checks that an entry with a valid hash continues the chain.
    fn follows(&self, sealed: &Sealed) -> Result<LegacyStep> {
        let Some(last) = &self.last else {
            // Oldest retained entry. Its predecessor has expired, or is missing.
            let ended = !self.now.before(Timestamp::from_stored(sealed.previous_expires_at)?)?;
            let missing = Err((sealed.sequence.saturating_sub(1), Break::Missing));
            return Ok(if sealed.sequence == 1 || ended { Ok(()) } else { missing });
        };
        Ok(if last.sequence + 1 != sealed.sequence {
            Err((last.sequence + 1, Break::Missing))
        } else if sealed.previous != last.hash || sealed.previous_expires_at != last.expires_at {
            // The hash of this entry is valid, so its predecessor was changed.
            Err((last.sequence, Break::Changed))
        } else {
            Ok(())
        })
    }

    /// Checks that the end was reached.
    pub(super) fn end(&self) -> Result<LegacyStep> {
        Ok(match &self.head {
            Some(head) if !self.passed && self.now.before(head.expires_at()?)? => {
                Err((self.last.as_ref().map_or(head.sequence, |last| last.sequence + 1), Break::Missing))
            }
            _ => Ok(()),
        })
    }

    /// Hash of the last entry with its number.
    pub(super) fn last(&self) -> Option<&Head> {
        self.last.as_ref()
    }
}
