//! Backend that yields to other tasks, so that a read followed by an unconditional write is caught on any engine.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use ebbtide::backend::{Backend, Budget, Cleared, Counted, Cursor, Erased, Page, Stats, Swept};
use ebbtide::model::error::Result;
use ebbtide::model::key::{Key, Prefix};
use ebbtide::model::record::Record;
use ebbtide::model::rng::SeededRng;
use ebbtide::model::time::Timestamp;
use ebbtide::model::write::{Batch, Commit};

/// Forwards every call after yielding a few times.
pub(super) struct Yielding {
    inner: Arc<dyn Backend>,
    rng: SeededRng,
}

impl Yielding {
    pub(super) fn new(inner: Arc<dyn Backend>, seed: u64) -> Self {
        Self { inner, rng: SeededRng::new(seed) }
    }

    async fn lower_priority(&self) -> &dyn Backend {
        for _ in 0..self.rng.below(4) {
            tokio::task::yield_now().await;
        }
        self.inner.as_ref()
    }
}

#[async_trait]
impl Backend for Yielding {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.lower_priority().await.get(key, now).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.lower_priority().await.take(key, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.lower_priority().await.commit(batch, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.lower_priority().await.scan(prefix, after, limit, now).await
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        self.lower_priority().await.sweep(until, budget).await
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.inner.stats(now).await
    }

    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.lower_priority().await.list(prefixes, after, limit, now).await
    }

    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        self.lower_priority().await.count(prefixes, after, now).await
    }

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.lower_priority().await.clear(prefixes, after, now).await
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        self.lower_priority().await.erase(prefix, now).await
    }

    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        self.inner.clock_mark().await
    }

    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()> {
        self.inner.set_clock_mark(mark).await
    }

    async fn engine_clock(&self) -> Result<Option<Timestamp>> {
        self.inner.engine_clock().await
    }

    async fn backup(&self, dir: &Path) -> Result<()> {
        self.inner.backup(dir).await
    }
}
