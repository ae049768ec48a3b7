//! Keyring: the keys that derive refresh tokens and seal payloads.

mod cipher;
mod file;
mod naming;
pub mod shared;

pub use naming::NamingKey;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize, Zeroizing};

use self::cipher::{Cipher, Nonce};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::rng::Rng;
use crate::model::time::Timestamp;

/// Identifier of a key in a keyring. It is not secret: tokens and sealed values carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; KeyId::BYTES]);

impl KeyId {
    /// Size of an id in bytes.
    pub const BYTES: usize = 4;

    pub(crate) const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    /// Prints eight hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl FromStr for KeyId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("the id of a key must be 8 hexadecimal digits");
        if text.len() != 2 * Self::BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u32::from_str_radix(text, 16).map(|number| Self(number.to_be_bytes())).map_err(|_| wrong())
    }
}

/// Public metadata of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyInfo {
    /// Id of the key.
    pub id: KeyId,
    /// True if new tokens are derived with this key.
    pub active: bool,
    /// Creation time.
    pub created_at: Timestamp,
}

#[derive(Clone)]
struct RingKey {
    secret: [u8; 32],
    created_at: Timestamp,
    /// Extracted once: it is most of the work of a subkey.
    extracted: OnceLock<Hkdf<Sha256>>,
    /// Subkeys that seal in the contexts of [`RingKey::slot`].
    seals: [OnceLock<Zeroizing<[u8; 32]>>; 3],
}

impl RingKey {
    fn new(secret: [u8; 32], created_at: Timestamp) -> Self {
        Self { secret, created_at, extracted: OnceLock::new(), seals: Default::default() }
    }

    /// Derives a subkey for each purpose, so that no use of one reveals anything about another.
    fn subkey(&self, purpose: &str, context: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut subkey = Zeroizing::new([0; 32]);
        let length = (purpose.len() as u64).to_be_bytes();
        self.extracted
            .get_or_init(|| Hkdf::new(None, &self.secret))
            .expand_multi_info(&[b"ebbtide", &length, purpose.as_bytes(), context], subkey.as_mut_slice())
            .expect("32 bytes are within what HKDF gives");
        subkey
    }

    /// Place of the subkey for a frequent context; others are derived each time.
    fn slot(&self, context: &[u8]) -> Option<&OnceLock<Zeroizing<[u8; 32]>>> {
        match context {
            [] => self.seals.first(),
            [shape @ 1..=2] => self.seals.get(usize::from(*shape)),
            _ => None,
        }
    }

    /// Cipher of one value in a context.
    fn cipher(&self, context: &[u8], nonce: &Nonce) -> Cipher {
        let derive = || self.subkey(SEAL, context);
        match self.slot(context) {
            Some(slot) => Cipher::new(slot.get_or_init(derive), nonce),
            None => Cipher::new(&derive(), nonce),
        }
    }
}

impl Drop for RingKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// Set of keys, one of them active. New tokens are derived with the active key; tokens of every key in the ring are
/// accepted. After a key is retired, its refresh tokens are `Unknown`, and values sealed under it cannot be opened
/// (an error of kind `Unavailable`, never an answer).
#[derive(Clone)]
pub struct Keyring {
    keys: BTreeMap<KeyId, RingKey>,
    active: KeyId,
    naming: Option<NamingKey>,
}

impl Keyring {
    /// Maximum number of keys.
    pub const MAX_KEYS: usize = 64;

    /// Bytes that sealing adds: the id of the key, the nonce, the tag.
    pub(crate) const SEALED_BYTES: usize = KeyId::BYTES + size_of::<Nonce>() + 16;

    /// Generates a ring with one new key and a naming key.
    #[must_use]
    pub fn generate(rng: &dyn Rng, now: Timestamp) -> Self {
        let (id, entry) = new_key(rng, now);
        Self { keys: BTreeMap::from([(id, entry)]), active: id, naming: Some(NamingKey::generate(rng, now)) }
    }

    /// Adds a naming key to a ring that was made without one, and returns its id. Copy the ring to every node before
    /// the first record is written. A ring that has one keeps it: under another, no record would be found again.
    pub fn add_naming_key(&mut self, rng: &dyn Rng, now: Timestamp) -> Result<KeyId> {
        if let Some(naming) = &self.naming {
            return Err(Error::invalid(format!(
                "the keyring has the naming key {} already, and a naming key is never replaced",
                naming.id()
            )));
        }
        Ok(self.naming.insert(NamingKey::generate(rng, now)).id())
    }

    /// Naming key; none if the ring was made before there were any.
    #[must_use]
    pub fn naming_key(&self) -> Option<&NamingKey> {
        self.naming.as_ref()
    }

    /// Adds a new key and returns its id. It is inactive, so that it can be distributed to every node first.
    pub fn add(&mut self, rng: &dyn Rng, now: Timestamp) -> Result<KeyId> {
        if self.keys.len() >= Self::MAX_KEYS {
            return Err(Error::invalid(format!(
                "a keyring holds at most {} keys; retire one first",
                Self::MAX_KEYS
            )));
        }
        loop {
            let (id, entry) = new_key(rng, now);
            // Ids are short and may collide; an existing key is never overwritten.
            if let Slot::Vacant(slot) = self.keys.entry(id) {
                slot.insert(entry);
                return Ok(id);
            }
        }
    }

    /// Derives new tokens with this key from now on. Tokens of the other keys stay valid.
    pub fn activate(&mut self, id: KeyId) -> Result<()> {
        self.entry(id).ok_or_else(|| no_such_key(id))?;
        self.active = id;
        Ok(())
    }

    /// Removes a key permanently. The active key cannot be retired.
    pub fn retire(&mut self, id: KeyId) -> Result<()> {
        if id == self.active {
            return Err(Error::invalid(format!("the key {id} is active; activate another key first")));
        }
        self.keys.remove(&id).map(drop).ok_or_else(|| no_such_key(id))
    }

    /// Keys, oldest first.
    #[must_use]
    pub fn keys(&self) -> Vec<KeyInfo> {
        let info = |(&id, entry): (&KeyId, &RingKey)| KeyInfo {
            id,
            active: id == self.active,
            created_at: entry.created_at,
        };
        let mut keys: Vec<_> = self.keys.iter().map(info).collect();
        keys.sort_by_key(|key| (key.created_at, key.id));
        keys
    }

    /// Id of the active key.
    #[must_use]
    pub fn active(&self) -> KeyId {
        self.active
    }

    fn entry(&self, id: KeyId) -> Option<&RingKey> {
        self.keys.get(&id)
    }

    fn hmac(&self, id: KeyId, purpose: &str, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let subkey = self.entry(id)?.subkey(purpose, &[]);
        let mut mac =
            Hmac::<Sha256>::new_from_slice(subkey.as_slice()).expect("HMAC takes a key of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Some(mac)
    }

    /// Computes the MAC of `parts` for `purpose`; `None` if the key is not in the ring.
    pub(crate) fn mac(&self, id: KeyId, purpose: &str, parts: &[&[u8]]) -> Option<[u8; 32]> {
        self.hmac(id, purpose, parts).map(|mac| mac.finalize().into_bytes().into())
    }

    /// Verifies the MAC in constant time. Returns false if the key is not in the ring.
    pub(crate) fn verify(&self, id: KeyId, purpose: &str, parts: &[&[u8]], mac: &[u8]) -> bool {
        self.hmac(id, purpose, parts).is_some_and(|expected| expected.verify_slice(mac).is_ok())
    }

    /// Seals `plain` for the record at `key` under the active key. It does not open at another key or with another
    /// `context`.
    pub(crate) fn seal(&self, key: &Key, context: &[u8], plain: &[u8], rng: &dyn Rng) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(Self::SEALED_BYTES + plain.len());
        self.seal_into(&mut sealed, key, context, plain, rng);
        sealed
    }

    /// The same, behind what is in `out`.
    pub(crate) fn seal_into(
        &self,
        out: &mut Vec<u8>,
        key: &Key,
        context: &[u8],
        plain: &[u8],
        rng: &dyn Rng,
    ) {
        let nonce: Nonce = rng.bytes();
        let cipher = self.entry(self.active).expect("the active key is in the ring").cipher(context, &nonce);
        out.reserve(Self::SEALED_BYTES + plain.len());
        out.extend_from_slice(self.active.as_bytes());
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plain);
        let tag = cipher.seal(&associated(key), &mut out[start..]);
        out.extend_from_slice(tag.as_ref());
    }

    /// Opens a value that was sealed for the record at `key` in this `context`.
    pub(crate) fn open(&self, key: &Key, context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let broken =
            || Error::corrupt("sealed value cannot be opened: it was modified or sealed for another record");
        let (id, rest) = sealed.split_first_chunk().ok_or_else(broken)?;
        let (nonce, rest) = rest.split_first_chunk().ok_or_else(broken)?;
        let id = KeyId::from_bytes(*id);
        let entry = self.entry(id).ok_or_else(|| {
            Error::unavailable(format!("value is sealed under key {id}, which is not in the keyring"))
        })?;
        entry.cipher(context, nonce).open(&associated(key), rest).ok_or_else(broken)
    }

    /// Returns whether both rings have this key, with the same secret.
    pub(crate) fn same_key(&self, other: &Self, id: KeyId) -> bool {
        match (self.entry(id), other.entry(id)) {
            (Some(one), Some(other)) => bool::from(one.secret.ct_eq(&other.secret)),
            _ => false,
        }
    }

    /// Id of the key that `sealed` was sealed under.
    pub(crate) fn sealed_under(sealed: &[u8]) -> Option<KeyId> {
        sealed.first_chunk().map(|id| KeyId::from_bytes(*id))
    }
}

const SEAL: &str = "seal";

/// Associated data of a sealed value: the kind and the whole key of its record.
fn associated(key: &Key) -> Vec<u8> {
    [&[key.kind().code()], key.as_bytes()].concat()
}

fn new_key(rng: &dyn Rng, created_at: Timestamp) -> (KeyId, RingKey) {
    (KeyId(rng.bytes()), RingKey::new(rng.bytes(), created_at))
}

fn no_such_key(id: KeyId) -> Error {
    Error::invalid(format!("the keyring has no key {id}"))
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} keys, {} is active)", self.keys.len(), self.active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::ErrorKind;
    use crate::model::kind::Kind;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;

    fn key(kind: Kind, name: &str) -> Key {
        Key::new(kind, &Scope::Global, &[name.into()], &[]).unwrap()
    }

    #[test]
    fn a_sealed_value_opens_at_its_own_key_alone() {
        let rng = SeededRng::new(1);
        let ring = Keyring::generate(&rng, Timestamp::ZERO);
        let sealed = ring.seal(&key(Kind::Code, "a"), b"", b"hunter2", &rng);
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(ring.open(&key(Kind::Code, "a"), b"", &sealed).unwrap().as_slice(), b"hunter2");
        let elsewhere = [
            ring.open(&key(Kind::Code, "b"), b"", &sealed),
            ring.open(&key(Kind::Grant, "a"), b"", &sealed),
            ring.open(&key(Kind::Code, "a"), b"x", &sealed),
        ];
        let stranger = Keyring::generate(&rng, Timestamp::ZERO).open(&key(Kind::Code, "a"), b"", &sealed);
        assert_eq!(stranger.unwrap_err().kind(), ErrorKind::Unavailable, "another node may have the key");
        for opened in elsewhere {
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(ring.open(&key(Kind::Code, "a"), b"", &changed).is_err(), "byte {at}");
            assert!(ring.open(&key(Kind::Code, "a"), b"", &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn old_keys_are_good_until_they_are_retired() {
        let rng = SeededRng::new(1);
        let mut ring = Keyring::generate(&rng, Timestamp::ZERO);
        let old = ring.active();
        let mac = ring.mac(old, "p", &[b"a"]).unwrap();
        let sealed = ring.seal(&key(Kind::Code, "a"), b"", b"x", &rng);
        let new = ring.add(&rng, Timestamp::ZERO).unwrap();
        assert_eq!(ring.active(), old, "a new key waits until every node has it");
        ring.activate(new).unwrap();
        assert!(ring.verify(old, "p", &[b"a"], &mac));
        assert!(ring.open(&key(Kind::Code, "a"), b"", &sealed).is_ok());
        assert!(ring.retire(new).unwrap_err().message().contains("active"));
        ring.retire(old).unwrap();
        assert!(!ring.verify(old, "p", &[b"a"], &mac));
        let error = ring.open(&key(Kind::Code, "a"), b"", &sealed).unwrap_err();
        assert!(error.message().contains(&old.to_string()), "{error}");
        assert!(ring.retire(old).is_err() && ring.activate(old).is_err());
    }

    #[test]
    fn a_mac_is_of_its_purpose_its_key_and_whole_parts() {
        let rng = SeededRng::new(1);
        let mut ring = Keyring::generate(&rng, Timestamp::ZERO);
        let (first, second) = (ring.active(), ring.add(&rng, Timestamp::ZERO).unwrap());
        let mac = ring.mac(first, "p", &[b"ab", b"c"]).unwrap();
        assert!(ring.verify(first, "p", &[b"ab", b"c"], &mac));
        assert!(!ring.verify(first, "p", &[b"a", b"bc"], &mac));
        assert!(!ring.verify(first, "q", &[b"ab", b"c"], &mac));
        assert!(!ring.verify(second, "p", &[b"ab", b"c"], &mac));
        assert!(!ring.verify(first, "p", &[b"ab", b"c"], &mac[..31]));
    }

    #[test]
    fn ids_are_read_as_they_are_printed() {
        let id = KeyId([0, 1, 0xab, 0xff]);
        assert_eq!(id.to_string(), "0001abff");
        assert_eq!("0001abff".parse::<KeyId>().unwrap(), id);
        for bad in ["", "0001abf", "0001abfff", "0001abfg", "+001abff"] {
            assert!(bad.parse::<KeyId>().is_err(), "{bad}");
        }
    }
}
