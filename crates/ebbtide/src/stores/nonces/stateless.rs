//! Stateless nonces: derived from the keyring, so that issuing one writes no record.
//!
//! A nonce carries its end, random bytes, and a MAC over these, the scope and the audience. Only
//! [`accept`](super::Nonces::accept) writes a record: that it was used.

use crate::keyring::{KeyId, Keyring};
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
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
}

impl Stateless {
    /// Derives a nonce of an audience that ends at `valid_until`.
    pub(super) fn derive(
        keyring: &Keyring,
        scope: &Scope,
        audience: &str,
        valid_until: Timestamp,
        rng: &dyn Rng,
    ) -> Self {
        let key = keyring.active();
        let mut bytes = [0; WHOLE];
        bytes[..KEY].copy_from_slice(key.as_bytes());
        bytes[KEY..RANDOM].copy_from_slice(&valid_until.as_millis().to_be_bytes());
        bytes[RANDOM..SAID].copy_from_slice(&rng.bytes::<{ SAID - RANDOM }>());
        let scope = scope.to_string();
        let mac = keyring.mac(key, PURPOSE, &[scope.as_bytes(), audience.as_bytes(), &bytes[KEY..SAID]]);
        bytes[SAID..].copy_from_slice(&mac.expect("the active key is in the ring"));
        Self { bytes, valid_until }
    }

    pub(super) fn to_secret(&self) -> Secret {
        token::write(token::NONCE, &self.bytes)
    }

    /// Reads a nonce; none unless it was derived for this scope and audience with a key of the ring.
    pub(super) fn read(keyring: &Keyring, scope: &Scope, audience: &str, nonce: &Secret) -> Option<Self> {
        let bytes = token::decode::<WHOLE>(token::NONCE, nonce)?;
        let key = KeyId::from_bytes(*bytes.first_chunk()?);
        let (said, mac) = bytes[KEY..].split_at(SAID - KEY);
        let scope = scope.to_string();
        if !keyring.verify(key, PURPOSE, &[scope.as_bytes(), audience.as_bytes(), said], mac) {
            return None;
        }
        let valid_until = Timestamp::from_millis(u64::from_be_bytes(*said.first_chunk()?)).ok()?;
        Some(Self { bytes, valid_until })
    }
}
