//! Verification of the chains.

use std::collections::HashMap;

use super::chain::{ChainId, Head, Link};
use super::entry::{AuditEntry, EntryPosition};
use super::legacy;
use super::mark::{ChainMark, Mark};
use super::{Audit, PAGE};
use crate::keyring::Keyring;
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::stores::shared::paging::Pages;
use crate::timekeeping::Now;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a broken log must be looked at"]
#[non_exhaustive]
pub enum AuditOutcome {
    /// Every entry is present and unchanged.
    Intact {
        /// Number of entries.
        entries: u64,
        /// Ends of the chains; none before the first entry.
        head: Option<Mark>,
    },
    /// An entry is missing, changed or was added.
    Broken {
        /// Chain of the entry; none for an entry from before there were chains.
        chain: Option<ChainId>,
        /// Number of the first such entry.
        sequence: u64,
        /// Fault of the entry.
        why: Break,
    },
}

/// Fault of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Break {
    /// It was changed.
    Changed,
    /// It is missing.
    Missing,
    /// It was added: the head does not know it.
    Added,
    /// A checkpoint of the chain's process is not genuine; the number of the entry is not known.
    Checkpoint,
}

/// Place of the first fault of a chain.
pub(super) type ChainFault = (Option<ChainId>, u64, Break);

impl Audit {
    /// Reads the whole log, and finds the first entry that was changed, removed or added. It compares the chains with
    /// their heads, with the checkpoints of every process, with what this process has written itself, and with `kept`.
    ///
    /// Entries that are appended meanwhile are harmless.
    pub async fn verify(&self, kept: Option<&Mark>) -> Result<AuditOutcome> {
        match self.walk(kept).await? {
            // An entry may have expired and been swept during a long walk: a fault counts if it is found twice.
            AuditOutcome::Broken { .. } => self.walk(kept).await,
            intact @ AuditOutcome::Intact { .. } => Ok(intact),
        }
    }

    async fn walk(&self, kept: Option<&Mark>) -> Result<AuditOutcome> {
        let now = self.stores.now()?;
        // Marks and heads are read before the entries: later ones come after them.
        let mut marks = match self.checkpointed(now).await? {
            Ok(marks) => marks,
            Err(fault) => return Ok(broken(fault)),
        };
        marks.extend(self.stores.chains().written(&self.scope));
        marks.extend(kept.into_iter().flat_map(Mark::chains));
        let legacy_head = self.legacy_head(now).await?.map(|(head, _)| head);
        let heads = match self.heads(now).await? {
            Ok(heads) => heads,
            Err(fault) => return Ok(broken(fault)),
        };
        let mut walk = ChainWalk {
            audit: self,
            keyring: &self.stores.keyring(),
            legacy: legacy::LegacyWalk::new(self, legacy_head.clone(), now),
            chains: HashMap::new(),
            places: places(&marks),
            marks: &marks,
            met: vec![false; marks.len()],
            now,
            entries: 0,
        };
        let log = self.log()?;
        let mut pages = Pages::new(&self.stores, &log, PAGE).at(now);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                if let Err(fault) = walk.step(key, record)? {
                    return Ok(broken(fault));
                }
            }
        }
        if let Err(fault) = walk.end(&heads).await? {
            return Ok(broken(fault));
        }
        let mut ends: Vec<_> = legacy_head.map(|head| head.mark(None)).into_iter().collect();
        ends.extend(heads.iter().map(|(id, head)| head.mark(Some(*id))));
        ends.sort_by_key(|mark| mark.chain);
        let head = (!ends.is_empty()).then_some(Mark(ends));
        Ok(AuditOutcome::Intact { entries: walk.entries + walk.legacy.entries, head })
    }

    /// Ends of the chains, as they are stored.
    pub(super) async fn heads(
        &self,
        now: Now,
    ) -> Result<std::result::Result<HashMap<ChainId, Head>, ChainFault>> {
        let prefix = Prefix::partition(Kind::Audit, &self.scope, &["heads".into()], &[])?;
        let (mut pages, mut heads) = (Pages::new(&self.stores, &prefix, PAGE).at(now), HashMap::new());
        let keyring = self.stores.keyring();
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let sort = key.sort();
                let [Part::Bytes(id)] = sort.as_slice() else { continue };
                let id = ChainId::from_bytes(id)?;
                let Some(head) = Head::read(record, &self.scope, id, &keyring) else {
                    return Ok(Err((Some(id), 0, Break::Changed)));
                };
                heads.insert(id, head);
            }
        }
        Ok(Ok(heads))
    }
}

fn broken((chain, sequence, why): ChainFault) -> AuditOutcome {
    AuditOutcome::Broken { chain, sequence, why }
}

fn places(marks: &[ChainMark]) -> HashMap<(Option<ChainId>, u64), Vec<usize>> {
    let mut places: HashMap<_, Vec<_>> = HashMap::new();
    for (index, mark) in marks.iter().enumerate() {
        places.entry((mark.chain, mark.sequence)).or_default().push(index);
    }
    places
}

struct ChainWalk<'a> {
    audit: &'a Audit,
    keyring: &'a Keyring,
    legacy: legacy::LegacyWalk<'a>,
    /// Last entry of each chain, with its time.
    chains: HashMap<ChainId, (Head, u64)>,
    marks: &'a [ChainMark],
    /// Marks by their chain and number.
    places: HashMap<(Option<ChainId>, u64), Vec<usize>>,
    /// Marks whose entries the walk has met.
    met: Vec<bool>,
    now: Now,
    entries: u64,
}

impl ChainWalk<'_> {
    fn step(&mut self, key: &Key, record: &Record) -> Result<std::result::Result<(), ChainFault>> {
        let (at, chain, sequence) = match EntryPosition::of(key)? {
            EntryPosition::Chain { at, chain, sequence } => (at, chain, sequence),
            EntryPosition::Legacy { sequence } => {
                if let Err((sequence, why)) = self.legacy.step(key, sequence, record)? {
                    return Ok(Err((None, sequence, why)));
                }
                let last = self.legacy.last().cloned();
                return Ok(last.map_or(Ok(()), |head| self.compare(None, &head)));
            }
        };
        let changed = Ok(Err((Some(chain), sequence, Break::Changed)));
        let Ok(link) = codec::decode::<Link>(&record.value) else { return changed };
        let Ok(entry) = AuditEntry::read(key, record) else { return changed };
        let genuine = link.is_genuine(&self.audit.scope, chain, record.expires_at, self.keyring);
        if !genuine || link.sequence != sequence || entry.at.as_millis() != at {
            return changed;
        }
        if let Err(fault) = self.follows(chain, &link)? {
            return Ok(Err(fault));
        }
        let reached = link.head(record.expires_at);
        if let Err(fault) = self.compare(Some(chain), &reached) {
            return Ok(Err(fault));
        }
        self.entries += 1;
        self.chains.insert(chain, (reached, at));
        Ok(Ok(()))
    }

    /// Checks that a genuine entry continues its chain.
    fn follows(&self, chain: ChainId, link: &Link) -> Result<std::result::Result<(), ChainFault>> {
        let fault = |sequence, why| Ok(Err((Some(chain), sequence, why)));
        let Some((last, _)) = self.chains.get(&chain) else {
            // Oldest retained entry. Its predecessor has expired, or is missing.
            let ended = !self.now.before(Timestamp::from_stored(link.previous_expires_at)?)?;
            return if link.sequence == 1 || ended {
                Ok(Ok(()))
            } else {
                fault(link.sequence - 1, Break::Missing)
            };
        };
        if link.sequence <= last.sequence {
            return fault(link.sequence, Break::Added);
        }
        if last.sequence + 1 != link.sequence {
            return fault(last.sequence + 1, Break::Missing);
        }
        if link.previous != last.hash || link.previous_expires_at != last.expires_at {
            return fault(last.sequence, Break::Changed);
        }
        Ok(Ok(()))
    }

    /// Compares an entry with the marks of its place.
    fn compare(&mut self, chain: Option<ChainId>, reached: &Head) -> std::result::Result<(), ChainFault> {
        for &index in self.places.get(&(chain, reached.sequence)).into_iter().flatten() {
            if self.marks[index].hash.as_bytes() != &reached.hash[..] {
                return Err((chain, reached.sequence, Break::Changed));
            }
            self.met[index] = true;
        }
        Ok(())
    }

    /// Checks that every chain ends at its head, and that every mark was met.
    async fn end(&self, heads: &HashMap<ChainId, Head>) -> Result<std::result::Result<(), ChainFault>> {
        if let Err((sequence, why)) = self.legacy.end()? {
            return Ok(Err((None, sequence, why)));
        }
        let live = |expires_at: u64| self.now.before(Timestamp::from_stored(expires_at)?);
        let mut missing: Option<ChainFault> = None;
        for (mark, met) in self.marks.iter().zip(&self.met) {
            // A mark that was kept elsewhere does not know when its entry expires; the end of its chain bounds it.
            let expires_at = mark.expires_at.unwrap_or_else(|| {
                let later = mark
                    .chain
                    .and_then(|chain| self.chains.get(&chain))
                    .is_some_and(|(last, _)| last.sequence > mark.sequence);
                if later { 0 } else { Timestamp::NEVER.as_millis() }
            });
            let is_first = missing.is_none_or(|(_, sequence, _)| mark.sequence < sequence);
            if !met && is_first && live(expires_at)? {
                missing = Some((mark.chain, mark.sequence, Break::Missing));
            }
        }
        if let Some(fault) = missing {
            return Ok(Err(fault));
        }
        for (id, head) in heads {
            let last = self.chains.get(id).map(|(last, _)| last);
            match last {
                Some(last) if last.sequence == head.sequence && last != head => {
                    return Ok(Err((Some(*id), head.sequence, Break::Changed)));
                }
                Some(last) if last.sequence < head.sequence => {
                    return Ok(Err((Some(*id), last.sequence + 1, Break::Missing)));
                }
                None if live(head.expires_at)? => return Ok(Err((Some(*id), head.sequence, Break::Missing))),
                _ => {}
            }
        }
        // Entries past the head were appended during the walk, which moved the head, or added by someone else.
        let past = |id: &ChainId, last: &Head, heads: &HashMap<ChainId, Head>| {
            heads.get(id).is_none_or(|head| head.sequence < last.sequence)
        };
        if self.chains.iter().any(|(id, (last, _))| past(id, last, heads)) {
            let heads = match self.audit.heads(self.now).await? {
                Ok(heads) => heads,
                Err(fault) => return Ok(Err(fault)),
            };
            for (id, (last, _)) in &self.chains {
                if past(id, last, &heads) {
                    let known = heads.get(id).map_or(0, |head| head.sequence);
                    return Ok(Err((Some(*id), known + 1, Break::Added)));
                }
            }
        }
        Ok(Ok(()))
    }
}
