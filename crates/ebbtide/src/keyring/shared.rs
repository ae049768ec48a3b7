//! A keyring that is replaced while it is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::{KeyId, Keyring};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Stopwatch;

/// Shortest time between two looks at the file for a key that is unknown.
const LOOK: Duration = Duration::from_secs(1);

const RECORD: &str = "record";

/// Bytes of a record's tag.
pub(crate) const TAG_BYTES: usize = 16;

/// Keyring that the parts of a process share. The file is read again when it changes. Clones share the keyring.
#[derive(Clone)]
pub struct SharedKeyring(Arc<Inner>);

struct Inner {
    loaded: RwLock<Arc<Loaded>>,
    file: Option<PathBuf>,
    /// State of the file when it was read last.
    read: Mutex<Option<Stamp>>,
    /// True if the ring was read again for a key that it lacked, and nobody has dealt with the change yet.
    unnoticed: AtomicBool,
    looked: Mutex<Option<Stopwatch>>,
    /// Ids of the keys that the store was used with: another node may have those that this ring lacks.
    known: RwLock<BTreeSet<KeyId>>,
}

/// Keyring with what is derived from its keys once.
pub(crate) struct Loaded {
    ring: Arc<Keyring>,
    records: BTreeMap<KeyId, Hmac<Sha256>>,
}

/// State of a file: another one means that its content may have changed.
#[derive(Clone, PartialEq, Eq)]
struct Stamp(std::time::SystemTime, u64, u64);

impl Loaded {
    fn new(ring: Keyring) -> Self {
        let mac = |id: &KeyId| ring.hmac(*id, RECORD, &[]).map(|mac| (*id, mac));
        let records = ring.keys.keys().filter_map(mac).collect();
        Self { ring: Arc::new(ring), records }
    }

    /// Tag of a record under the key `id`: over kind, key, version, exact expiry and value. None if the ring does not
    /// have the key.
    pub(crate) fn record_tag(
        &self,
        id: KeyId,
        key: &Key,
        record: &Record,
        value: &[u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let mut mac = self.records.get(&id)?.clone();
        mac.update(&[key.kind().code()]);
        mac.update(&(key.as_bytes().len() as u64).to_be_bytes());
        mac.update(key.as_bytes());
        mac.update(record.version.as_bytes());
        mac.update(&record.expires_at.as_millis().to_be_bytes());
        mac.update(value);
        mac.finalize().into_bytes().first_chunk().copied()
    }

    pub(crate) fn ring(&self) -> &Keyring {
        &self.ring
    }
}

impl SharedKeyring {
    /// Shares a keyring that has no file.
    #[must_use]
    pub fn new(keyring: Keyring) -> Self {
        Self::over(keyring, None)
    }

    /// Reads the keyring in `path`, and reads it again when the file changes.
    pub fn load(path: &Path) -> Result<Self> {
        let stamp = stamp(path);
        let shared = Self::over(Keyring::load(path)?, Some(path.to_owned()));
        *shared.0.read.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
        Ok(shared)
    }

    fn over(keyring: Keyring, file: Option<PathBuf>) -> Self {
        let loaded = RwLock::new(Arc::new(Loaded::new(keyring)));
        Self(Arc::new(Inner {
            loaded,
            file,
            read: Mutex::default(),
            unnoticed: AtomicBool::new(false),
            looked: Mutex::default(),
            known: RwLock::default(),
        }))
    }

    /// Keyring, as it was read last.
    #[must_use]
    pub fn get(&self) -> Arc<Keyring> {
        Arc::clone(&self.loaded().ring)
    }

    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.0.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the keyring.
    pub fn replace(&self, keyring: Keyring) {
        *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Loaded::new(keyring));
    }

    /// Reads the file again if it has changed, and returns whether it had since the last call: also if it was read
    /// meanwhile for a key that the ring lacked. A ring that has no key of the present one is a stranger's: it is
    /// refused, and the present one is kept. So is a ring with another naming key than the present one, or none.
    pub fn reload(&self) -> Result<bool> {
        let changed = self.read_again()?;
        Ok(self.0.unnoticed.swap(false, Ordering::AcqRel) || changed)
    }

    /// Lets the next [`reload`](Self::reload) return true again: what follows from a change could not be done.
    pub(crate) fn leave_unnoticed(&self) {
        self.0.unnoticed.store(true, Ordering::Release);
    }

    fn read_again(&self) -> Result<bool> {
        let Some(path) = &self.0.file else { return Ok(false) };
        let now = stamp(path);
        if now.is_some() && *self.0.read.lock().unwrap_or_else(PoisonError::into_inner) == now {
            return Ok(false);
        }
        let new = Keyring::load(path)?;
        let present = self.get();
        if !present.keys.keys().any(|id| present.same_key(&new, *id)) {
            return Err(Error::invalid(format!(
                "the keyring at {} has none of the keys in use; keeping those",
                path.display()
            )));
        }
        // The naming key never changes: under another one no record would be found again.
        if let Some(naming) = present.naming_key()
            && !new.naming_key().is_some_and(|new| naming.is_same(new))
        {
            return Err(Error::invalid(format!(
                "the keyring at {} does not have the naming key {} in use, with the same secret; keeping the keys in \
                 use",
                path.display(),
                naming.id()
            )));
        }
        self.replace(new);
        *self.0.read.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(true)
    }

    /// Notes the ids of the keys that the store was used with.
    pub(crate) fn set_known(&self, ids: impl IntoIterator<Item = KeyId>) {
        *self.0.known.write().unwrap_or_else(PoisonError::into_inner) = ids.into_iter().collect();
    }

    /// Keyring for a token that was made with the key `id`. `Unavailable` if the store knows the key and this ring, read
    /// again, does not have it: no answer is safer than "unknown". A key that the store does not know is an invented or
    /// a retired one.
    pub(crate) fn for_token(&self, id: KeyId) -> Result<Arc<Keyring>> {
        let loaded = self.loaded_with(id);
        let is_known = || self.0.known.read().unwrap_or_else(PoisonError::into_inner).contains(&id);
        if !loaded.records.contains_key(&id) && is_known() {
            return Err(Error::unavailable(format!(
                "a token was made with the key {id}, which is not in the keyring of this node"
            )));
        }
        Ok(Arc::clone(&loaded.ring))
    }

    /// Keyring for a value that was sealed under the key `id`.
    pub(crate) fn with_key(&self, id: KeyId) -> Arc<Keyring> {
        Arc::clone(&self.loaded_with(id).ring)
    }

    /// Keyring for a value that was made with the key `id`. If the ring lacks it, the file is looked at first: another
    /// node may have a newer one.
    pub(crate) fn loaded_with(&self, id: KeyId) -> Arc<Loaded> {
        let loaded = self.loaded();
        if loaded.records.contains_key(&id) || self.0.file.is_none() {
            return loaded;
        }
        let mut looked = self.0.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.as_ref().is_none_or(|looked| looked.elapsed() >= LOOK) {
            *looked = Some(Stopwatch::start());
            match self.read_again() {
                // The store learns of its keys, and the audit log of the change, in the next reload.
                Ok(true) => self.leave_unnoticed(),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "cannot read the keyring again"),
            }
        }
        self.loaded()
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    Some(Stamp(metadata.modified().ok()?, metadata.len(), inode))
}

impl fmt::Debug for SharedKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;
    use crate::model::time::Timestamp;

    #[test]
    fn a_changed_file_is_read_again_and_a_strangers_is_not() {
        let (dir, rng) = (tempfile::tempdir().unwrap(), SeededRng::new(1));
        let path = dir.path().join("keyring.json");
        let first = Keyring::generate(&rng, Timestamp::ZERO);
        first.create(&path, &rng).unwrap();
        let shared = SharedKeyring::load(&path).unwrap();
        assert!(!shared.reload().unwrap(), "nothing has changed");
        let added = Keyring::edit(&path, |ring| ring.add(&rng, Timestamp::ZERO)).unwrap();
        assert!(shared.reload().unwrap());
        assert!(shared.get().keys().iter().any(|key| key.id == added));
        fs::remove_file(&path).unwrap();
        Keyring::generate(&rng, Timestamp::ZERO).create(&path, &rng).unwrap();
        assert!(shared.reload().is_err());
        assert_eq!(shared.get().active(), first.active(), "the present one is kept");
        fs::remove_file(&path).unwrap();
        assert!(shared.reload().is_err(), "a missing file is an error");
    }

    #[test]
    fn a_file_with_another_naming_key_is_not_read() {
        let (dir, rng) = (tempfile::tempdir().unwrap(), SeededRng::new(3));
        let path = dir.path().join("keyring.json");
        let first = Keyring::generate(&rng, Timestamp::ZERO);
        first.create(&path, &rng).unwrap();
        let shared = SharedKeyring::load(&path).unwrap();
        let mut without = first.clone();
        without.naming = None;
        let replace = |ring: &Keyring| {
            fs::remove_file(&path).unwrap();
            ring.create(&path, &rng).unwrap();
        };
        for changed in [&without, &first.with_flipped_naming_key()] {
            replace(changed);
            let error = shared.reload().unwrap_err();
            assert!(error.message().contains("naming key"), "{error}");
            assert!(shared.get().naming_key().unwrap().is_same(first.naming_key().unwrap()), "kept");
        }
        // A ring without one gets one once.
        replace(&without);
        let shared = SharedKeyring::load(&path).unwrap();
        let added = Keyring::edit(&path, |ring| ring.add_naming_key(&rng, Timestamp::ZERO)).unwrap();
        assert!(shared.reload().unwrap());
        assert_eq!(shared.get().naming_key().unwrap().id(), added);
    }

    #[test]
    fn an_unknown_key_is_looked_up_in_the_file() {
        let (dir, rng) = (tempfile::tempdir().unwrap(), SeededRng::new(2));
        let path = dir.path().join("keyring.json");
        Keyring::generate(&rng, Timestamp::ZERO).create(&path, &rng).unwrap();
        let shared = SharedKeyring::load(&path).unwrap();
        let added = Keyring::edit(&path, |ring| ring.add(&rng, Timestamp::ZERO)).unwrap();
        assert!(shared.loaded_with(added).records.contains_key(&added));
        assert!(shared.reload().unwrap(), "whoever reloads learns of the change");
        assert!(!shared.reload().unwrap(), "once");
        shared.leave_unnoticed();
        assert!(shared.reload().unwrap(), "or again, if it failed to act on it");
    }
}
