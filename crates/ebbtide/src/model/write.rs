//! Conditional writes, and the batches that hold them.

use std::collections::HashSet;

use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// One write with its condition. "Live" is judged at the `now` of the commit; an expired record counts as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Writes unconditionally.
    Put {
        /// Key to write.
        key: Key,
        /// Record to write.
        record: Record,
    },
    /// Writes if no record is live at the key.
    Insert {
        /// Key to write.
        key: Key,
        /// Record to write.
        record: Record,
    },
    /// Writes if the expected version is live.
    Replace {
        /// Key to write.
        key: Key,
        /// Version that must be live.
        expected: Version,
        /// Record to write.
        record: Record,
    },
    /// Deletes unconditionally.
    Delete {
        /// Key to delete.
        key: Key,
    },
    /// Deletes if the expected version is live.
    Remove {
        /// Key to delete.
        key: Key,
        /// Version that must be live.
        expected: Version,
    },
    /// Writes nothing; holds if the expected version is live.
    Check {
        /// Key to check.
        key: Key,
        /// Version that must be live.
        expected: Version,
    },
    /// Writes nothing; holds if no record is live at the key.
    Absent {
        /// Key to check.
        key: Key,
    },
}

/// Condition of a write on the record at its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Always holds.
    Always,
    /// Holds if no record is live.
    Absent,
    /// Holds if this version is live.
    Version(Version),
}

impl Condition {
    /// Evaluates the condition against the stored record, expired or not.
    #[must_use]
    pub fn holds(self, standing: Option<(Version, Timestamp)>, now: Timestamp) -> bool {
        let live = standing.filter(|(_, expires_at)| now < *expires_at).map(|(version, _)| version);
        match self {
            Self::Always => true,
            Self::Absent => live.is_none(),
            Self::Version(expected) => live == Some(expected),
        }
    }
}

/// Effect of a write whose condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Stores this record.
    Store(&'a Record),
    /// Removes the record.
    Erase,
    /// Leaves the record unchanged.
    Nothing,
}

impl Write {
    /// Key of the write.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. }
            | Self::Insert { key, .. }
            | Self::Replace { key, .. }
            | Self::Delete { key }
            | Self::Remove { key, .. }
            | Self::Check { key, .. }
            | Self::Absent { key } => key,
        }
    }

    /// Key of the write, by value.
    #[must_use]
    pub fn into_key(self) -> Key {
        match self {
            Self::Put { key, .. }
            | Self::Insert { key, .. }
            | Self::Replace { key, .. }
            | Self::Delete { key }
            | Self::Remove { key, .. }
            | Self::Check { key, .. }
            | Self::Absent { key } => key,
        }
    }

    /// Condition of the write.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::Put { .. } | Self::Delete { .. } => Condition::Always,
            Self::Insert { .. } | Self::Absent { .. } => Condition::Absent,
            Self::Replace { expected, .. } | Self::Remove { expected, .. } | Self::Check { expected, .. } => {
                Condition::Version(*expected)
            }
        }
    }

    /// Size of key and value together.
    fn byte_size(&self) -> usize {
        let value = if let Effect::Store(record) = self.effect() { record.value.len() } else { 0 };
        self.key().as_bytes().len() + value
    }

    /// Effect of the write if its condition holds.
    #[must_use]
    pub fn effect(&self) -> Effect<'_> {
        match self {
            Self::Put { record, .. } | Self::Insert { record, .. } | Self::Replace { record, .. } => {
                Effect::Store(record)
            }
            Self::Delete { .. } | Self::Remove { .. } => Effect::Erase,
            Self::Check { .. } | Self::Absent { .. } => Effect::Nothing,
        }
    }
}

/// Atomic batch of writes: 1 to [`Batch::MAX_WRITES`], to distinct keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch(Vec<Write>);

impl Batch {
    /// Maximum number of writes: the limit of a DynamoDB transaction.
    pub const MAX_WRITES: usize = 100;

    /// Maximum size of all keys and values in bytes. A DynamoDB transaction takes 4 MiB, and its items carry some
    /// bytes of overhead.
    pub const MAX_BYTES: usize = 4_000_000;

    /// Creates a batch. Returns `Invalid` for zero or too many writes, two writes to one key, or too many bytes.
    pub fn new(writes: Vec<Write>) -> Result<Self> {
        if writes.is_empty() || writes.len() > Self::MAX_WRITES {
            return Err(Error::invalid(format!(
                "a batch has 1 to {} writes; this one has {}",
                Self::MAX_WRITES,
                writes.len()
            )));
        }
        let mut bytes = 0;
        for write in &writes {
            if let Effect::Store(record) = write.effect() {
                record.check()?;
            }
            bytes += write.byte_size();
        }
        if bytes > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "the keys and values of a batch have at most {} bytes; these have {bytes}",
                Self::MAX_BYTES
            )));
        }
        if writes.len() > 1 {
            let mut keys = HashSet::with_capacity(writes.len());
            if !writes.iter().all(|write| keys.insert(write.key())) {
                return Err(Error::invalid("a batch must not write one key twice"));
            }
        }
        Ok(Self(writes))
    }

    /// Writes in the order in which they were given.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.0
    }

    /// Size of all keys and values in bytes.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.0.iter().map(Write::byte_size).sum()
    }

    /// Converts the batch into its writes.
    #[must_use]
    pub fn into_writes(self) -> Vec<Write> {
        self.0
    }
}

impl TryFrom<Write> for Batch {
    type Error = Error;

    fn try_from(write: Write) -> Result<Self> {
        Self::new(vec![write])
    }
}

/// Outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a refused batch has written nothing"]
pub enum Commit {
    /// Every condition held, and every write is durable.
    Applied,
    /// A condition did not hold, and nothing was written.
    Refused {
        /// Index of the first write whose condition did not hold.
        index: usize,
    },
}

impl Commit {
    /// Returns true if the batch was written.
    #[must_use]
    pub fn is_applied(self) -> bool {
        self == Self::Applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kind::Kind;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;

    fn delete(name: &str) -> Write {
        Write::Delete { key: Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap() }
    }

    #[test]
    fn a_batch_names_the_bound_it_breaks() {
        assert!(Batch::new(Vec::new()).unwrap_err().message().contains("1 to 100"));
        let many = (0..101).map(|n| delete(&n.to_string())).collect();
        assert!(Batch::new(many).unwrap_err().message().contains("101"));
        assert!(Batch::new(vec![delete("a"), delete("a")]).unwrap_err().message().contains("one key twice"));
    }

    #[test]
    fn values_and_batches_have_a_size() {
        let put = |name: &str, size: usize| Write::Put {
            key: delete(name).key().clone(),
            record: Record::new(vec![0; size], Timestamp::NEVER, &SeededRng::new(1)),
        };
        assert!(Batch::try_from(put("a", Record::MAX_VALUE_BYTES)).is_ok());
        let error = Batch::try_from(put("a", Record::MAX_VALUE_BYTES + 1)).unwrap_err();
        assert!(error.message().contains("358400"), "{error}");
        let large = (0..12).map(|n| put(&n.to_string(), Record::MAX_VALUE_BYTES)).collect();
        assert!(Batch::new(large).unwrap_err().message().contains("4000000"));
    }
}
