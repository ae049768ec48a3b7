//! Backend on which an event happens between a read and the write that follows it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use ebbtide::model::error::Result;
use ebbtide::model::key::Key;
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::time::Timestamp;
use ebbtide::{Admin, Backend, async_trait, delegate};

pub(super) type Event = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Forwards every call. After a read the task yields, so that others come between it and its write even on an engine
/// that never waits; after the first read of a given kind, the configured event happens.
pub(super) struct Meanwhile {
    inner: Arc<dyn Admin>,
    event: Mutex<Option<(Kind, Event)>>,
}

impl Meanwhile {
    pub(super) fn new(inner: Arc<dyn Admin>, event: Option<(Kind, Event)>) -> Self {
        Self { inner, event: Mutex::new(event) }
    }

    fn event(&self, kind: Kind) -> Option<Event> {
        let mut event = self.event.lock().unwrap_or_else(PoisonError::into_inner);
        event.take_if(|(at, _)| *at == kind).map(|(_, event)| event)
    }

    async fn after_read(&self, kind: Kind) {
        match self.event(kind) {
            Some(event) => event.await,
            None => tokio::task::yield_now().await,
        }
    }
}

#[async_trait]
impl Backend for Meanwhile {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let answer = self.inner.get(key, now).await;
        self.after_read(key.kind()).await;
        answer
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Record>>> {
        let answer = self.inner.get_many(keys, now).await;
        for key in keys {
            self.after_read(key.kind()).await;
        }
        answer
    }

    delegate!(self => self.inner; take alter commit commit_each scan sweep info);
}

#[async_trait]
impl Admin for Meanwhile {
    delegate!(self => self.inner; list count clear erase);
    delegate!(self => self.inner; stats stats_at_hand clock_mark set_clock_mark engine_clock warnings backup);
}
