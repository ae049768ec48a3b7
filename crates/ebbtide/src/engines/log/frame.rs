//! Byte layout of a frame: one change of one key.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | operation: 1 store, 2 delete, 3 clock mark |
//! | 1 | 1 | flags: bit 0, the key may have a copy in the cold store |
//! | 2 | 1 | code of the kind |
//! | 3 | 1 | zero |
//! | 4 | 2 | length of the key |
//! | 6 | 2 | zero |
//! | 8 | 4 | length of the value |
//! | 12 | 4 | CRC-32C of the frame without this field |
//! | 16 | 8 | expiry, or the clock mark, in milliseconds |
//! | 24 | 16 | version |
//! | 40 | | key, then value |
//!
//! A group is checked when the log is opened; the checksum of a frame is checked whenever it is read. Without it a
//! damaged key would pass for another key with the same hash, and its record for absent.

use bytes::Bytes;

use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Bytes of a frame before its key.
pub(crate) const HEAD: usize = 40;

const STORE: u8 = 1;
const DELETE: u8 = 2;
const MARK: u8 = 3;
const MAY_BE_COLD: u8 = 1;

/// A frame, read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Stores a record.
    Store(StoreFrame<'a>),
    /// Deletes whatever is there.
    Delete { kind: Kind, key: &'a [u8], may_be_cold: bool },
    /// Moves the store's clock mark.
    Mark(Timestamp),
}

/// A record in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreFrame<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) version: Version,
    pub(crate) expires_at: Timestamp,
    pub(crate) value: &'a [u8],
    pub(crate) may_be_cold: bool,
}

impl StoreFrame<'_> {
    pub(crate) fn record(&self) -> Record {
        Record {
            value: Bytes::copy_from_slice(self.value),
            version: self.version,
            expires_at: self.expires_at,
        }
    }
}

impl<'a> Frame<'a> {
    /// Reads the frame at the front of `bytes`, and its length.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<(Self, usize)> {
        let head = bytes.first_chunk::<HEAD>().ok_or_else(malformed)?;
        let len = Self::length(head);
        let rest = bytes.get(HEAD..len).ok_or_else(malformed)?;
        if checksum(&bytes[..len]).to_le_bytes() != head[12..16] {
            return Err(Error::corrupt("a frame of the log is damaged"));
        }
        Ok((Self::parse(head, rest)?, len))
    }

    /// Reads a frame whose checksum was compared before.
    pub(crate) fn read_again(bytes: &'a [u8]) -> Result<Self> {
        let head = bytes.first_chunk::<HEAD>().ok_or_else(malformed)?;
        Self::parse(head, bytes.get(HEAD..Self::length(head)).ok_or_else(malformed)?)
    }

    fn parse(head: &[u8; HEAD], rest: &'a [u8]) -> Result<Self> {
        let (key, value) = rest.split_at(usize::from(key_len(head)));
        let may_be_cold = head[1] & MAY_BE_COLD != 0;
        let kind = || Kind::from_code(head[2]).ok_or_else(|| Error::corrupt("a frame has an unknown kind"));
        let millis = u64::from_le_bytes(*head[16..].first_chunk().ok_or_else(malformed)?);
        let frame = match head[0] {
            STORE => Self::Store(StoreFrame {
                kind: kind()?,
                key,
                version: Version::from_bytes(*head[24..].first_chunk().ok_or_else(malformed)?),
                expires_at: Timestamp::from_stored(millis).map_err(|error| malformed().caused_by(error))?,
                value,
                may_be_cold,
            }),
            DELETE if value.is_empty() => Self::Delete { kind: kind()?, key, may_be_cold },
            MARK if rest.is_empty() => {
                Self::Mark(Timestamp::from_stored(millis).map_err(|error| malformed().caused_by(error))?)
            }
            _ => return Err(malformed()),
        };
        Ok(frame)
    }

    /// Length of the frame whose head this is.
    pub(crate) fn length(head: &[u8; HEAD]) -> usize {
        let value_len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        HEAD + usize::from(key_len(head)) + value_len as usize
    }

    /// Kind and key; none for a clock mark.
    pub(crate) fn key(&self) -> Option<(Kind, &'a [u8])> {
        match self {
            Self::Store(stored) => Some((stored.kind, stored.key)),
            Self::Delete { kind, key, .. } => Some((*kind, key)),
            Self::Mark(_) => None,
        }
    }

    /// Visits the frames of a group's body with their offsets in it.
    pub(crate) fn each(body: &'a [u8], mut visit: impl FnMut(usize, Self) -> Result<()>) -> Result<()> {
        let mut at = 0;
        while at < body.len() {
            let (frame, len) = Self::read(&body[at..])?;
            visit(at, frame)?;
            at += len;
        }
        Ok(())
    }
}

/// Length of the frame that stores `record`, or that deletes.
pub(crate) fn length(key: &Key, record: Option<&Record>) -> u32 {
    let value_len = record.map_or(0, |record| record.value.len());
    u32::try_from(HEAD + key.as_bytes().len() + value_len).expect("the bound of a batch is below 4 GiB")
}

/// Appends a frame that stores `record`.
pub(crate) fn store(out: &mut Vec<u8>, key: &Key, record: &Record, may_be_cold: bool) {
    let value_len = u32::try_from(record.value.len()).expect("the bound of a value is below 4 GiB");
    let start = out.len();
    head(out, STORE, key.kind().code(), key.as_bytes(), value_len, record.expires_at, may_be_cold);
    out.extend_from_slice(record.version.as_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(&record.value);
    seal(&mut out[start..]);
}

/// Appends a frame that deletes.
pub(crate) fn delete(out: &mut Vec<u8>, key: &Key, may_be_cold: bool) {
    let start = out.len();
    head(out, DELETE, key.kind().code(), key.as_bytes(), 0, Timestamp::ZERO, may_be_cold);
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(key.as_bytes());
    seal(&mut out[start..]);
}

/// Appends a frame that moves the clock mark.
pub(crate) fn mark(out: &mut Vec<u8>, mark: Timestamp) {
    let start = out.len();
    head(out, MARK, 0, &[], 0, mark, false);
    out.extend_from_slice(&[0; 16]);
    seal(&mut out[start..]);
}

/// Writes the checksum of a frame.
fn seal(frame: &mut [u8]) {
    let crc = checksum(frame);
    frame[12..16].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..12]), &frame[16..])
}

fn head(
    out: &mut Vec<u8>,
    op: u8,
    kind: u8,
    key: &[u8],
    value_len: u32,
    millis: Timestamp,
    may_be_cold: bool,
) {
    let key_len = u16::try_from(key.len()).expect("the bounds of a key are below 65,536 bytes");
    out.extend_from_slice(&[op, u8::from(may_be_cold) * MAY_BE_COLD, kind, 0]);
    out.extend_from_slice(&key_len.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&value_len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&millis.as_millis().to_le_bytes());
}

fn key_len(head: &[u8; HEAD]) -> u16 {
    u16::from_le_bytes([head[4], head[5]])
}

fn malformed() -> Error {
    Error::corrupt("a frame of the log is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let key = Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[7.into()]).unwrap();
        let record = Record::new("value", Timestamp::NEVER, &SeededRng::new(1));
        let mut bytes = Vec::new();
        store(&mut bytes, &key, &record, true);
        let second = bytes.len();
        delete(&mut bytes, &key, false);
        let third = bytes.len();
        mark(&mut bytes, Timestamp::MAX);
        let mut seen = Vec::new();
        Frame::each(&bytes, |at, frame| {
            seen.push((at, frame));
            Ok(())
        })
        .unwrap();
        let Frame::Store(stored) = seen[0].1 else { panic!("the first is a store") };
        assert_eq!((stored.kind, stored.key, stored.may_be_cold), (Kind::Probe, key.as_bytes(), true));
        assert_eq!(stored.record(), record);
        let deleted = Frame::Delete { kind: Kind::Probe, key: key.as_bytes(), may_be_cold: false };
        assert_eq!(seen[1..], [(second, deleted), (third, Frame::Mark(Timestamp::MAX))]);
    }

    #[test]
    fn every_flipped_byte_of_a_frame_is_corrupt() {
        let key = Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[7.into()]).unwrap();
        let mut bytes = Vec::new();
        store(&mut bytes, &key, &Record::new("value", Timestamp::NEVER, &SeededRng::new(1)), true);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(Frame::read(&bytes).unwrap_err().kind(), crate::ErrorKind::Corrupt, "{at}");
        }
    }

    #[test]
    fn what_is_no_frame_is_corrupt_and_does_not_panic() {
        for bytes in [&[][..], &[0; HEAD], &[1; HEAD], &[2; 39], &[3; HEAD], &[0xFF; 500]] {
            assert!(Frame::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
