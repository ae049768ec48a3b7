//! Random number generators. Callers hand one in, as they do with clocks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};

/// Source of random bytes.
pub trait Rng: Send + Sync + 'static {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

impl<C: Rng + ?Sized> Rng for Arc<C> {
    fn fill(&self, bytes: &mut [u8]) {
        self.as_ref().fill(bytes);
    }
}

impl dyn Rng {
    /// Returns `N` random bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

/// Cryptographically secure generator, seeded by the operating system, one per thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    #[expect(clippy::disallowed_methods, reason = "this is the generator that is handed in")]
    fn fill(&self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}

/// Generator that yields the same bytes for the same seed. For repeatable tests only.
pub struct SeededRng(Mutex<StdRng>);

impl SeededRng {
    /// Creates a generator whose bytes follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// Returns a number below `bound`, which must not be zero. The distribution is slightly uneven; good enough for
    /// tests.
    pub fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes) % bound
    }
}

impl Rng for SeededRng {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(bytes);
    }
}

impl fmt::Debug for SeededRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeededRng(…)")
    }
}
