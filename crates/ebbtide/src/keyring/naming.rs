//! Naming key: digests of the ids that callers bring.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{KeyId, RingKey, new_key};
use crate::model::digest::Digest;
use crate::model::rng::Rng;
use crate::model::time::Timestamp;

/// Key under which the ids, second keys and groups of records are digested. It is made once and never rotated or
/// retired: nodes with different active keys must find the same record under the same id.
#[derive(Clone)]
pub struct NamingKey {
    pub(super) id: KeyId,
    pub(super) entry: RingKey,
    /// Keyed once.
    mac: Hmac<Sha256>,
}

impl NamingKey {
    pub(super) fn generate(rng: &dyn Rng, now: Timestamp) -> Self {
        let (id, entry) = new_key(rng, now);
        Self::of(id, entry)
    }

    pub(super) fn of(id: KeyId, entry: RingKey) -> Self {
        let mac = Hmac::new_from_slice(&entry.secret).expect("HMAC takes a key of any length");
        Self { id, entry, mac }
    }

    /// Id of the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Creation time.
    #[must_use]
    pub fn created_at(&self) -> Timestamp {
        self.entry.created_at
    }

    /// Digest of `parts` for `purpose`. Each part is prefixed with its length, so that no two tuples collide.
    pub(crate) fn digest(&self, purpose: &str, parts: &[&[u8]]) -> Digest {
        let mut mac = self.mac.clone();
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Digest::from_bytes(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for NamingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamingKey({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::Keyring;
    use crate::model::rng::SeededRng;

    #[test]
    fn a_ring_keeps_its_naming_key_through_every_rotation() {
        let rng = SeededRng::new(1);
        let mut ring = Keyring::generate(&rng, Timestamp::ZERO);
        let before = ring.naming_key().unwrap().digest("id", &[b"sessions", b"a"]);
        let (old, new) = (ring.active(), ring.add(&rng, Timestamp::ZERO).unwrap());
        ring.activate(new).unwrap();
        ring.retire(old).unwrap();
        assert_eq!(ring.naming_key().unwrap().digest("id", &[b"sessions", b"a"]), before);
        assert!(ring.add_naming_key(&rng, Timestamp::ZERO).unwrap_err().message().contains("never replaced"));
    }

    #[test]
    fn digests_are_of_their_purpose_their_key_and_whole_parts() {
        let rng = SeededRng::new(1);
        let (one, other) =
            (NamingKey::generate(&rng, Timestamp::ZERO), NamingKey::generate(&rng, Timestamp::ZERO));
        let digest = one.digest("id", &[b"ab", b"c"]);
        assert_eq!(digest, one.digest("id", &[b"ab", b"c"]));
        assert_ne!(digest, one.digest("id", &[b"a", b"bc"]));
        assert_ne!(digest, one.digest("key", &[b"ab", b"c"]));
        assert_ne!(digest, other.digest("id", &[b"ab", b"c"]));
    }
}
