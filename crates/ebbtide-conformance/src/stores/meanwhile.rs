//! Backend on which an event happens between a read and the write that follows it.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use ebbtide::backend::{Backend, Budget, Cleared, Counted, Cursor, Erased, Page, Stats, Swept};
use ebbtide::model::error::Result;
use ebbtide::model::key::{Key, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::time::Timestamp;
use ebbtide::model::write::{Batch, Commit};

pub(super) type Event = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Forwards every call. After a read the task yields, so that others come between it and its write even on an engine
/// that never waits; after the first read of a given kind, the configured event happens.
pub(super) struct Meanwhile {
    inner: Arc<dyn Backend>,
    event: Mutex<Option<(Kind, Event)>>,
}

impl Meanwhile {
    pub(super) fn new(inner: Arc<dyn Backend>, event: Option<(Kind, Event)>) -> Self {
        Self { inner, event: Mutex::new(event) }
    }

    fn event(&self, kind: Kind) -> Option<Event> {
        let mut event = self.event.lock().unwrap_or_else(PoisonError::into_inner);
        event.take_if(|(at, _)| *at == kind).map(|(_, event)| event)
    }
}

#[async_trait]
impl Backend for Meanwhile {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let answer = self.inner.get(key, now).await;
        match self.event(key.kind()) {
            Some(event) => event.await,
            None => tokio::task::yield_now().await,
        }
        answer
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.inner.take(key, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.inner.commit(batch, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.inner.scan(prefix, after, limit, now).await
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        self.inner.sweep(until, budget).await
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
        self.inner.list(prefixes, after, limit, now).await
    }

    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        self.inner.count(prefixes, after, now).await
    }

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.inner.clear(prefixes, after, now).await
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        self.inner.erase(prefix, now).await
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
