//! Bytes of a record in a cold store: version, expiry, value. Records of the old format have the same.

use bytes::Bytes;

use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Bytes before the value: version and expiry.
const HEAD: usize = 24;

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + record.value.len());
    bytes.extend_from_slice(record.version.as_bytes());
    bytes.extend_from_slice(&record.expires_at.as_millis().to_be_bytes());
    bytes.extend_from_slice(&record.value);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Record> {
    let short = || Error::corrupt("a record of the cold store is shorter than its head");
    let version = Version::from_bytes(*bytes.first_chunk().ok_or_else(short)?);
    let expires_at = Timestamp::from_stored(millis(bytes).ok_or_else(short)?);
    let expires_at = expires_at.map_err(|error| short().caused_by(error))?;
    Ok(Record { value: Bytes::copy_from_slice(&bytes[HEAD..]), version, expires_at })
}

/// Expiry of a stored record, in milliseconds; none if these are not the bytes of a record.
pub(crate) fn millis(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(16..HEAD)?.first_chunk()?))
}

/// Key of a record in the expiry list of its window: the expiry, then the key.
pub(crate) fn end_key(expires_at: Timestamp, key: &[u8]) -> Vec<u8> {
    [&expires_at.as_millis().to_be_bytes(), key].concat()
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
