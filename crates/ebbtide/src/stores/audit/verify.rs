//! Verification of the chain.

use super::entry::{Entry, Head, Mark, Sealed, sequence_of};
use super::{Audit, PAGE};
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::stores::shared::paging::Pages;
use crate::timekeeping::Now;

/// Result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a broken log must be looked at"]
pub enum AuditOutcome {
    /// Every entry is present and unchanged.
    Intact {
        /// Number of entries.
        entries: u64,
        /// End of the chain; none before the first entry.
        head: Option<Mark>,
    },
    /// An entry is missing, changed or was added.
    Broken {
        /// Number of the first such entry.
        sequence: u64,
        /// Fault of the entry.
        why: Break,
    },
}

/// Fault of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// It was changed.
    Changed,
    /// It is missing.
    Missing,
    /// It was added: the head does not know it.
    Added,
}

/// Continues the walk, or ends it with a fault.
type Step = std::result::Result<(), (u64, Break)>;

impl Audit {
    /// Reads the whole chain, oldest first, and finds the first entry that was changed, removed or added. With a
    /// mark, it also checks that the log has the marked entry, as long as that is retained.
    ///
    /// It reads every entry. Entries that are appended meanwhile are harmless.
    pub async fn verify(&self, kept: Option<&Mark>) -> Result<AuditOutcome> {
        match self.walk(kept).await? {
            // An entry may have expired and been swept during a long walk: a fault counts if it is found twice.
            AuditOutcome::Broken { .. } => self.walk(kept).await,
            intact @ AuditOutcome::Intact { .. } => Ok(intact),
        }
    }

    async fn walk(&self, kept: Option<&Mark>) -> Result<AuditOutcome> {
        let now = self.stores.now()?;
        // The head is read before the entries: later ones come after it.
        let Some((head, _)) = self.head(now).await? else { return self.headless(kept, now).await };
        let mut walk = Walk { audit: self, kept, head, now, entries: 0, last: None, passed: false };
        let log = self.log()?;
        let mut pages = Pages::new(&self.stores, &log, PAGE).at(now);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                if let Err((sequence, why)) = walk.step(key, record)? {
                    return Ok(AuditOutcome::Broken { sequence, why });
                }
            }
        }
        walk.end().await
    }

    /// Without a head there has never been an entry or a mark.
    async fn headless(&self, kept: Option<&Mark>, now: Now) -> Result<AuditOutcome> {
        let page = self.stores.backend().scan(&self.log()?, None, 1, now).await?;
        Ok(match (page.items.first(), kept) {
            (Some((key, _)), _) => AuditOutcome::Broken { sequence: sequence_of(key)?, why: Break::Added },
            (None, Some(kept)) => AuditOutcome::Broken { sequence: kept.sequence, why: Break::Missing },
            (None, None) => AuditOutcome::Intact { entries: 0, head: None },
        })
    }
}

struct Walk<'a> {
    audit: &'a Audit,
    kept: Option<&'a Mark>,
    head: Head,
    now: Now,
    entries: u64,
    last: Option<Head>,
    /// True after the walk has passed the head.
    passed: bool,
}

impl Walk<'_> {
    fn step(&mut self, key: &Key, record: &Record) -> Result<Step> {
        let sequence = sequence_of(key)?;
        let changed = Ok(Err((sequence, Break::Changed)));
        let Ok(sealed) = codec::decode::<Sealed>(&record.value) else { return changed };
        let is_whole = sealed.sequence == sequence
            && *sealed.hash == sealed.computed_hash(&self.audit.scope)
            && Entry::read(key, record).is_ok();
        if !is_whole {
            return changed;
        }
        if let Err(broken) = self.follows(&sealed)? {
            return Ok(Err(broken));
        }
        let reached = sealed.head(record.expires_at);
        if self.head.sequence == sequence {
            self.passed = true;
            if self.head != reached {
                return changed;
            }
        }
        if self.kept.is_some_and(|kept| kept.sequence == sequence && *kept != reached.mark()) {
            return changed;
        }
        self.entries += 1;
        self.last = Some(reached);
        Ok(Ok(()))
    }

    /// Checks that an entry with a valid hash continues the chain.
    fn follows(&self, sealed: &Sealed) -> Result<Step> {
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

    async fn end(self) -> Result<AuditOutcome> {
        let missing = |sequence| Ok(AuditOutcome::Broken { sequence, why: Break::Missing });
        if let Some(kept) = self.kept.filter(|kept| kept.sequence > self.head.sequence) {
            return missing(kept.sequence);
        }
        if !self.passed && self.now.before(Timestamp::from_stored(self.head.expires_at)?)? {
            return missing(self.last.map_or(self.head.sequence, |last| last.sequence + 1));
        }
        if let Some(last) = self.last.filter(|last| last.sequence > self.head.sequence) {
            // Appended during the walk, which moves the head, or added by someone else.
            let head = self.audit.head(self.now).await?.map_or(0, |(head, _)| head.sequence);
            if head < last.sequence {
                return Ok(AuditOutcome::Broken { sequence: head + 1, why: Break::Added });
            }
        }
        Ok(AuditOutcome::Intact { entries: self.entries, head: Some(self.head.mark()) })
    }
}
