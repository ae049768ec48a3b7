//! Naming key: digests of the ids that callers bring.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{KeyId, RingKey, new_key};
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;

/// Partition of a store's entries of its naming key, and purpose of the proof.
const ENTRY: &str = "naming-key";

/// Name of the proof beside the id.
const PROOF: &str = "proof";

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

    /// Place of the id in a store.
    pub(crate) fn id_place() -> Result<Key> {
        Key::new(Kind::System, &Scope::Global, &[ENTRY.into()], &[])
    }

    /// Place of the proof in a store. It is a record of its own: nodes of an earlier version read the id alone.
    pub(crate) fn proof_place() -> Result<Key> {
        Key::new(Kind::System, &Scope::Global, &[ENTRY.into()], &[PROOF.into()])
    }

    /// Proof of the secret: tells the key apart from another with the same id.
    pub(crate) fn proof(&self) -> Digest {
        self.digest(ENTRY, &[])
    }

    /// Returns whether `proof` was made with this secret.
    pub(crate) fn has_made(&self, proof: &[u8]) -> bool {
        <[u8; Digest::BYTES]>::try_from(proof).is_ok_and(|proof| self.proof() == Digest::from_bytes(proof))
    }

    /// Message of the refusal of a key with the id of the store's, and another secret.
    pub(crate) fn other_secret(&self) -> String {
        format!(
            "the secret of the naming key {} is not the one that the store's records are named with; restore the \
             keyring file",
            self.id
        )
    }

    /// Returns whether both keys have the same id and the same secret.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.proof() == other.proof()
    }
}

#[cfg(test)]
impl super::Keyring {
    /// The same ring with one bit of the naming key's secret flipped.
    pub(crate) fn with_flipped_naming_key(&self) -> Self {
        let mut ring = self.clone();
        let naming = ring.naming.take().unwrap();
        let mut secret = naming.entry.secret;
        secret[0] ^= 1;
        ring.naming = Some(NamingKey::of(naming.id, RingKey::new(secret, naming.entry.created_at)));
        ring
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

    #[test]
    fn a_proof_is_of_the_secret_and_not_of_the_id() {
        let ring = Keyring::generate(&SeededRng::new(1), Timestamp::ZERO);
        let flipped = ring.with_flipped_naming_key();
        let (naming, other) = (ring.naming_key().unwrap(), flipped.naming_key().unwrap());
        assert_eq!(naming.id(), other.id());
        let proof = *naming.proof().as_bytes();
        assert!(naming.has_made(&proof) && !naming.has_made(&proof[..31]) && !naming.has_made(&[]));
        assert!(!other.has_made(&proof) && !naming.is_same(other) && naming.is_same(naming));
    }
}
