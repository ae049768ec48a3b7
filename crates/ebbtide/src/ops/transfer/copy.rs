//! Copying records between engines.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::admin::Admin;
use crate::backend::{BackendExt, Cursor};
use crate::model::error::Result;
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::ops::ring;

/// Number of records read at once.
const AT_ONCE: usize = 500;

/// Copier of live records of every kind from one store to another, with expiries and versions, in steps.
///
/// Existing records of the target are never overwritten: a record of the same version is passed over, so that an
/// interrupted copy can be resumed by another process; one of another version counts as a conflict. The source should
/// not be written to meanwhile. Of the internal state of the store, links between records, checkpoints of the audit log,
/// the id of the naming key and the fence of a restored backup are copied. Records of the conformance kit are not.
pub struct Copier {
    from: Arc<dyn Admin>,
    to: Arc<dyn Admin>,
    now: Timestamp,
    prefixes: Vec<Prefix>,
    after: Option<Cursor>,
    verifying: bool,
    is_over: bool,
    copied: Copied,
}

/// Progress of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Copied {
    /// Number of records written, by kind.
    pub written: BTreeMap<Kind, u64>,
    /// Number of records that were in the target already.
    pub already: u64,
    /// Number of records with another version in the target, which were left unchanged.
    pub conflicts: u64,
    /// Number of records that equal the source in value, version and expiry, compared after copying.
    pub verified: u64,
    /// Number of records that differ or are missing.
    pub different: u64,
}

impl Copied {
    /// Returns true if every record of the source is in the target, unchanged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.conflicts == 0 && self.different == 0
    }
}

impl std::fmt::Debug for Copier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copier({} to {}, {:?})", self.from.info().engine, self.to.info().engine, self.copied)
    }
}

impl Copier {
    /// Creates a copy of the records in `reach`, as of `now`.
    pub fn new(from: Arc<dyn Admin>, to: Arc<dyn Admin>, reach: &Reach, now: Timestamp) -> Result<Self> {
        let (prefixes, copied) = (prefixes(reach)?, Copied::default());
        Ok(Self { from, to, now, prefixes, after: None, verifying: false, is_over: false, copied })
    }

    /// Progress so far.
    #[must_use]
    pub fn copied(&self) -> &Copied {
        &self.copied
    }

    /// Returns true while it compares the copied records.
    #[must_use]
    pub fn is_verifying(&self) -> bool {
        self.verifying
    }

    /// Copies, and afterwards compares, up to five hundred records. Returns their number, or `None` at the end.
    pub async fn step(&mut self) -> Result<Option<u64>> {
        if self.is_over {
            if self.verifying {
                return Ok(None);
            }
            (self.verifying, self.is_over) = (true, false);
        }
        if self.after.is_none() && !self.verifying {
            self.copy_ring().await?;
        }
        let mut page = self.from.list(&self.prefixes, self.after.as_ref(), AT_ONCE, self.now).await?;
        page.items.retain(|(key, _)| key.kind() != Kind::System || is_kept(key));
        let count = page.items.len() as u64;
        if self.verifying {
            self.compare(page.items).await?;
        } else {
            self.copy(page.items).await?;
        }
        self.after = page.next;
        self.is_over = self.after.is_none();
        Ok(Some(count))
    }

    /// Copies the note of the keyring: the records are sealed and authenticated with that one.
    async fn copy_ring(&self) -> Result<()> {
        let key = ring::place()?;
        if let Some(record) = self.from.get(&key, self.now).await? {
            // A target that has a note keeps it: its own keyring is refused or not when it is opened.
            let _ = self.to.insert(key, record, self.now).await?;
        }
        Ok(())
    }

    async fn copy(&mut self, items: Vec<(Key, Record)>) -> Result<()> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        for (key, record) in items {
            let size = key.as_bytes().len() + record.value.len();
            if bytes + size > Batch::MAX_BYTES || batch.len() == Batch::MAX_WRITES {
                self.write(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += size;
            batch.push((key, record));
        }
        self.write(batch).await
    }

    async fn write(&mut self, items: Vec<(Key, Record)>) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let insert =
            |(key, record): &(Key, Record)| Write::Insert { key: key.clone(), record: record.clone() };
        let batch = Batch::new(items.iter().map(insert).collect())?;
        if self.to.commit(batch, self.now).await?.is_applied() {
            for (key, _) in &items {
                *self.copied.written.entry(key.kind()).or_default() += 1;
            }
            return Ok(());
        }
        // Some exist already: write one by one.
        for (key, record) in items {
            let kind = key.kind();
            if self.to.insert(key.clone(), record.clone(), self.now).await?.is_applied() {
                *self.copied.written.entry(kind).or_default() += 1;
            } else if self.to.get(&key, self.now).await?.is_some_and(|there| there.version == record.version)
            {
                self.copied.already += 1;
            } else {
                self.copied.conflicts += 1;
            }
        }
        Ok(())
    }

    async fn compare(&mut self, items: Vec<(Key, Record)>) -> Result<()> {
        let gets = items.iter().map(|(key, _)| self.to.get(key, self.now));
        let there = futures_util::future::join_all(gets).await;
        for ((_, record), there) in items.into_iter().zip(there) {
            if there? == Some(record) {
                self.copied.verified += 1;
            } else {
                self.copied.different += 1;
            }
        }
        Ok(())
    }
}

/// Internal state that belongs to the records, and not to the process or the engine.
const KEPT: [&str; 5] = ["belongs-to", "belongings", "audit-checkpoint", "naming-key", "fence"];

fn is_kept(key: &Key) -> bool {
    matches!(key.partition().first(), Some(Part::Text(name)) if KEPT.contains(&name.as_ref()))
}

/// Prefixes to copy.
fn prefixes(reach: &Reach) -> Result<Vec<Prefix>> {
    let kinds = Kind::ALL.iter().filter(|kind| !kind.is_probe());
    let everything = *reach == Reach::Below(Scope::Global);
    kinds
        .map(|&kind| if everything { Ok(Prefix::kind_wide(kind)) } else { Prefix::reach(kind, reach) })
        .collect()
}
