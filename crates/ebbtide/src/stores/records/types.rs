//! Records as callers see them, and the answers to calls.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;

use crate::model::error::{Error, Result};
use crate::model::record::Version;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;

/// Id that a caller chose: text or bytes. It does not print, since it is often a bearer secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(Bytes);

impl RecordId {
    /// Longest id in bytes.
    pub const MAX_BYTES: usize = 4_096;

    /// Bytes of the id.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Id as text; none if it is not UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    pub(super) fn check(&self, what: &str) -> Result<()> {
        if self.0.is_empty() || self.0.len() > Self::MAX_BYTES {
            let message = format!("{what} has 1 to {} bytes; this one has {}", Self::MAX_BYTES, self.0.len());
            return Err(Error::invalid(message).about("id"));
        }
        Ok(())
    }
}

impl From<&str> for RecordId {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for RecordId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&[u8]> for RecordId {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for RecordId {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Bytes> for RecordId {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordId(…)")
    }
}

/// Value of a record: bytes, and a note that they are JSON text. It does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct RecordValue {
    pub(super) bytes: Bytes,
    pub(super) json: bool,
}

impl RecordValue {
    /// Longest value in bytes.
    pub const MAX_BYTES: usize = 262_144;

    /// Value of these bytes.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), json: false }
    }

    /// Value of this JSON.
    #[must_use]
    pub fn from_json(value: &Value) -> Self {
        Self { bytes: value.to_string().into(), json: true }
    }

    /// Bytes of the value; of JSON, its text.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// JSON, if the value was written as JSON.
    pub fn to_json(&self) -> Result<Option<Value>> {
        if !self.json {
            return Ok(None);
        }
        // The parser's error may quote the text, so it is left out.
        serde_json::from_slice(&self.bytes)
            .map(Some)
            .map_err(|_| Error::corrupt("the value of a record is not the JSON that it was written as"))
    }

    /// Returns true if the value was written as JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.bytes.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "the value of a record has at most {} bytes; this one has {}",
                Self::MAX_BYTES,
                self.bytes.len()
            ))
            .about("value"));
        }
        Ok(())
    }
}

impl fmt::Debug for RecordValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordValue({} bytes)", self.bytes.len())
    }
}

impl From<Value> for RecordValue {
    fn from(value: Value) -> Self {
        Self::from_json(&value)
    }
}

/// Record that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundRecord {
    /// Id of the record.
    pub id: RecordId,
    /// Value.
    pub value: RecordValue,
    /// Version of the last write.
    pub version: Version,
    /// End of the record.
    pub expires_at: Timestamp,
    /// Time of [`consume`](super::Records::consume).
    pub consumed_at: Option<Timestamp>,
    /// Group of the record.
    pub group: Option<String>,
    /// Latest end that a touch or a renewal gives.
    pub cap_at: Option<Timestamp>,
    /// True if reads renew the lifetime.
    pub slides: bool,
}

/// Answer to [`put`](super::Records::put).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the record may not have been stored"]
pub enum PutOutcome {
    /// The record is stored.
    Stored {
        /// Version of this write.
        version: Version,
        /// End of the record.
        expires_at: Timestamp,
        /// True if there was no live record.
        created: bool,
        /// Live record that it replaced, where it was read: without a condition, with `Present`, and to keep an end.
        previous: Option<FoundRecord>,
    },
    /// The condition did not hold, or another record has one of the second keys.
    Conflict,
    /// The group is revoked.
    Revoked,
    /// The end that was asked for has passed.
    Expired,
}

/// Answer to [`get`](super::Records::get).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the record may be absent"]
pub enum GetOutcome {
    /// The record is live.
    Found(FoundRecord),
    /// The record has expired and is retained. To every other call it is absent.
    Expired(FoundRecord),
    /// There is no such record.
    Unknown,
}

impl GetOutcome {
    /// Live record.
    #[must_use]
    pub fn found(self) -> Option<FoundRecord> {
        match self {
            Self::Found(record) => Some(record),
            Self::Expired(_) | Self::Unknown => None,
        }
    }
}

/// Answer to [`consume`](super::Records::consume).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the record may have been consumed before"]
pub enum ConsumeOutcome {
    /// This call consumed the record.
    Consumed(FoundRecord),
    /// Another call consumed it.
    Used {
        /// Time of that call.
        consumed_at: Timestamp,
        /// Version of the record.
        version: Version,
        /// Group of the record.
        group: Option<String>,
    },
    /// There is no such record.
    Unknown,
}

/// Answer to [`touch`](super::Records::touch).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the record may not have been there"]
pub enum TouchOutcome {
    /// The record has the new end.
    Touched(FoundRecord),
    /// The condition on the present end did not hold; nothing is changed.
    Kept(FoundRecord),
    /// The end that was asked for has passed; nothing is changed.
    Expired,
    /// There is no such record.
    Unknown,
}

/// Answer to [`delete`](super::Records::delete).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the record may still be there"]
pub enum DeleteOutcome {
    /// The record is deleted.
    Deleted,
    /// There was none.
    Absent,
    /// The condition did not hold.
    Conflict,
}

/// Answer to [`increment`](super::Records::increment).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the limit may have been reached"]
pub enum IncrementOutcome {
    /// The number is added.
    Counted {
        /// Count after the addition.
        count: i64,
        /// End of the counter.
        expires_at: Timestamp,
    },
    /// The sum would pass the limit; nothing is added.
    Exceeded {
        /// Count, unchanged.
        count: i64,
        /// End of the counter; none if there is no counter.
        expires_at: Option<Timestamp>,
    },
    /// The end that was asked for has passed.
    Expired,
}

/// Answer to [`increment_text`](super::Records::increment_text).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the value may not be a number"]
pub enum IncrementTextOutcome {
    /// The number is added.
    Counted(i64),
    /// The value is not a whole number of 64 bits.
    NotANumber,
    /// The sum has more than 64 bits; nothing is added.
    Overflow,
}

/// Answer to [`acquire`](super::Records::acquire).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the lease may be held by another"]
pub enum AcquireOutcome {
    /// The caller holds the lease.
    Acquired {
        /// Secret that releases the lease.
        lease: Secret,
        /// End of the lease.
        expires_at: Timestamp,
    },
    /// Another holds it.
    Held,
    /// The end that was asked for has passed.
    Expired,
}

/// Answer to [`batch`](super::Records::batch).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a refused batch has written nothing"]
pub enum BatchOutcome {
    /// Every condition held, and every write is durable. One answer for each write, in their order.
    Applied(Vec<WriteAnswer>),
    /// Nothing is written.
    Refused {
        /// Index of the first write that was refused.
        index: usize,
        /// Reason of the refusal.
        refusal: Refusal,
    },
}

/// Reason for which a write of a batch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The condition did not hold, or another record has one of the second keys.
    Conflict,
    /// The group is revoked.
    Revoked,
    /// The end that was asked for has passed.
    Expired,
}

/// Answer to one write of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the write may have been refused"]
pub enum WriteAnswer {
    /// The record is stored.
    Stored {
        /// Version of this write.
        version: Version,
        /// End of the record.
        expires_at: Timestamp,
        /// True if there was no live record.
        created: bool,
    },
    /// True if a live record was deleted.
    Deleted(bool),
    /// The condition held.
    Checked,
}

/// Record of a listing, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedRecord {
    /// Id of the record.
    pub id: RecordId,
    /// Version of the last write.
    pub version: Version,
    /// End of the record.
    pub expires_at: Timestamp,
    /// Time of [`consume`](super::Records::consume).
    pub consumed_at: Option<Timestamp>,
    /// Group of the record.
    pub group: Option<String>,
}

/// Page of [`scan`](super::Records::scan).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanPage {
    /// Live records, in the order of their digests.
    pub items: Vec<ListedRecord>,
    /// Cursor of the next page; zero at the end.
    pub next: u64,
}
