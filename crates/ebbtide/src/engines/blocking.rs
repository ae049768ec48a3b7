//! A backend for synchronous code.

use std::sync::Arc;

use crate::backend::{Backend, Budget, Cursor, Page, Swept};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit};

/// The same calls, which block the calling thread. It needs no async runtime, and must not be used on a thread of
/// one. For memory and the embedded engines, which need none either; an engine behind a network wants its runtime.
#[derive(Clone)]
pub struct Blocking(Arc<dyn Backend>);

impl Blocking {
    /// Calls `backend` from synchronous code.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self(backend)
    }

    /// See [`Backend::get`].
    pub fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        pollster::block_on(self.0.get(key, now))
    }

    /// See [`Backend::take`].
    pub fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        pollster::block_on(self.0.take(key, now))
    }

    /// See [`Backend::commit`].
    pub fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        pollster::block_on(self.0.commit(batch, now))
    }

    /// See [`Backend::scan`].
    pub fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        pollster::block_on(self.0.scan(prefix, after, limit, now))
    }

    /// See [`Backend::sweep`].
    pub fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        pollster::block_on(self.0.sweep(until, budget))
    }
}

impl std::fmt::Debug for Blocking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocking({})", self.0.info().engine)
    }
}
