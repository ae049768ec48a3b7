//! Conditional writes, and the batches that hold them.

use std::collections::HashSet;

use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// One write with its condition. "Live" is judged at the `now` of the commit; what is expired is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Writes, whatever is there.
    Put {
        /// Where.
        key: Key,
        /// What.
        record: Record,
    },
    /// Writes if nothing is live there.
    Insert {
        /// Where.
        key: Key,
        /// What.
        record: Record,
    },
    /// Writes if that version is live there.
    Replace {
        /// Where.
        key: Key,
        /// The version that must be live.
        expected: Version,
        /// What.
        record: Record,
    },
    /// Deletes, whatever is there.
    Delete {
        /// Where.
        key: Key,
    },
    /// Deletes if that version is live there.
    Remove {
        /// Where.
        key: Key,
        /// The version that must be live.
        expected: Version,
    },
    /// Writes nothing; holds if that version is live there.
    Check {
        /// Where.
        key: Key,
        /// The version that must be live.
        expected: Version,
    },
    /// Writes nothing; holds if nothing is live there.
    Absent {
        /// Where.
        key: Key,
    },
}

/// What a write asks of the record that stands at its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// That none is live.
    Absent,
    /// That this version is live.
    Version(Version),
}

impl Condition {
    /// Whether the condition holds where `standing` is what the engine has, expired or not.
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

/// What a write does to the record, once its condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Stores this.
    Store(&'a Record),
    /// Removes what is there.
    Erase,
    /// Leaves all as it is.
    Nothing,
}

impl Write {
    /// Where.
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

    /// Where, without the rest.
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

    /// What must hold.
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

    /// How many bytes key and value have together.
    fn byte_size(&self) -> usize {
        let value = if let Effect::Store(record) = self.effect() { record.value.len() } else { 0 };
        self.key().as_bytes().len() + value
    }

    /// What happens then.
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

/// Writes that happen all together or not at all: 1 to [`Batch::MAX_WRITES`], to distinct keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch(Vec<Write>);

impl Batch {
    /// The most writes: what a transaction of DynamoDB takes.
    pub const MAX_WRITES: usize = 100;

    /// The most bytes over all keys and values: a transaction of DynamoDB takes 4 MiB, and its items carry some
    /// bytes more than ours.
    pub const MAX_BYTES: usize = 4_000_000;

    /// A batch; none or too many writes, two to one key, or too many bytes are invalid.
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
                return Err(Error::invalid("two writes of a batch are to one key"));
            }
        }
        Ok(Self(writes))
    }

    /// The writes, in the order in which they were given.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.0
    }

    /// How many bytes its keys and values have together.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.0.iter().map(Write::byte_size).sum()
    }

    /// The writes themselves.
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

/// The answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a refused batch has written nothing"]
pub enum Commit {
    /// Every condition held, and every write is durable.
    Applied,
    /// A condition did not hold, and nothing was written.
    Refused {
        /// The first write whose condition did not hold.
        index: usize,
    },
}

impl Commit {
    /// Whether the batch was written.
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
        assert!(Batch::new(vec![delete("a"), delete("a")]).unwrap_err().message().contains("one key"));
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
