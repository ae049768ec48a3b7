//! A backend that lets others go first, so that what is a read and then a write is caught on any engine.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::backend::{Backend, Budget, Cleared, Counted, Cursor, Erased, Page, Stats, Swept};
use crate::chance::SeededChance;
use crate::error::Result;
use crate::key::{Key, Prefix};
use crate::record::Record;
use crate::time::Timestamp;
use crate::write::{Batch, Commit};

/// Passes every call on, after giving way to other tasks a few times.
pub(super) struct Yielding {
    inner: Arc<dyn Backend>,
    chance: SeededChance,
}

impl Yielding {
    pub(super) fn new(inner: Arc<dyn Backend>, seed: u64) -> Self {
        Self { inner, chance: SeededChance::new(seed) }
    }

    async fn give_way(&self) -> &dyn Backend {
        for _ in 0..self.chance.below(4) {
            tokio::task::yield_now().await;
        }
        self.inner.as_ref()
    }
}

#[async_trait]
impl Backend for Yielding {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.give_way().await.get(key, now).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.give_way().await.take(key, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.give_way().await.commit(batch, now).await
    }

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        self.give_way().await.commit_each(batches, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.give_way().await.scan(prefix, after, limit, now).await
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        self.give_way().await.sweep(until, budget).await
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
        self.give_way().await.list(prefixes, after, limit, now).await
    }

    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        self.give_way().await.count(prefixes, after, now).await
    }

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.give_way().await.clear(prefixes, after, now).await
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        self.give_way().await.erase(prefix, now).await
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
