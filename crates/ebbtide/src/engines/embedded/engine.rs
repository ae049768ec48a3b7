//! What the embedded engines must offer. Everything else is shared.

use std::ops::Bound;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::pace::Pace;
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// One change of an engine's batch. A batch changes a key at most once.
#[derive(Debug)]
pub(in crate::engines) enum Op<'a> {
    /// Stores a record.
    Put(Kind, &'a [u8], Bytes),
    /// Removes a record.
    Delete(Kind, &'a [u8]),
    /// Removes these records, which are all that are stored from the first of them to the last.
    DeleteRun(Kind, &'a [Vec<u8>]),
    /// Stores what the store keeps of itself.
    PutMeta(Vec<u8>, Vec<u8>),
    /// Removes what the store kept of itself.
    DeleteMeta(Vec<u8>),
}

impl Op<'_> {
    /// How many keys it changes.
    #[cfg(feature = "fjall")]
    pub(in crate::engines) fn changes(&self) -> usize {
        if let Self::DeleteRun(_, keys) = self { keys.len() } else { 1 }
    }

    /// The bytes of its keys and values.
    #[cfg(feature = "fjall")]
    pub(in crate::engines) fn bytes(&self) -> usize {
        match self {
            Self::Put(_, key, value) => key.len() + value.len(),
            Self::Delete(_, key) => key.len(),
            Self::DeleteRun(_, keys) => keys.iter().map(Vec::len).sum(),
            Self::PutMeta(key, value) => key.len() + value.len(),
            Self::DeleteMeta(key) => key.len(),
        }
    }
}

/// Where a walk begins, and the prefix at whose end it ends.
#[derive(Debug, Clone, Copy)]
pub(in crate::engines) struct Walk<'a> {
    pub(in crate::engines) start: Bound<&'a [u8]>,
    pub(in crate::engines) prefix: &'a [u8],
}

impl<'a> Walk<'a> {
    /// Everything under a prefix.
    pub(in crate::engines) fn all(prefix: &'a [u8]) -> Self {
        Self { start: Bound::Included(prefix), prefix }
    }
}

/// Sees a key and a value, and says whether to go on.
pub(in crate::engines) type Visitor<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// A log-structured engine: a keyspace for each kind, and one for what the store keeps of itself.
pub(in crate::engines) trait Engine: Sized + Send + Sync + 'static {
    /// A view of everything at one instant.
    type Snapshot<'a>;

    /// The name in URLs and messages.
    const NAME: &'static str;

    /// Opens or creates the engine's files in `dir`. Does no work that grows with what is stored.
    fn open(dir: &Path, cache_bytes: u64) -> Result<Self>;

    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Bytes>>;

    /// Visits the records of a walk in the order of their keys, as of one instant.
    fn walk(&self, kind: Kind, walk: Walk<'_>, visit: Visitor<'_>) -> Result<()>;

    /// Applies all or nothing, and is durable before it returns and before any reader sees it.
    fn write(&self, ops: Vec<Op<'_>>) -> Result<()>;

    fn snapshot(&self) -> Self::Snapshot<'_>;

    /// Visits all records of a kind at the snapshot's instant.
    fn walk_snapshot(&self, snapshot: &Self::Snapshot<'_>, kind: Kind, visit: Visitor<'_>) -> Result<()>;

    /// Visits what the store keeps of itself, at the snapshot's instant.
    fn walk_meta(&self, snapshot: &Self::Snapshot<'_>, visit: Visitor<'_>) -> Result<()>;

    /// Rewrites a kind without what has expired before `cutoff`, strictly. Only this drops records by their expiry:
    /// the engine's own compactions leave them, so that the ledger can be set right afterwards. Rests at that pace,
    /// unless the engine limits by itself what it writes.
    fn compact(&self, kind: Kind, cutoff: Timestamp, pace: &Arc<Pace>) -> Result<()>;

    /// Called when a compaction has been counted: gives the disk back what it has replaced, where the engine does not do
    /// so by itself.
    fn give_back(&self) -> Result<()> {
        Ok(())
    }

    /// Writes a consistent copy of the engine's files into `dir`, which does not exist yet.
    fn checkpoint(&self, dir: &Path) -> Result<()>;
}
