//! Records as items: a partition key, a sort key, and four attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use crate::model::alteration::{decode_count, encode_count};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Item or key, in the SDK's terms.
pub(super) type Item = HashMap<String, AttributeValue>;

/// Partition key: the store's prefix, the kind, the scope and the partition.
pub(super) const PK: &str = "pk";
/// Sort key.
pub(super) const SK: &str = "sk";
/// Value.
pub(super) const VALUE: &str = "v";
/// Version.
pub(super) const VERSION: &str = "ver";
/// Expiry in milliseconds, which conditions and reads use.
pub(super) const EXPIRES: &str = "exp";
/// Expiry in seconds, rounded up, plus [`TTL_BUFFER_SECONDS`], which the engine's own deletion uses. A record that
/// does not expire has none.
pub(super) const TTL: &str = "ttl";

/// Delay between the expiry and the engine's deletion: no node's clock is that far behind.
pub(super) const TTL_BUFFER_SECONDS: u64 = 3_600;

/// First byte of the keys of a store with a prefix. No kind has this code.
const PREFIXED: u8 = 0;

/// Keys of one store in a table that others may share.
#[derive(Debug, Clone)]
pub(super) struct Space(Vec<u8>);

impl Space {
    pub(super) fn new(prefix: &str) -> Self {
        let mut lead = Vec::new();
        if !prefix.is_empty() {
            lead.push(PREFIXED);
            // The length marks the end of the prefix, so that no prefix is taken for the beginning of another.
            lead.push(u8::try_from(prefix.len()).expect("a prefix has at most 255 bytes"));
            lead.extend(prefix.as_bytes());
        }
        Self(lead)
    }

    /// Partition keys of a kind: the kind followed by `bytes`.
    pub(super) fn partition(&self, kind: Kind, bytes: &[u8]) -> Vec<u8> {
        let mut partition = self.0.clone();
        partition.push(kind.code());
        partition.extend(bytes);
        partition
    }

    /// Common prefix of the partition keys under `prefix`; within a partition, its whole key.
    pub(super) fn begin(&self, prefix: &Prefix) -> Vec<u8> {
        let bytes = prefix.within_partition().map_or(prefix.as_bytes(), |(partition, _)| partition);
        self.partition(prefix.kind(), bytes)
    }

    /// Primary key of the item.
    pub(super) fn key(&self, key: &Key) -> Item {
        let partition = self.partition(key.kind(), key.partition_bytes());
        item_key(&partition, key.sort_bytes())
    }

    /// Complete item.
    pub(super) fn item(&self, key: &Key, record: &Record) -> Item {
        let mut item = self.key(key);
        item.insert(VALUE.into(), value_of(key.kind(), &record.value));
        item.insert(VERSION.into(), binary(record.version.as_bytes()));
        item.insert(EXPIRES.into(), number(record.expires_at.as_millis()));
        if let Some(seconds) = ttl_seconds(key.kind(), record.expires_at) {
            item.insert(TTL.into(), number(seconds));
        }
        item
    }

    /// Kind of an item of this store.
    pub(super) fn kind_of(&self, item: &Item) -> Result<Kind> {
        let rest = bytes_of(item, PK)?.strip_prefix(self.0.as_slice());
        rest.and_then(|rest| rest.first()).and_then(|&code| Kind::from_code(code)).ok_or_else(malformed)
    }

    /// Key of an item of this store.
    pub(super) fn key_of(&self, item: &Item) -> Result<Key> {
        let kind = self.kind_of(item)?;
        let mut bytes = bytes_of(item, PK)?[self.0.len() + 1..].to_vec();
        bytes.extend(bytes_of(item, SK)?);
        Key::decode(kind, &bytes)
    }
}

/// Time of the engine's own deletion, in seconds. A record that does not expire has none; a counter has one behind all
/// times, so that an addition which may create it finds one that it must keep.
pub(super) fn ttl_seconds(kind: Kind, expires_at: Timestamp) -> Option<u64> {
    let end = match expires_at {
        Timestamp::NEVER if kind == Kind::Counter => Timestamp::MAX,
        Timestamp::NEVER => return None,
        end => end,
    };
    Some(end.as_millis().div_ceil(1_000) + TTL_BUFFER_SECONDS)
}

/// Value as an attribute. A counter is a number, so that the engine can add to it.
fn value_of(kind: Kind, value: &[u8]) -> AttributeValue {
    match decode_count(value) {
        Ok(count) if kind == Kind::Counter => AttributeValue::N(count.to_string()),
        _ => binary(value),
    }
}

pub(super) fn item_key(partition: &[u8], sort: &[u8]) -> Item {
    HashMap::from([(PK.to_owned(), binary(partition)), (SK.to_owned(), binary(sort))])
}

/// Primary key of an item, without its attributes.
pub(super) fn only_key(item: &Item) -> Result<Item> {
    Ok(item_key(bytes_of(item, PK)?, bytes_of(item, SK)?))
}

pub(super) fn record_of(item: &Item) -> Result<Record> {
    Ok(Record {
        value: match item.get(VALUE) {
            Some(AttributeValue::N(count)) => encode_count(count.parse().map_err(|_| malformed())?),
            _ => Bytes::copy_from_slice(bytes_of(item, VALUE)?),
        },
        version: version_of(item)?,
        expires_at: expiry_of(item)?,
    })
}

pub(super) fn version_of(item: &Item) -> Result<Version> {
    let bytes = bytes_of(item, VERSION)?.try_into().map_err(|_| malformed())?;
    Ok(Version::from_bytes(bytes))
}

pub(super) fn expiry_of(item: &Item) -> Result<Timestamp> {
    let number = item.get(EXPIRES).and_then(|value| value.as_n().ok()).ok_or_else(malformed)?;
    Timestamp::from_stored(number.parse().map_err(|_| malformed())?).map_err(|_| malformed())
}

pub(super) fn bytes_of<'a>(item: &'a Item, name: &str) -> Result<&'a [u8]> {
    let bytes = item.get(name).and_then(|value| value.as_b().ok());
    bytes.map(AsRef::as_ref).ok_or_else(malformed)
}

pub(super) fn binary(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn malformed() -> Error {
    Error::corrupt("an item of the table is not a valid record of this store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;

    fn key() -> Key {
        Key::new(Kind::Probe, &Scope::Global, &["p".into()], &["s".into()]).unwrap()
    }

    fn at(millis: u64) -> Item {
        let expires_at = Timestamp::from_stored(millis).unwrap();
        Space::new("").item(&key(), &Record::new("v", expires_at, &SeededRng::new(1)))
    }

    #[test]
    fn the_ttl_is_the_expiry_in_seconds_rounded_up_and_an_hour_more() {
        for (millis, seconds) in [(0, 3_600), (1, 3_601), (1_000, 3_601), (1_001, 3_602), (1_999, 3_602)] {
            assert_eq!(at(millis).get(TTL), Some(&number(seconds)), "{millis}");
        }
        assert_eq!(at(Timestamp::NEVER.as_millis()).get(TTL), None);
    }

    #[test]
    fn an_item_is_read_as_it_was_written() {
        for prefix in ["", "blue"] {
            let space = Space::new(prefix);
            let record = Record::new("v", Timestamp::NEVER, &SeededRng::new(1));
            let item = space.item(&key(), &record);
            assert_eq!(space.key_of(&item).unwrap(), key());
            assert_eq!(record_of(&item).unwrap(), record);
        }
    }

    #[test]
    fn no_prefix_is_the_beginning_of_another() {
        let begin = |prefix: &str| Space::new(prefix).partition(Kind::Probe, &[]);
        let prefixes = ["", "a", "ab", "a\u{18}", "b", "\u{1}"];
        for (index, one) in prefixes.iter().enumerate() {
            for other in &prefixes[index + 1..] {
                assert!(!begin(one).starts_with(&begin(other)), "{one:?} {other:?}");
                assert!(!begin(other).starts_with(&begin(one)), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_largest_record_is_within_the_bounds_of_an_item() {
        let part = |bytes: usize| vec![b'x'; bytes];
        let (partition, sort) = (part(Key::MAX_PARTITION_BYTES), part(Key::MAX_SORT_BYTES));
        let partition = Space::new(&"x".repeat(255)).partition(Kind::Probe, &partition);
        assert!(partition.len() <= 2_048);
        assert!(sort.len() <= 1_024);
        // Numbers take at most 21 bytes.
        let names: usize = [PK, SK, VALUE, VERSION, EXPIRES, TTL].iter().map(|name| name.len()).sum();
        let largest = partition.len() + sort.len() + Record::MAX_VALUE_BYTES + 16 + 2 * 21 + names;
        assert!(largest <= 400 * 1_024, "{largest}");
    }

    #[test]
    fn what_is_no_item_of_ours_is_corrupt() {
        let mut item = at(1);
        assert!(Space::new("other").key_of(&item).is_err());
        item.insert(VERSION.into(), binary(b"short"));
        assert!(record_of(&item).is_err());
        item.insert(EXPIRES.into(), AttributeValue::N("-1".into()));
        assert!(expiry_of(&item).is_err());
        item.remove(PK);
        assert!(Space::new("").kind_of(&item).is_err());
    }
}
