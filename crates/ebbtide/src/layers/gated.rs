//! A backend whose calls are refused for as long as its node must not serve.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::admin::Admin;
use crate::backend::Backend;
use crate::delegate;
use crate::model::error::{Error, Result};

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
    inner: Arc<dyn Admin>,
    gate: Gate,
}

impl Gated {
    /// `inner` behind `gate`.
    pub fn new(inner: Arc<dyn Admin>, gate: Gate) -> Self {
        Self { inner, gate }
    }

    /// Makes the call if the gate is open when it is polled first.
    async fn guard<T>(&self, _method: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.gate.check()?;
        call.await
    }
}

impl std::fmt::Debug for Gated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gated({})", self.inner.info().engine)
    }
}

#[async_trait]
impl Backend for Gated {
    delegate!(self => self.inner, through self.guard; get get_many take alter commit commit_each scan sweep);
    delegate!(self => self.inner; info);
}

#[async_trait]
impl Admin for Gated {
    delegate!(self => self.inner, through self.guard; list count clear erase set_clock_mark);
    delegate!(self => self.inner; stats stats_at_hand clock_mark engine_clock warnings backup);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendExt as _, Budget};
    use crate::engines::memory::Memory;
    use crate::model::error::ErrorKind;
    use crate::model::key::{Key, Prefix};
    use crate::model::kind::Kind;
    use crate::model::record::Record;
    use crate::model::rng::SystemRng;
    use crate::model::scope::Scope;
    use crate::model::time::Timestamp;

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
