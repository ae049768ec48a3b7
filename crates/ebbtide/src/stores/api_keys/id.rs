//! Ids of API keys, and the secrets themselves.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use zeroize::Zeroizing;

use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::stores::shared::token;

/// Id of an API key, with its scope. It is no secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyId {
    scope: Scope,
    bytes: [u8; KeyId::BYTES],
}

impl KeyId {
    const BYTES: usize = 16;
    const SECRET_BYTES: usize = 32;

    pub(super) fn new(scope: Scope, rng: &dyn Rng) -> Self {
        Self { scope, bytes: rng.bytes() }
    }

    pub(super) fn from_parts(scope: Scope, bytes: &[u8]) -> Option<Self> {
        Some(Self { scope, bytes: bytes.try_into().ok()? })
    }

    /// Scope of the key.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// Generates a secret with this id, and its digest.
    pub(super) fn mint(&self, rng: &dyn Rng) -> (Secret, Digest) {
        let secret = Zeroizing::new(rng.bytes::<{ Self::SECRET_BYTES }>());
        let scope = self.scope.to_string();
        let bytes = Zeroizing::new([secret.as_slice(), &self.bytes, scope.as_bytes()].concat());
        (token::write(token::API_KEY, &bytes), self.digest(secret.as_slice()))
    }

    /// Reads the id in a secret, and the digest of the secret; `None` if the text is no key, so that it does not reach
    /// the store.
    pub(super) fn read(key: &Secret) -> Option<(Self, Digest)> {
        let body = key.expose().strip_prefix(token::API_KEY)?;
        let bytes = Zeroizing::new(Base64UrlUnpadded::decode_vec(body).ok()?);
        let (secret, rest) = bytes.split_at_checked(Self::SECRET_BYTES)?;
        let id = Self::decode(rest)?;
        let digest = id.digest(secret);
        Some((id, digest))
    }

    fn digest(&self, secret: &[u8]) -> Digest {
        Digest::of(token::API_KEY, &[self.scope.to_string().as_bytes(), &self.bytes, secret])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, scope) = bytes.split_at_checked(Self::BYTES)?;
        let text = std::str::from_utf8(scope).ok()?;
        let id = Self::from_parts(text.parse().ok()?, bytes)?;
        // One id has one text form: of the several text forms of a scope, only the canonical one is accepted.
        (id.scope.to_string() == text).then_some(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.bytes.as_slice(), self.scope.to_string().as_bytes()].concat();
        f.write_str(&Base64UrlUnpadded::encode_string(&bytes))
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
        let bytes = Base64UrlUnpadded::decode_vec(text).ok();
        bytes.and_then(|bytes| Self::decode(&bytes)).ok_or_else(|| {
            Error::invalid("invalid id of an API key; the id is shown when the key is created").about("id")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    #[test]
    fn an_id_has_one_text_and_tells_its_scope() {
        for scope in ["global", "tenant:acme", "tenant:50%25/env:é", "custom:a/b"] {
            let id = KeyId::new(scope.parse().unwrap(), &SeededRng::new(1));
            assert_eq!(id.to_string().parse::<KeyId>().unwrap(), id);
            let (key, digest) = id.mint(&SeededRng::new(2));
            assert_eq!(KeyId::read(&key), Some((id, digest)));
        }
        let escaped = [&[0; KeyId::BYTES][..], b"tenant:%61"].concat();
        assert!(
            Base64UrlUnpadded::encode_string(&escaped).parse::<KeyId>().is_err(),
            "tenant:a is written so"
        );
        for bad in ["", "AAAA", "tenant:acme", &"A".repeat(22)] {
            assert!(bad.parse::<KeyId>().is_err(), "{bad}");
        }
    }
}
