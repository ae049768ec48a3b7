//! Backend that yields to other tasks, so that a read followed by an unconditional write is caught on any engine.

use std::sync::Arc;

use ebbtide::model::error::Result;
use ebbtide::model::rng::SeededRng;
use ebbtide::{Admin, Backend, async_trait, delegate};

/// Forwards every call after yielding a few times.
pub(super) struct Yielding {
    inner: Arc<dyn Admin>,
    rng: SeededRng,
}

impl Yielding {
    pub(super) fn new(inner: Arc<dyn Admin>, seed: u64) -> Self {
        Self { inner, rng: SeededRng::new(seed) }
    }

    async fn yielding<T>(&self, _method: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        for _ in 0..self.rng.below(4) {
            tokio::task::yield_now().await;
        }
        call.await
    }
}

#[async_trait]
impl Backend for Yielding {
    delegate!(self => self.inner, through self.yielding; get get_many take alter commit commit_each scan sweep);
    delegate!(self => self.inner; info);
}

#[async_trait]
impl Admin for Yielding {
    delegate!(self => self.inner, through self.yielding; list count clear erase);
    delegate!(self => self.inner; stats stats_at_hand clock_mark set_clock_mark engine_clock warnings backup);
}
