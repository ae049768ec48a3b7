//! A backend whose calls are refused for as long as its node must not serve.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Backend, Budget, Cleared, Counted, Cursor, Erased, Page, Stats, Swept};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit};

/// Whether calls are let through, and if not, why. Clones are one gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    closed: AtomicBool,
    why: Mutex<String>,
}

impl Gate {
    /// Refuses calls from now on, with this message.
    pub fn close(&self, why: impl Into<String>) {
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = why.into();
        self.0.closed.store(true, Ordering::Release);
    }

    /// Lets calls through again.
    pub fn open(&self) {
        self.0.closed.store(false, Ordering::Release);
    }

    /// Whether calls are refused.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// `Unavailable` with the reason, while calls are refused.
    pub fn check(&self) -> Result<()> {
        if !self.is_closed() {
            return Ok(());
        }
        Err(Error::unavailable(self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

/// A backend behind a [`Gate`]. What reads or changes records, or the clock mark, is refused while the gate is closed;
/// what an operator needs to see why still answers.
pub struct Gated {
    inner: Arc<dyn Backend>,
    gate: Gate,
}

impl Gated {
    /// `inner` behind `gate`.
    pub fn new(inner: Arc<dyn Backend>, gate: Gate) -> Self {
        Self { inner, gate }
    }
}

impl std::fmt::Debug for Gated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gated({})", self.inner.engine())
    }
}

#[async_trait]
impl Backend for Gated {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.gate.check()?;
        self.inner.get(key, now).await
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.gate.check()?;
        self.inner.take(key, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.gate.check()?;
        self.inner.commit(batch, now).await
    }

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        self.gate.check()?;
        self.inner.commit_each(batches, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.gate.check()?;
        self.inner.scan(prefix, after, limit, now).await
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        self.gate.check()?;
        self.inner.sweep(until, budget).await
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.inner.stats(now).await
    }

    async fn stats_at_hand(&self, now: Timestamp) -> Result<Option<Stats>> {
        self.inner.stats_at_hand(now).await
    }

    fn reclaims_within(&self) -> Duration {
        self.inner.reclaims_within()
    }

    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        self.gate.check()?;
        self.inner.count(prefixes, after, now).await
    }

    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.gate.check()?;
        self.inner.list(prefixes, after, limit, now).await
    }

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.gate.check()?;
        self.inner.clear(prefixes, after, now).await
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        self.gate.check()?;
        self.inner.erase(prefix, now).await
    }

    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        self.inner.clock_mark().await
    }

    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()> {
        self.gate.check()?;
        self.inner.set_clock_mark(mark).await
    }

    async fn engine_clock(&self) -> Result<Option<Timestamp>> {
        self.inner.engine_clock().await
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        self.inner.warnings().await
    }

    async fn backup(&self, dir: &Path) -> Result<()> {
        self.inner.backup(dir).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendExt as _;
    use crate::engines::memory::Memory;
    use crate::model::error::ErrorKind;
    use crate::model::kind::Kind;
    use crate::model::rng::SystemRng;
    use crate::model::scope::Scope;

    #[tokio::test]
    async fn a_closed_gate_refuses_every_call_that_tells_or_changes_a_record() {
        let gate = Gate::default();
        let store = Gated::new(Arc::new(Memory::default()), gate.clone());
        let key = Key::new(Kind::Probe, &Scope::Global, &["a".into()], &[]).unwrap();
        let record = || Record::new("v", Timestamp::NEVER, &SystemRng);
        let now = Timestamp::ZERO;
        assert!(store.insert(key.clone(), record(), now).await.unwrap().is_applied());
        gate.close("the clock is wrong");
        let prefix = Prefix::kind_wide(Kind::Probe);
        let errors = [
            store.get(&key, now).await.err(),
            store.take(&key, now).await.err(),
            store.put(key.clone(), record(), now).await.err(),
            store.commit_each(Vec::new(), now).await.err(),
            store.scan(&prefix, None, 1, now).await.err(),
            store.sweep(now, &Budget::default()).await.err(),
            store.count(std::slice::from_ref(&prefix), None, now).await.err(),
            store.list(std::slice::from_ref(&prefix), None, 1, now).await.err(),
            store.clear(std::slice::from_ref(&prefix), None, now).await.err(),
            store.erase(&prefix, now).await.err(),
            store.set_clock_mark(now).await.err(),
        ];
        for error in errors {
            let error = error.expect("it is refused");
            assert_eq!((error.kind(), error.message()), (ErrorKind::Unavailable, "the clock is wrong"));
        }
        gate.open();
        assert!(store.get(&key, now).await.unwrap().is_some());
    }
}
