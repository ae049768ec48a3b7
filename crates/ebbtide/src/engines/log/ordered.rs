//! Keys of the log in order, for the kinds that users list.
//!
//! The maps hold the same entries as the index. A batch changes the maps of all its kinds while it has locked them,
//! so that a page that is read under the lock shows all of a batch or nothing. A record of such a kind costs its key
//! and about 60 bytes more than one of a kind that is not listed.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::index::Entry;
use crate::model::kind::Kind;

/// Entries of one kind by key.
pub(crate) type Map = BTreeMap<Box<[u8]>, Entry>;

/// A map for each kind that is listed.
pub(crate) struct Ordered(Vec<(Kind, RwLock<Map>)>);

impl Ordered {
    pub(crate) fn new(is_listed: fn(Kind) -> bool) -> Self {
        let listed = Kind::ALL.iter().copied().filter(|kind| is_listed(*kind));
        Self(listed.map(|kind| (kind, RwLock::default())).collect())
    }

    fn map(&self, kind: Kind) -> Option<&RwLock<Map>> {
        self.0.iter().find(|(listed, _)| *listed == kind).map(|(_, map)| map)
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
    pub(crate) fn lock(&self, kinds: impl Iterator<Item = Kind>) -> LockedMaps<'_> {
        let mut kinds: Vec<Kind> = kinds.collect();
        kinds.sort_unstable();
        kinds.dedup();
        LockedMaps(kinds.into_iter().filter_map(|kind| Some((kind, self.write(kind)?))).collect())
    }
}

/// Maps that a batch has locked.
pub(crate) struct LockedMaps<'a>(Vec<(Kind, RwLockWriteGuard<'a, Map>)>);

impl LockedMaps<'_> {
    pub(crate) fn set(&mut self, kind: Kind, key: &[u8], entry: Entry) {
        if let Some((_, map)) = self.0.iter_mut().find(|(locked, _)| *locked == kind) {
            // One descent, for a new key and for one that is there.
            map.insert(key.into(), entry);
        }
    }
}
