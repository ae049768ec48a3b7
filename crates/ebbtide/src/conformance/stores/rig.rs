//! What a case of the typed stores works with.

use std::sync::Arc;
use std::time::Duration;

use super::yielding::Yielding;
use crate::backend::{Backend, BackendExt, Budget, Swept};
use crate::chance::SeededChance;
use crate::kind::Kind;
use crate::scope::Scope;
use crate::stores::Stores;
use crate::time::{Clock, ManualClock, Timestamp};
use crate::ttl::Ttl;

/// Stores with a clock that the case moves.
#[derive(Clone)]
pub(crate) struct StoreRig {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) stores: Stores,
    pub(crate) clock: ManualClock,
    pub(crate) scope: Scope,
}

impl StoreRig {
    pub(crate) fn new(backend: Arc<dyn Backend>, seed: u64) -> Self {
        let backend: Arc<dyn Backend> = Arc::new(Yielding::new(backend, seed));
        let begin = Timestamp::from_millis(1_800_000_000_000).expect("a time of this century");
        let clock = ManualClock::at(begin);
        let chance = SeededChance::new(seed);
        let stores = Stores::builder(Arc::clone(&backend)).clock(clock.clone()).chance(chance).build();
        Self { backend, stores, clock, scope: Scope::tenant("acme").expect("a good name") }
    }

    /// Moves the clock forwards by so many seconds.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Moves the clock to `time`, `before` milliseconds earlier.
    pub(crate) fn go_to(&self, time: Timestamp, before: u64) {
        self.clock.set(Timestamp::from_millis(time.as_millis() - before).expect("a time of this century"));
    }

    /// Sweeps everything that can be, at the clock's time.
    pub(crate) async fn sweep(&self) -> Swept {
        let budget = Budget::everything(Kind::ALL);
        self.backend.sweep_all(self.clock.now(), &budget).await.expect("sweep")
    }

    /// Runs `count` tasks that begin together, and returns what they answered.
    pub(crate) async fn together<T, F>(&self, count: usize, task: impl Fn(Self, usize) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        crate::conformance::rig::together(count, |index| task(self.clone(), index)).await
    }
}

pub(crate) fn secs(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).expect("a good TTL")
}
