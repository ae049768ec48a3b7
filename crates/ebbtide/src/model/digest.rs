//! Digests of secrets, and of names that are too long or too private to be part of a key.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::model::key::Part;

/// SHA-256 digest of a tuple of byte strings, for one purpose. Two digests are equal only if the purpose and every
/// part are equal.
#[derive(Clone, Copy)]
pub struct Digest([u8; Digest::BYTES]);

impl Digest {
    /// Size of a digest in bytes.
    pub const BYTES: usize = 32;

    /// Computes the digest of `parts` for `purpose`. Each part is prefixed with its length, so that no two tuples
    /// collide.
    #[must_use]
    pub fn of(purpose: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Creates a digest from stored bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Bytes to store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Digest as a part of a key.
    #[must_use]
    pub fn part(&self) -> Part<'_> {
        (&self.0).into()
    }
}

impl PartialEq for Digest {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Digest {}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_not_joined() {
        assert_ne!(Digest::of("p", &[b"ab", b"c"]), Digest::of("p", &[b"a", b"bc"]));
        assert_ne!(Digest::of("p", &[b"a"]), Digest::of("p", &[b"a", b""]));
        assert_ne!(Digest::of("p", &[b"a"]), Digest::of("q", &[b"a"]));
        assert_eq!(Digest::of("p", &[b"a"]), Digest::of("p", &[b"a"]));
    }
}
