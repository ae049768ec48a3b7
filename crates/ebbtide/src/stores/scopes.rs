//! Scopes as an operator sees them: what is in one, how much of it, and its end.
//!
//! These are an administrator's operations: they read, or remove, everything in a scope, and may cost a scan of a
//! table. Exact is the rule; [`Reach::Below`] reaches what a scope covers. A caller reaches only what it covers.

use std::collections::BTreeMap;

use super::Stores;
use super::listing::{Listing, MAX_LIMIT, check_limit};
use crate::audit::{Action, Because, Note};
use crate::backend::Cursor;
use crate::error::{Error, Result};
use crate::key::{Key, Prefix};
use crate::kind::Kind;
use crate::record::Record;
use crate::scope::{Reach, Scope};
use crate::time::Timestamp;

/// The scopes that a caller covers.
#[derive(Debug, Clone)]
pub struct Scopes {
    stores: Stores,
    caller: Scope,
}

/// The records of one kind in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// How many are live.
    pub live: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// How many of them do not end.
    pub without_end: u64,
    /// When the first of the others ends.
    pub first_ends_at: Option<Timestamp>,
    /// When the last of the others ends.
    pub last_ends_at: Option<Timestamp>,
}

impl Scopes {
    /// What is deleted with a scope: everything but the log that tells of it, and what the store keeps of itself.
    /// What grants access goes before what only leads to it.
    pub fn deletable() -> impl Iterator<Item = Kind> {
        let kept = |kind: &Kind| matches!(kind, Kind::Audit | Kind::System) || kind.is_probe();
        Kind::ALL.iter().copied().filter(move |kind| !kept(kind))
    }

    pub(super) fn new(stores: Stores, caller: Scope) -> Self {
        Self { stores, caller }
    }

    /// A page of the live records of one kind.
    pub async fn list(
        &self,
        kind: Kind,
        reach: &Reach,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<(Key, Record)>> {
        check_limit(limit)?;
        let page =
            self.stores.backend().scan(&self.prefix(kind, reach)?, after, limit, self.stores.now()).await?;
        Listing::read(page, |key, record| Ok((key, record)))
    }

    /// How many live records there are, by kind; kinds of which there are none are left out.
    pub async fn count(&self, reach: &Reach) -> Result<BTreeMap<Kind, u64>> {
        let mut count = self.begin_count(reach)?;
        while count.step().await? {}
        Ok(count.counted)
    }

    /// Begins to count every live record of a scope, in steps. Nothing is read before the first.
    pub fn begin_count(&self, reach: &Reach) -> Result<Count> {
        let prefixes = Kind::ALL.iter().map(|&kind| self.prefix(kind, reach)).collect::<Result<_>>()?;
        Ok(Count {
            stores: self.stores.clone(),
            now: self.stores.now(),
            prefixes,
            after: None,
            counted: BTreeMap::new(),
            done: (0, 1),
        })
    }

    /// How many live records there are, of the kinds that are deleted with a scope, counting no further than `most`:
    /// it reads that many at the most.
    pub async fn count_up_to(&self, reach: &Reach, most: u64) -> Result<u64> {
        let (now, mut counted) = (self.stores.now(), 0);
        for kind in Self::deletable() {
            let (prefix, mut after) = (self.prefix(kind, reach)?, None);
            loop {
                let left = usize::try_from(most - counted).unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
                if left == 0 {
                    return Ok(counted);
                }
                let page = self.stores.backend().scan(&prefix, after.as_ref(), left, now).await?;
                counted += page.items.len() as u64;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(counted)
    }

    /// How much there is, by scope and kind.
    pub async fn statistics(&self, reach: &Reach) -> Result<BTreeMap<Scope, BTreeMap<Kind, Statistics>>> {
        let now = self.stores.now();
        let mut all: BTreeMap<Scope, BTreeMap<Kind, Statistics>> = BTreeMap::new();
        for &kind in Kind::ALL {
            let (prefix, mut after) = (self.prefix(kind, reach)?, None);
            loop {
                let page = self.stores.backend().scan(&prefix, after.as_ref(), 500, now).await?;
                for (key, record) in &page.items {
                    all.entry(key.scope()).or_default().entry(kind).or_default().add(key, record);
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Begins to delete every record of a scope, whatever its kind. The log of the scope is kept, and told first.
    /// Nothing is deleted before the first step.
    pub async fn delete(&self, reach: &Reach, because: &Because) -> Result<Deletion> {
        self.delete_kinds(Self::deletable().collect(), reach, because).await
    }

    /// Begins to delete every record of those kinds in a scope.
    pub async fn delete_kinds(&self, kinds: Vec<Kind>, reach: &Reach, because: &Because) -> Result<Deletion> {
        let mut prefixes = Vec::new();
        for kind in kinds {
            if !Self::deletable().any(|deletable| deletable == kind) {
                return Err(Error::invalid(format!(
                    "records of the kind {kind} are not deleted with a scope"
                )));
            }
            prefixes.push(self.prefix(kind, reach)?);
        }
        let deletion = Deletion {
            stores: self.stores.clone(),
            reach: reach.clone(),
            because: because.clone(),
            now: self.stores.now(),
            left: prefixes.into_iter().rev().collect(),
            removed: BTreeMap::new(),
        };
        deletion.tell("begins").await?;
        Ok(deletion)
    }

    fn prefix(&self, kind: Kind, reach: &Reach) -> Result<Prefix> {
        self.caller.require(reach.scope())?;
        Prefix::reach(kind, reach)
    }
}

impl Statistics {
    fn add(&mut self, key: &Key, record: &Record) {
        self.live += 1;
        self.bytes += (key.as_bytes().len() + record.value.len()) as u64;
        if record.expires_at.is_never() {
            self.without_end += 1;
            return;
        }
        let end = Some(record.expires_at);
        self.first_ends_at = if self.first_ends_at.is_none() { end } else { self.first_ends_at.min(end) };
        self.last_ends_at = self.last_ends_at.max(end);
    }
}

/// The count of a scope, in steps of a bounded size.
#[derive(Debug)]
#[must_use = "nothing is counted before the first step"]
pub struct Count {
    stores: Stores,
    now: Timestamp,
    prefixes: Vec<Prefix>,
    after: Option<Cursor>,
    counted: BTreeMap<Kind, u64>,
    done: (u32, u32),
}

impl Count {
    /// Goes on from where another count had come, by its [`place`](Self::place): of the same scope, within a day.
    pub fn resume(mut self, place: Cursor, counted: BTreeMap<Kind, u64>) -> Self {
        (self.after, self.counted) = (Some(place), counted);
        self
    }

    /// Counts some more, and says whether there may be more.
    pub async fn step(&mut self) -> Result<bool> {
        let backend = self.stores.backend();
        let step = backend.count(&self.prefixes, self.after.as_ref(), self.now).await?;
        for (kind, live) in step.live.into_iter().filter(|(_, live)| *live > 0) {
            *self.counted.entry(kind).or_default() += live;
        }
        (self.after, self.done) = (step.next, step.done);
        Ok(self.after.is_some())
    }

    /// How many were counted so far, by kind.
    #[must_use]
    pub fn counted(&self) -> &BTreeMap<Kind, u64> {
        &self.counted
    }

    /// So many parts of so many are done.
    #[must_use]
    pub fn done(&self) -> (u32, u32) {
        self.done
    }

    /// Where it goes on; none before the first step and after the last.
    #[must_use]
    pub fn place(&self) -> Option<&Cursor> {
        self.after.as_ref()
    }
}

/// The deletion of a scope, in steps of a bounded size. One that was stopped or failed is gone on with by another:
/// there is only less to delete.
#[derive(Debug)]
#[must_use = "nothing is deleted before the first step"]
pub struct Deletion {
    stores: Stores,
    reach: Reach,
    because: Because,
    /// One time for all steps, so that an engine knows that they are one deletion, and goes on with it.
    now: Timestamp,
    left: Vec<Prefix>,
    removed: BTreeMap<Kind, u64>,
}

impl Deletion {
    /// Deletes some more, and says whether there may be more. The last step tells the log how many there were.
    pub async fn step(&mut self) -> Result<bool> {
        if let Some(prefix) = self.left.last() {
            let step = self.stores.backend().erase(prefix, self.now).await?;
            if step.removed > 0 {
                *self.removed.entry(prefix.kind()).or_default() += step.removed;
            }
            if !step.more {
                self.left.pop();
                if self.left.is_empty() {
                    self.tell(&format!("ended, {} records", self.removed.values().sum::<u64>())).await?;
                }
            }
        }
        Ok(!self.left.is_empty())
    }

    /// Deletes all that is left, and says how many there were, by kind.
    pub async fn finish(mut self) -> Result<BTreeMap<Kind, u64>> {
        while self.step().await? {}
        Ok(self.removed)
    }

    /// How many were deleted so far, by kind.
    #[must_use]
    pub fn removed(&self) -> &BTreeMap<Kind, u64> {
        &self.removed
    }

    /// How many kinds are still to be gone through.
    #[must_use]
    pub fn kinds_left(&self) -> usize {
        self.left.len()
    }

    async fn tell(&self, how: &str) -> Result<()> {
        let (far, scope) = match &self.reach {
            Reach::Exact(scope) => ("exactly", scope),
            Reach::Below(scope) => ("below", scope),
        };
        let detail = format!("{far} {scope}: {how}");
        let note = Note::of(Action::DeleteScope, &self.because)?.with_detail(detail);
        self.stores.audit(scope).append(&note).await
    }
}
