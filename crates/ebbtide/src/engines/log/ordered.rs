//! Keys of the log in order, for the kinds that users list.
//!
//! The maps hold the same entries as the index. A batch changes the maps of all its kinds while it has locked them,
//! so that a page that is read under the lock shows all of a batch or nothing. A record of such a kind costs its key
//! and about 60 bytes more than one of a kind that is not listed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::index::IndexEntry;
use crate::model::kind::Kind;

/// End of a part of a key, and the tag of bytes behind it.
const BYTES_BEHIND: [u8; 2] = [0x00, 0x03];

/// Entries of one kind by key, in the order of the bytes of the keys.
///
/// Keys of a [grouped](is_grouped) kind are split in front of the digest: each group keeps what its keys share once, and the
/// rest is compared by its first eight bytes, which stand in the node. A search in a map of whole keys reads each key that it compares from a place of its own in memory, and compares
/// what they share every time: with three million records that was a third of a write.
///
/// The first occurrence of [`BYTES_BEHIND`] ends the shared part, so that no shared part begins with another one, and the
/// order by shared parts and then by rests is that of the whole keys.
#[derive(Default)]
pub(crate) struct Map {
    is_grouped: bool,
    groups: BTreeMap<Box<[u8]>, BTreeMap<Rest, IndexEntry>>,
}

/// Rest of a key, behind what its group shares.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rest {
    /// First bytes, with zeros behind a shorter rest.
    head: u64,
    bytes: Box<[u8]>,
}

impl Rest {
    fn new(bytes: &[u8]) -> Self {
        let mut head = [0; 8];
        let len = bytes.len().min(8);
        head[..len].copy_from_slice(&bytes[..len]);
        Self { head: u64::from_be_bytes(head), bytes: bytes.into() }
    }
}

impl Map {
    fn of(kind: Kind) -> Self {
        Self { is_grouped: is_grouped(kind), groups: BTreeMap::new() }
    }

    fn split<'a>(&self, key: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        if !self.is_grouped {
            return (&[], key);
        }
        let len = BYTES_BEHIND.len();
        let shared = key.windows(len).position(|pair| pair == BYTES_BEHIND);
        key.split_at(shared.map_or(key.len(), |at| at + len))
    }

    /// Sets the entry of a key, which may be new.
    pub(crate) fn insert(&mut self, key: &[u8], entry: IndexEntry) {
        let (shared, rest) = self.split(key);
        if let Some(group) = self.groups.get_mut(shared) {
            group.insert(Rest::new(rest), entry);
        } else {
            self.groups.insert(shared.into(), BTreeMap::from([(Rest::new(rest), entry)]));
        }
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let (shared, rest) = self.split(key);
        if let Some(group) = self.groups.get_mut(shared) {
            group.remove(&Rest::new(rest));
            if group.is_empty() {
                self.groups.remove(shared);
            }
        }
    }

    /// Keys from `start` on, in order.
    pub(crate) fn from(&self, start: Bound<&[u8]>) -> impl Iterator<Item = (Box<[u8]>, IndexEntry)> {
        let (first, from) = match start {
            Bound::Unbounded => (&[][..], Bound::Unbounded),
            Bound::Included(key) => {
                let (shared, rest) = self.split(key);
                (shared, Bound::Included(Rest::new(rest)))
            }
            Bound::Excluded(key) => {
                let (shared, rest) = self.split(key);
                (shared, Bound::Excluded(Rest::new(rest)))
            }
        };
        let own = self.groups.get_key_value(first).into_iter().flat_map(move |(shared, group)| {
            group.range((from.as_ref(), Bound::Unbounded)).map(|(rest, entry)| whole(shared, rest, *entry))
        });
        let behind = self.groups.range::<[u8], _>((Bound::Excluded(first), Bound::Unbounded));
        own.chain(
            behind.flat_map(|(shared, group)| group.iter().map(|(rest, entry)| whole(shared, rest, *entry))),
        )
    }
}

/// Returns true for the kinds whose keys have a digest, or an id at random, behind a scope and at most a name.
fn is_grouped(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Code
            | Kind::Grant
            | Kind::GrantIndex
            | Kind::AccessToken
            | Kind::ProviderToken
            | Kind::Session
            | Kind::SessionIndex
            | Kind::PushedRequest
            | Kind::DeviceCode
            | Kind::UserCode
            | Kind::Client
            | Kind::ClientIndex
            | Kind::Challenge
            | Kind::ChallengeIndex
            | Kind::Record
    )
}

fn whole(shared: &[u8], rest: &Rest, entry: IndexEntry) -> (Box<[u8]>, IndexEntry) {
    ([shared, &rest.bytes].concat().into(), entry)
}

/// A map for each kind that is listed, by the code of the kind.
pub(crate) struct Ordered(Box<[Option<RwLock<Map>>]>);

impl Ordered {
    pub(crate) fn new(is_listed: fn(Kind) -> bool) -> Self {
        let map = |code| {
            Kind::from_code(code).filter(|kind| is_listed(*kind)).map(|kind| RwLock::new(Map::of(kind)))
        };
        Self((0..=u8::MAX).map(map).collect())
    }

    fn map(&self, kind: Kind) -> Option<&RwLock<Map>> {
        self.0[usize::from(kind.code())].as_ref()
    }

    /// Locks the map of a kind for reading; none if the kind is not listed.
    pub(crate) fn read(&self, kind: Kind) -> Option<RwLockReadGuard<'_, Map>> {
        Some(self.map(kind)?.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the map of a kind for a change; none if the kind is not listed.
    pub(crate) fn write(&self, kind: Kind) -> Option<RwLockWriteGuard<'_, Map>> {
        Some(self.map(kind)?.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the maps of these kinds, in order.
    pub(crate) fn lock(&self, mut kinds: impl Iterator<Item = Kind> + Clone) -> LockedMaps<'_> {
        let all = kinds.clone();
        let first = kinds.next();
        // Nearly every batch is of one kind.
        if kinds.all(|kind| Some(kind) == first) {
            return LockedMaps { first: first.and_then(|kind| self.locked(kind)), more: Vec::new() };
        }
        let mut kinds: Vec<Kind> = all.collect();
        kinds.sort_unstable();
        kinds.dedup();
        LockedMaps { first: None, more: kinds.into_iter().filter_map(|kind| self.locked(kind)).collect() }
    }

    fn locked(&self, kind: Kind) -> Option<LockedMap<'_>> {
        Some((kind, self.write(kind)?))
    }
}

type LockedMap<'a> = (Kind, RwLockWriteGuard<'a, Map>);

/// Maps that a batch has locked.
pub(crate) struct LockedMaps<'a> {
    first: Option<LockedMap<'a>>,
    more: Vec<LockedMap<'a>>,
}

impl LockedMaps<'_> {
    /// Sets the entry of a key, if its kind is listed.
    pub(crate) fn set(&mut self, kind: Kind, key: &[u8], entry: IndexEntry) {
        let mut maps = self.first.iter_mut().chain(&mut self.more);
        if let Some((_, map)) = maps.find(|(locked, _)| *locked == kind) {
            map.insert(key, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engines::log::index::Presence;
    use crate::engines::log::position::Position;
    use crate::model::time::Timestamp;

    fn entry(number: u32) -> IndexEntry {
        IndexEntry::new(0, Kind::Record, Position::new(1, number), Presence::Stored(Timestamp::NEVER), false)
    }

    /// Bytes in which shared parts, keys that are prefixes of others, and equal heads are frequent.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(vec![0, 3]),
            Just(vec![0]),
            Just(vec![3]),
            Just(vec![2, b'a']),
            Just(vec![7; 8]),
            prop::collection::vec(any::<u8>(), 1..3),
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_map_is_read_in_the_order_of_whole_keys(
            changes in prop::collection::vec((key(), any::<bool>()), 0..60),
            start in key(),
            is_grouped in any::<bool>(),
        ) {
            let mut map = Map { is_grouped, ..Map::default() };
            let mut model = BTreeMap::new();
            for (number, (key, stays)) in (0..).zip(changes) {
                if stays {
                    map.insert(&key, entry(number));
                    model.insert(key, entry(number));
                } else {
                    map.remove(&key);
                    model.remove(&key);
                }
            }
            for bound in [Bound::Unbounded, Bound::Included(&start[..]), Bound::Excluded(&start[..])] {
                let read: Vec<(Vec<u8>, IndexEntry)> =
                    map.from(bound).map(|(key, entry)| (key.into_vec(), entry)).collect();
                let expected: Vec<(Vec<u8>, IndexEntry)> = model
                    .range::<[u8], _>((bound, Bound::Unbounded))
                    .map(|(key, entry)| (key.clone(), *entry))
                    .collect();
                prop_assert_eq!(read, expected);
            }
        }
    }
}
