//! Changes of one record that answer with it.

use bytes::Bytes;

use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Change of the record at one key, whose answer is that record. An expired record counts as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alteration {
    /// Adds to a counter. It cannot be recognised afterwards, so a lost answer is `Unavailable` and is never repeated.
    Add(Add),
    /// Writes unconditionally. The answer has the live record that was there before.
    Swap {
        /// Record to write.
        record: Record,
    },
    /// Gives a live record a new end, if its value begins with `first`. The answer has the record with its new end, or
    /// the live one that begins differently.
    Touch {
        /// First byte of the value.
        first: u8,
        /// New end.
        expires_at: Timestamp,
        /// Version of this write.
        version: Version,
    },
    /// Removes a live record, if its value begins with `first`. The answer has the record, removed or not.
    Take {
        /// First byte of the value.
        first: u8,
    },
}

/// Addition to a counter: a record whose value is a signed number of 8 bytes, big-endian. An absent one is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Add {
    /// Number to add.
    pub by: i64,
    /// Highest count that an addition may reach. A subtraction is not bound by it.
    pub limit: i64,
    /// End of the counter, if this addition creates it. A live counter keeps its own.
    pub expires_if_new: Timestamp,
    /// Version of this write.
    pub version: Version,
}

impl Add {
    /// Least and most count to which the addition may be applied: the sum stays within the limit, and within 64 bits.
    /// The least is above the most if there is no such count.
    #[must_use]
    pub const fn bounds(&self) -> (i64, i64) {
        if self.by <= 0 {
            return (i64::MIN.saturating_sub(self.by), i64::MAX);
        }
        match self.limit.checked_sub(self.by) {
            Some(most) => (i64::MIN, most),
            None => (i64::MAX, i64::MIN),
        }
    }

    /// Returns true if the addition may be applied to this count.
    #[must_use]
    pub const fn fits(&self, count: i64) -> bool {
        let (least, most) = self.bounds();
        least <= count && count <= most
    }
}

/// Encodes a count as the value of a counter.
#[must_use]
pub fn encode_count(count: i64) -> Bytes {
    Bytes::copy_from_slice(&count.to_be_bytes())
}

/// Decodes the value of a counter.
pub fn decode_count(value: &[u8]) -> Result<i64> {
    let bytes = value.try_into().map_err(|_| Error::corrupt("the value of a counter is not 8 bytes"))?;
    Ok(i64::from_be_bytes(bytes))
}

/// Answer to an [`Alteration`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the change may have been refused"]
pub struct Altered {
    /// True if the change is written.
    pub applied: bool,
    /// Record that the alteration answers with; none if there was none.
    pub record: Option<Record>,
}

impl Altered {
    /// Answer to a change that is written.
    pub const fn applied(record: Option<Record>) -> Self {
        Self { applied: true, record }
    }

    /// Answer to a change that is refused.
    pub const fn refused(record: Option<Record>) -> Self {
        Self { applied: false, record }
    }
}

/// Effect of an alteration on the record at its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Stores this record.
    Store(Record),
    /// Removes the record.
    Erase,
    /// Leaves the record unchanged.
    Nothing,
}

impl Alteration {
    /// Evaluates the alteration against the live record at its key.
    pub fn judge(&self, live: Option<Record>) -> Result<(Outcome, Altered)> {
        Ok(match self {
            Self::Add(add) => {
                let count = live.as_ref().map_or(Ok(0), |record| decode_count(&record.value))?;
                if !add.fits(count) {
                    return Ok((Outcome::Nothing, Altered::refused(live)));
                }
                let expires_at = live.map_or(add.expires_if_new, |record| record.expires_at);
                let record = Record { value: encode_count(count + add.by), version: add.version, expires_at };
                (Outcome::Store(record.clone()), Altered::applied(Some(record)))
            }
            Self::Swap { record } => (Outcome::Store(record.clone()), Altered::applied(live)),
            Self::Touch { first, expires_at, version } => match live {
                Some(record) if record.value.first() == Some(first) => {
                    let touched = Record { value: record.value, version: *version, expires_at: *expires_at };
                    (Outcome::Store(touched.clone()), Altered::applied(Some(touched)))
                }
                other => (Outcome::Nothing, Altered::refused(other)),
            },
            Self::Take { first } => match live {
                Some(record) if record.value.first() == Some(first) => {
                    (Outcome::Erase, Altered::applied(Some(record)))
                }
                other => (Outcome::Nothing, Altered::refused(other)),
            },
        })
    }

    /// Checks the bounds of the record that the alteration writes.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Swap { record } => record.check(),
            Self::Add(_) | Self::Touch { .. } | Self::Take { .. } => Ok(()),
        }
    }

    /// End of the record that the alteration writes, where it is the alteration's own.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Add(add) => Some(add.expires_if_new),
            Self::Swap { record } => Some(record.expires_at),
            Self::Touch { expires_at, .. } => Some(*expires_at),
            Self::Take { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    fn add(by: i64, limit: i64) -> Add {
        let version = Version::mint(&SeededRng::new(1));
        Add { by, limit, expires_if_new: Timestamp::NEVER, version }
    }

    #[test]
    fn an_addition_stays_within_its_limit_and_64_bits() {
        assert!(add(1, 3).fits(2) && !add(1, 3).fits(3));
        assert!(add(-1, 3).fits(10), "a subtraction is not bound by the limit");
        assert!(!add(1, i64::MAX).fits(i64::MAX) && !add(-1, i64::MAX).fits(i64::MIN));
        assert!(add(i64::MAX, i64::MAX).fits(0) && !add(i64::MAX, i64::MAX).fits(1));
        assert!(add(i64::MIN, i64::MAX).fits(0) && !add(i64::MIN, i64::MAX).fits(-1));
        assert!(add(0, 0).fits(i64::MAX) && add(0, 0).fits(i64::MIN));
        assert!(!add(1, i64::MIN).fits(i64::MIN), "no count below that one can be raised to it");
    }

    #[test]
    fn a_count_is_read_as_it_was_written() {
        for count in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(decode_count(&encode_count(count)).unwrap(), count);
        }
        assert!(decode_count(b"1").is_err());
    }
}
