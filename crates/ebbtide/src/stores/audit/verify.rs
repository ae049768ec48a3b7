//! Whether the chain is whole.

use super::Audit;
use super::entry::{Entry, Head, Mark, Sealed, sequence_of};
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// What became of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a broken log must be looked at"]
pub enum AuditOutcome {
    /// Every entry that should be there is, as it was written.
    Intact {
        /// How many entries there are.
        entries: u64,
        /// Where the chain ends; none before the first entry.
        head: Option<Mark>,
    },
    /// The first entry that is not as it was written.
    Broken {
        /// Its number.
        sequence: u64,
        /// What is wrong with it.
        why: Break,
    },
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// It is not what was written.
    Changed,
    /// It is not there.
    Missing,
    /// It was not written by the log: the head does not know of it.
    Added,
}

/// Whether the walk goes on, or what it found.
type Step = std::result::Result<(), (u64, Break)>;

impl Audit {
    /// Walks the whole chain, oldest first, and finds the first entry that was changed, removed or added. With a
    /// mark that was kept elsewhere, also whether the log still leads through it, as long as that entry is kept.
    ///
    /// It reads every entry. What is appended meanwhile does no harm.
    pub async fn verify(&self, kept: Option<&Mark>) -> Result<AuditOutcome> {
        match self.walk(kept).await? {
            // An entry may have ended, and been swept, during a long walk: only what is found twice is true.
            AuditOutcome::Broken { .. } => self.walk(kept).await,
            intact @ AuditOutcome::Intact { .. } => Ok(intact),
        }
    }

    async fn walk(&self, kept: Option<&Mark>) -> Result<AuditOutcome> {
        let now = self.stores.now();
        // Before the entries: what is appended from here on is behind this head.
        let Some((head, _)) = self.head(now).await? else { return self.headless(kept, now).await };
        let mut walk = Walk { audit: self, kept, head, now, entries: 0, last: None, passed: false };
        let mut after: Option<Cursor> = None;
        loop {
            let page = self.stores.backend().scan(&self.log()?, after.as_ref(), 500, now).await?;
            for (key, record) in &page.items {
                if let Err((sequence, why)) = walk.step(key, record)? {
                    return Ok(AuditOutcome::Broken { sequence, why });
                }
            }
            after = page.next;
            if after.is_none() {
                return walk.end().await;
            }
        }
    }

    /// Without a head there has never been an entry, nor anyone who kept a mark.
    async fn headless(&self, kept: Option<&Mark>, now: Timestamp) -> Result<AuditOutcome> {
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
    now: Timestamp,
    entries: u64,
    last: Option<Head>,
    /// Whether the walk has come through the head.
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

    /// Whether an entry whose own hash holds stands where the chain goes on.
    fn follows(&self, sealed: &Sealed) -> Result<Step> {
        let Some(last) = &self.last else {
            // The oldest that is kept. The one before it has ended, or it should be here.
            let ended = Timestamp::from_stored(sealed.previous_expires_at)? <= self.now;
            let missing = Err((sealed.sequence.saturating_sub(1), Break::Missing));
            return Ok(if sealed.sequence == 1 || ended { Ok(()) } else { missing });
        };
        Ok(if last.sequence + 1 != sealed.sequence {
            Err((last.sequence + 1, Break::Missing))
        } else if sealed.previous != last.hash || sealed.previous_expires_at != last.expires_at {
            // This one's own hash holds, so it is the one before that is not what it was.
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
        if !self.passed && self.head.expires_at > self.now.as_millis() {
            return missing(self.last.map_or(self.head.sequence, |last| last.sequence + 1));
        }
        if let Some(last) = self.last.filter(|last| last.sequence > self.head.sequence) {
            // Appended during the walk, so that the head has moved; or put there by another hand.
            let head = self.audit.head(self.now).await?.map_or(0, |(head, _)| head.sequence);
            if head < last.sequence {
                return Ok(AuditOutcome::Broken { sequence: head + 1, why: Break::Added });
            }
        }
        Ok(AuditOutcome::Intact { entries: self.entries, head: Some(self.head.mark()) })
    }
}
