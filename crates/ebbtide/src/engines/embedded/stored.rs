//! How an embedded engine stores a record: version, expiry, value.

use bytes::Bytes;

use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

const HEAD: usize = 24;

pub(super) fn encode(record: &Record) -> Bytes {
    let mut bytes = Vec::with_capacity(HEAD + record.value.len());
    bytes.extend(record.version.as_bytes());
    bytes.extend(record.expires_at.as_millis().to_be_bytes());
    bytes.extend(&record.value);
    bytes.into()
}

pub(super) fn decode(bytes: &[u8]) -> Result<Record> {
    let (version, expires_at) = head(bytes)?;
    Ok(Record { value: Bytes::copy_from_slice(&bytes[HEAD..]), version, expires_at })
}

/// Version and expiry, without the value.
pub(super) fn head(bytes: &[u8]) -> Result<(Version, Timestamp)> {
    let version = bytes.first_chunk::<16>().copied().ok_or_else(malformed)?;
    Ok((Version::from_bytes(version), Timestamp::from_stored(millis(bytes).ok_or_else(malformed)?)?))
}

/// When the record ends, in milliseconds; none if these are not the bytes of a record.
pub(super) fn millis(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(16..HEAD)?.first_chunk()?))
}

fn malformed() -> Error {
    Error::corrupt("a stored record is shorter than its header")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    #[test]
    fn a_record_is_read_as_it_was_stored() {
        for (value, expires_at) in [("", Timestamp::NEVER), ("v", Timestamp::ZERO), ("w", Timestamp::MAX)] {
            let record = Record::new(value, expires_at, &SeededRng::new(1));
            assert_eq!(decode(&encode(&record)).unwrap(), record);
        }
        assert!(decode(&[0; 23]).is_err());
    }
}
