//! Stateless nonces: derived from the keyring, so that issuing one writes no record.
//!
//! A nonce carries its end, random bytes, and a MAC over these, the scope and the audience. Only
//! [`accept`](super::Nonces::accept) writes a record: that it was used.

use crate::keyring::{KeyId, Keyring};
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::stores::shared::fence::Fence;
use crate::stores::shared::token;

const PURPOSE: &str = "stateless-nonce";
const KEY: usize = KeyId::BYTES;
const RANDOM: usize = KEY + 8;
const SAID: usize = RANDOM + 12;
const WHOLE: usize = SAID + 32;

/// Bytes of a stateless nonce whose MAC is valid, and its end.
pub(super) struct Stateless {
    pub(super) bytes: [u8; WHOLE],
    pub(super) valid_until: Timestamp,
    /// True if it is from before the fence of a restored backup, which does not know whether it was used.
    pub(super) is_fenced: bool,
}

/// Secrets and names that a nonce is derived from.
pub(super) struct NonceSource<'a> {
    pub(super) keyring: &'a Keyring,
    pub(super) scope: &'a Scope,
    pub(super) audience: &'a str,
    pub(super) fence: Option<Fence>,
}

impl NonceSource<'_> {
    /// Parts of the MAC of a nonce that was derived after `fence`.
    fn parts<R>(&self, fence: Option<Fence>, said: &[u8], with: impl FnOnce(&[&[u8]]) -> R) -> R {
        let (scope, fence) = (self.scope.to_string(), fence.map(|fence| fence.at.as_millis().to_be_bytes()));
        let mut parts = vec![scope.as_bytes(), self.audience.as_bytes(), said];
        parts.extend(fence.as_ref().map(<[u8; 8]>::as_slice));
        with(&parts)
    }
}

impl Stateless {
    /// Derives a nonce of an audience that ends at `valid_until`.
    pub(super) fn derive(source: &NonceSource<'_>, valid_until: Timestamp, rng: &dyn Rng) -> Self {
        let key = source.keyring.active();
        let mut bytes = [0; WHOLE];
        bytes[..KEY].copy_from_slice(key.as_bytes());
        bytes[KEY..RANDOM].copy_from_slice(&valid_until.as_millis().to_be_bytes());
        bytes[RANDOM..SAID].copy_from_slice(&rng.bytes::<{ SAID - RANDOM }>());
        let mac = source
            .parts(source.fence, &bytes[KEY..SAID], |parts| source.keyring.mac(key, PURPOSE, parts))
            .expect("the active key is in the ring");
        bytes[SAID..].copy_from_slice(&mac);
        Self { bytes, valid_until, is_fenced: false }
    }

    pub(super) fn to_secret(&self) -> Secret {
        token::write(token::NONCE, &self.bytes)
    }

    /// Key that a nonce says it was derived with; none if it is not stateless.
    pub(super) fn key_of(nonce: &Secret) -> Option<KeyId> {
        let bytes = token::decode::<WHOLE>(token::NONCE, nonce)?;
        Some(KeyId::from_bytes(*bytes.first_chunk()?))
    }

    /// Reads a nonce; none unless it was derived for this scope and audience with a key of the ring.
    pub(super) fn read(source: &NonceSource<'_>, nonce: &Secret) -> Option<Self> {
        let bytes = token::decode::<WHOLE>(token::NONCE, nonce)?;
        let key = KeyId::from_bytes(*bytes.first_chunk()?);
        let (said, mac) = bytes[KEY..].split_at(SAID - KEY);
        let is_of =
            |fence| source.parts(fence, said, |parts| source.keyring.verify(key, PURPOSE, parts, mac));
        let is_fenced = !is_of(source.fence);
        if is_fenced && (source.fence.is_none() || !is_of(None)) {
            return None;
        }
        let valid_until = Timestamp::from_millis(u64::from_be_bytes(*said.first_chunk()?)).ok()?;
        Some(Self { bytes, valid_until, is_fenced })
    }
}
