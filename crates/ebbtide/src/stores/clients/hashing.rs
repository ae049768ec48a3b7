//! Argon2id hashes of client secrets, computed on threads of their own.

use std::fmt;
use std::sync::Arc;
use std::thread;

use argon2::{Algorithm, Argon2, Params, Version};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq;
use tokio::sync::{Semaphore, oneshot};
use zeroize::Zeroizing;

use crate::model::error::{Error, Result};
use crate::model::rng::Rng;
use crate::model::secret::Secret;

/// Maximum number of concurrent hashes: each takes a core, and its memory.
const AT_ONCE: usize = 2;

/// Cost of a new hash. Each hash stores its own cost, so the cost can be changed at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashCost {
    memory_kib: u32,
    passes: u32,
}

impl HashCost {
    /// Cost of that much memory and that many passes; at least 8 KiB and one pass.
    pub fn new(memory_kib: u32, passes: u32) -> Result<Self> {
        let cost = Self { memory_kib, passes };
        params(cost)
            .map_err(|error| Error::invalid("invalid cost of a hash").caused_by(error.to_string()))?;
        Ok(cost)
    }
}

impl Default for HashCost {
    /// 19 MiB and two passes: the recommended minimum for Argon2id.
    fn default() -> Self {
        Self { memory_kib: 19 * 1024, passes: 2 }
    }
}

fn params(cost: HashCost) -> Result<Params, argon2::Error> {
    Params::new(cost.memory_kib, cost.passes, 1, Some(32))
}

/// Stored hash of a client secret.
#[derive(Clone, Encode, Decode)]
pub(super) struct SecretHash {
    #[n(0)]
    salt: ByteArray<16>,
    #[n(1)]
    hash: ByteArray<32>,
    #[n(2)]
    memory_kib: u32,
    #[n(3)]
    passes: u32,
    /// End of validity, once there is a newer secret.
    #[n(4)]
    pub(super) valid_until: Option<u64>,
}

/// Computes hashes on threads of its own, a few at once. It needs no async runtime.
pub(crate) struct Hashers {
    cost: HashCost,
    turns: Arc<Semaphore>,
}

impl Hashers {
    pub(crate) fn new(cost: HashCost) -> Self {
        Self { cost, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Hashes a new secret.
    pub(super) async fn hash(&self, secret: &Secret, rng: &dyn Rng) -> Result<SecretHash> {
        let (cost, salt, secret) = (self.cost, rng.bytes::<16>(), secret.clone());
        let hash = self.aside(move || derive(&secret, &salt, cost)).await??;
        Ok(SecretHash {
            salt: salt.into(),
            hash: (*hash).into(),
            memory_kib: cost.memory_kib,
            passes: cost.passes,
            valid_until: None,
        })
    }

    /// Compares `secret` with each of `hashes`, in constant time.
    pub(super) async fn fits(&self, secret: &Secret, hashes: Vec<SecretHash>) -> Result<bool> {
        let secret = secret.clone();
        let judge = move || -> Result<bool> {
            for kept in &hashes {
                let cost = HashCost { memory_kib: kept.memory_kib, passes: kept.passes };
                let hash = derive(&secret, kept.salt.as_slice(), cost)?;
                if bool::from(hash.as_slice().ct_eq(kept.hash.as_slice())) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        self.aside(judge).await?
    }

    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let failed = || Error::unavailable("a secret could not be hashed");
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| failed())?;
        let (tell, told) = oneshot::channel();
        let hasher = thread::Builder::new().name("ebbtide-hash".to_owned());
        hasher
            .spawn(move || {
                // The caller may have gone; the permit is held until the work is done.
                let _ = tell.send(work());
                drop(turn);
            })
            .map_err(|error| failed().caused_by(error))?;
        told.await.map_err(|_| failed())
    }
}

fn derive(secret: &Secret, salt: &[u8], cost: HashCost) -> Result<Zeroizing<[u8; 32]>> {
    let broken = |error: argon2::Error| {
        Error::corrupt("the hash of a secret has an invalid cost").caused_by(error.to_string())
    };
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params(cost).map_err(broken)?);
    let mut hash = Zeroizing::new([0; 32]);
    argon.hash_password_into(secret.expose().as_bytes(), salt, hash.as_mut_slice()).map_err(broken)?;
    Ok(hash)
}

impl fmt::Debug for Hashers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hashers({:?})", self.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    #[tokio::test]
    async fn a_secret_fits_its_own_hash_and_no_other() {
        let rng = SeededRng::new(1);
        let hashers = Hashers::new(HashCost::new(8, 1).unwrap());
        let (one, other) = (Secret::new("one"), Secret::new("other"));
        let hash = hashers.hash(&one, &rng).await.unwrap();
        assert!(hashers.fits(&one, vec![hash.clone()]).await.unwrap());
        assert!(!hashers.fits(&other, vec![hash.clone()]).await.unwrap());
        let second = hashers.hash(&one, &rng).await.unwrap();
        assert_ne!(*second.hash, *hash.hash, "salted");
        let dearer = Hashers::new(HashCost::new(16, 2).unwrap());
        assert!(dearer.fits(&one, vec![second]).await.unwrap(), "each hash remembers its cost");
    }

    #[test]
    fn a_cost_that_is_none_is_refused() {
        assert!(HashCost::new(7, 1).is_err() && HashCost::new(8, 0).is_err());
        assert_eq!(HashCost::default(), HashCost::new(19_456, 2).unwrap());
    }
}
