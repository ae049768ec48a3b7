//! Keys of the log in order, for the kinds that users list.
//!
//! The maps hold the same entries as the index. A batch changes the maps of all its kinds while it has locked them,
//! so that a page that is read under the lock shows all of a batch or nothing. A record of such a kind costs its key
//! and about 60 bytes more than one of a kind that is not listed.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::index::IndexEntry;
use crate::model::kind::Kind;

/// Entries of one kind by key.
pub(crate) type Map = BTreeMap<Box<[u8]>, IndexEntry>;

/// A map for each kind that is listed, by the code of the kind.
pub(crate) struct Ordered(Box<[Option<RwLock<Map>>]>);

impl Ordered {
    pub(crate) fn new(is_listed: fn(Kind) -> bool) -> Self {
        let map = |code| Kind::from_code(code).filter(|kind| is_listed(*kind)).map(|_| RwLock::default());
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
    /// Sets the entry of a key. `is_known` if the index has an entry of the key, so that the map has one most often.
    pub(crate) fn set(&mut self, kind: Kind, key: &[u8], entry: IndexEntry, is_known: bool) {
        let mut maps = self.first.iter_mut().chain(&mut self.more);
        let Some((_, map)) = maps.find(|(locked, _)| *locked == kind) else { return };
        if is_known && let Some(place) = map.get_mut(key) {
            *place = entry;
            return;
        }
        // One descent, for a new key and for one that is there.
        map.insert(key.into(), entry);
    }
}
