//! Keys (kind, scope, partition, sort) and the prefixes that a scan walks.

mod tuple;

use std::fmt;

pub use tuple::Part;
use tuple::{END, Reader, encode_text, malformed};

use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::scope::{Name, Reach, Scope};

const GLOBAL: u8 = 0x10;
const TENANT: u8 = 0x11;
const ENVIRONMENT: u8 = 0x12;
const CUSTOM: u8 = 0x13;

/// Address of a record. Listing happens within a partition, in the order of the sort tuple.
///
/// Bounds are checked here, once; no engine repeats them. They are those of the strictest engine: DynamoDB's
/// partition and sort keys, PostgreSQL's index entries.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: Kind,
    bytes: Box<[u8]>,
    scope_len: u16,
    partition_len: u16,
}

impl Key {
    /// Maximum encoded size of scope and partition together, in bytes.
    pub const MAX_PARTITION_BYTES: usize = 1_536;

    /// Maximum encoded size of the sort tuple, in bytes.
    pub const MAX_SORT_BYTES: usize = 1_000;

    /// Creates a key. Returns `Invalid` if a text is empty or has control characters, if the partition has no part,
    /// or if the key exceeds a bound.
    pub fn new(kind: Kind, scope: &Scope, partition: &[Part<'_>], sort: &[Part<'_>]) -> Result<Self> {
        let room = sort.iter().map(Part::room).sum::<usize>() + 1;
        let (mut bytes, scope_len) = partition_bytes(scope, partition, room)?;
        let partition_len = bytes.len();
        for part in sort {
            part.check()?;
            part.encode(&mut bytes);
        }
        bytes.push(END);
        check_sort(bytes.len() - partition_len)?;
        Ok(Self {
            kind,
            bytes: bytes.into(),
            scope_len: length(scope_len),
            partition_len: length(partition_len),
        })
    }

    /// Kind of the record.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Scope, decoded from the key.
    #[must_use]
    pub fn scope(&self) -> Scope {
        read_scope(&mut Reader::new(&self.bytes)).expect("a key's encoding was checked when the key was made")
    }

    /// Parts of the partition, decoded from the key.
    #[must_use]
    pub fn partition(&self) -> Vec<Part<'static>> {
        self.parts(usize::from(self.scope_len))
    }

    /// Parts of the sort tuple, decoded from the key.
    #[must_use]
    pub fn sort(&self) -> Vec<Part<'static>> {
        self.parts(usize::from(self.partition_len))
    }

    fn parts(&self, from: usize) -> Vec<Part<'static>> {
        let tuple = Reader::new(&self.bytes[from..]).tuple();
        tuple.expect("a key's encoding was checked when the key was made")
    }

    /// Encoded scope, partition and sort tuple: unique within the kind, and ordered as the key is.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Encoded scope and partition.
    #[must_use]
    pub fn partition_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.partition_len)]
    }

    /// Encoded sort tuple; never empty.
    #[must_use]
    pub fn sort_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.partition_len)..]
    }

    /// Decodes the bytes of [`as_bytes`](Self::as_bytes). Returns `Corrupt` for bytes that no key encodes to.
    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let scope = read_scope(&mut reader)?;
        let partition = reader.tuple()?;
        let sort = reader.tuple()?;
        let key = Self::new(kind, &scope, &partition, &sort).map_err(|error| malformed().caused_by(error))?;
        // A key has exactly one encoding; bytes that decode but do not encode back are corrupt.
        if *key.bytes == *bytes { Ok(key) } else { Err(malformed()) }
    }
}

impl fmt::Debug for Key {
    /// Prints kind and scope only: the rest may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} in {}, …)", self.kind, self.scope())
    }
}

/// Contiguous range of keys of one kind.
#[derive(Clone, PartialEq, Eq)]
pub struct Prefix {
    kind: Kind,
    bytes: Vec<u8>,
    partition_len: Option<usize>,
}

impl Prefix {
    /// Records of one partition whose sort tuple begins with `sort`; all of the partition if `sort` is empty.
    pub fn partition(kind: Kind, scope: &Scope, partition: &[Part<'_>], sort: &[Part<'_>]) -> Result<Self> {
        let room = sort.iter().map(Part::room).sum();
        let (mut bytes, _) = partition_bytes(scope, partition, room)?;
        let partition_len = bytes.len();
        for part in sort {
            part.check()?;
            part.encode(&mut bytes);
        }
        check_sort(bytes.len() - partition_len)?;
        Ok(Self { kind, bytes, partition_len: Some(partition_len) })
    }

    /// Records of a scope in the partitions that begin with `parts`. An administrative operation where an engine has no
    /// order over partitions: it may scan a whole table.
    pub fn partitions(kind: Kind, scope: &Scope, parts: &[Part<'_>]) -> Result<Self> {
        let (mut bytes, _) = partition_bytes(scope, parts, 0)?;
        // Without the end marker, so that longer partitions begin with it.
        bytes.pop();
        Ok(Self { kind, bytes, partition_len: None })
    }

    /// Records of a scope, or of everything below it. An administrative operation: it may scan a whole table.
    pub fn reach(kind: Kind, reach: &Reach) -> Result<Self> {
        reach.scope().check()?;
        let bytes = match reach {
            Reach::Exact(scope) => {
                let mut bytes = scope_bytes(scope, 1);
                bytes.push(END);
                bytes
            }
            Reach::Below(Scope::Global) => Vec::new(),
            // A scope that nothing is below is a prefix of no other scope, so it needs no end marker.
            Reach::Below(scope) => scope_bytes(scope, 0),
        };
        Ok(Self { kind, bytes, partition_len: None })
    }

    /// Every record of a kind.
    #[must_use]
    pub fn kind_wide(kind: Kind) -> Self {
        Self { kind, bytes: Vec::new(), partition_len: None }
    }

    /// Bytes before every key of [`partitions`](Self::partitions) whose next part is bytes that are not below `bytes`,
    /// and behind every other.
    pub(crate) fn before_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut start = self.bytes.clone();
        Part::from(bytes).encode(&mut start);
        // The terminator would put longer parts that begin with these behind it, and equal ones before.
        start.pop();
        start
    }

    /// Kind of the records.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Common prefix of the encoded keys.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// For a range within one partition: the partition's bytes, and the common prefix of the sort tuples.
    #[must_use]
    pub fn within_partition(&self) -> Option<(&[u8], &[u8])> {
        self.partition_len.map(|at| self.bytes.split_at(at))
    }

    /// First byte string after all those that begin with the prefix; `None` if the range has no upper end.
    #[must_use]
    pub fn end(&self) -> Option<Vec<u8>> {
        let last = self.bytes.iter().rposition(|&byte| byte != 0xFF)?;
        let mut end = self.bytes[..=last].to_vec();
        end[last] += 1;
        Some(end)
    }

    /// Returns true if the key is in the range.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.kind == key.kind && key.bytes.starts_with(&self.bytes)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({}, {} bytes)", self.kind, self.bytes.len())
    }
}

/// Encodes the scope without its end marker, so that it is a prefix of the scopes below it. There is room for `more`
/// bytes behind it.
fn scope_bytes(scope: &Scope, more: usize) -> Vec<u8> {
    // A name has no byte that is escaped, only a tag and a terminator.
    let names: usize = scope.names().map(|name| name.as_str().len() + 2).sum();
    let mut bytes = Vec::with_capacity(1 + names + more);
    bytes.push(match scope {
        Scope::Global => GLOBAL,
        Scope::Tenant(_) | Scope::TenantEnvironment { .. } => TENANT,
        Scope::Environment(_) => ENVIRONMENT,
        Scope::Custom(_) => CUSTOM,
    });
    for name in scope.names() {
        encode_text(name.as_str(), &mut bytes);
    }
    bytes
}

fn read_scope(reader: &mut Reader<'_>) -> Result<Scope> {
    let tag = reader.byte()?;
    let mut names = Vec::new();
    for part in reader.tuple()? {
        let Part::Text(text) = part else { return Err(malformed()) };
        names.push(Name::new(text.into_owned()).map_err(|error| malformed().caused_by(error))?);
    }
    let mut names = names.into_iter();
    let scope = match (tag, names.len()) {
        (GLOBAL, 0) => Some(Scope::Global),
        (TENANT, 1) => names.next().map(Scope::Tenant),
        (TENANT, 2) => names
            .next()
            .zip(names.next())
            .map(|(tenant, environment)| Scope::TenantEnvironment { tenant, environment }),
        (ENVIRONMENT, 1) => names.next().map(Scope::Environment),
        (CUSTOM, 1..) => Some(Scope::Custom(names.collect())),
        _ => None,
    };
    scope.ok_or_else(malformed)
}

/// Encodes scope and partition, with room for `more` bytes behind them. Also returns the length of the scope.
fn partition_bytes(scope: &Scope, partition: &[Part<'_>], more: usize) -> Result<(Vec<u8>, usize)> {
    scope.check()?;
    if partition.is_empty() {
        return Err(Error::invalid("the partition of a key must have at least one part"));
    }
    let room: usize = partition.iter().map(Part::room).sum();
    let mut bytes = scope_bytes(scope, room + more + 2);
    bytes.push(END);
    let scope_len = bytes.len();
    for part in partition {
        part.check()?;
        part.encode(&mut bytes);
    }
    bytes.push(END);
    if bytes.len() > Key::MAX_PARTITION_BYTES {
        return Err(Error::invalid(format!(
            "scope and partition of a key take at most {} bytes; these take {}",
            Key::MAX_PARTITION_BYTES,
            bytes.len()
        )));
    }
    Ok((bytes, scope_len))
}

fn check_sort(bytes: usize) -> Result<()> {
    if bytes > Key::MAX_SORT_BYTES {
        return Err(Error::invalid(format!(
            "the sort part of a key takes at most {} bytes; this one takes {bytes}",
            Key::MAX_SORT_BYTES
        )));
    }
    Ok(())
}

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("the bounds of a key are below 65,536 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scope: &str, partition: &str, sort: &[Part<'_>]) -> Key {
        Key::new(Kind::Probe, &scope.parse().unwrap(), &[partition.into()], sort).unwrap()
    }

    #[test]
    fn a_joined_name_is_not_another_scope() {
        let joined = key("tenant:acme%3Aenv%3Aprod", "p", &[]);
        let nested = key("tenant:acme/env:prod", "p", &[]);
        assert_ne!(joined.as_bytes(), nested.as_bytes());
    }

    #[test]
    fn a_name_that_begins_another_is_not_its_prefix() {
        let scope = "tenant:a".parse().unwrap();
        let bucket = Prefix::partition(Kind::Probe, &scope, &["owner".into()], &["a".into()]).unwrap();
        assert!(bucket.contains(&key("tenant:a", "owner", &["a".into(), "x".into()])));
        for other in ["ab", "a:b", "a/b"] {
            assert!(!bucket.contains(&key("tenant:a", "owner", &[other.into(), "x".into()])));
        }
        assert!(!bucket.contains(&key("tenant:a", "owner2", &["a".into()])));
    }

    #[test]
    fn below_a_tenant_are_its_environments_and_no_other_tenant() {
        let below = Prefix::reach(Kind::Probe, &Reach::Below("tenant:a".parse().unwrap())).unwrap();
        let exact = Prefix::reach(Kind::Probe, &Reach::Exact("tenant:a".parse().unwrap())).unwrap();
        for (scope, is_below) in [
            ("tenant:a", true),
            ("tenant:a/env:x", true),
            ("tenant:ab", false),
            ("env:a", false),
            ("global", false),
        ] {
            assert_eq!(below.contains(&key(scope, "p", &[])), is_below, "{scope}");
            assert_eq!(exact.contains(&key(scope, "p", &[])), scope == "tenant:a", "{scope}");
        }
    }

    #[test]
    fn bounds_are_refused_by_name() {
        let scope = Scope::Global;
        let long = "x".repeat(2_000);
        let partition = Key::new(Kind::Probe, &scope, &[long.as_str().into()], &[]).unwrap_err();
        assert!(partition.message().contains("1536"), "{partition}");
        let sort = Key::new(Kind::Probe, &scope, &["p".into()], &[long.as_str().into()]).unwrap_err();
        assert!(sort.message().contains("1000"), "{sort}");
        for bad in ["", "a\u{0}", "a\n"] {
            assert!(Key::new(Kind::Probe, &scope, &[bad.into()], &[]).is_err());
            assert!(Key::new(Kind::Probe, &scope, &["p".into()], &[bad.into()]).is_err());
        }
        assert!(Key::new(Kind::Probe, &scope, &[], &[]).is_err());
        assert!(Key::new(Kind::Probe, &Scope::Custom(Vec::new()), &["p".into()], &[]).is_err());
    }

    #[test]
    fn what_is_no_key_is_corrupt_and_does_not_panic() {
        for bytes in
            [&b""[..], b"\x10", b"\x10\x00", b"\x10\x00\x02a", b"\x11\x00\x02a\x00\x00\x00", b"\xff\xff"]
        {
            assert!(Key::decode(Kind::Probe, bytes).is_err(), "{bytes:?}");
        }
        let mut longer = key("global", "p", &[]).as_bytes().to_vec();
        longer.push(0);
        assert!(Key::decode(Kind::Probe, &longer).is_err());
    }

    #[test]
    fn a_prefix_of_whole_parts_holds_no_longer_part() {
        let key =
            |bytes: &[u8]| Key::new(Kind::Probe, &Scope::Global, &["p".into()], &[bytes.into()]).unwrap();
        for part in [&[1][..], &[0], &[0, 0], &[1, 1], &[0xFF]] {
            let prefix =
                Prefix::partition(Kind::Probe, &Scope::Global, &["p".into()], &[part.into()]).unwrap();
            assert!(prefix.contains(&key(part)));
            for more in [0, 1, 2, 0xFF] {
                assert!(!prefix.contains(&key(&[part, &[more]].concat())), "{part:?} and {more}");
            }
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_after_all_it_contains() {
        let prefix = Prefix::reach(Kind::Probe, &Reach::Below("tenant:a".parse().unwrap())).unwrap();
        let inside = key("tenant:a/env:\u{10FFFF}", "p", &[]);
        assert!(inside.as_bytes() < prefix.end().unwrap().as_slice());
        assert_eq!(Prefix::kind_wide(Kind::Probe).end(), None);
    }
}
