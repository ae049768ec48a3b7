//! Bound on the connections that one record can take.
//!
//! Writers of a record that another transaction has locked wait at the server, each on a connection of its own. Without a
//! bound a few dozen of them take the whole pool, and writers of every other record wait for theirs. Only some of them are
//! sent; the others wait here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::model::error::{Error, Result};
use crate::model::key::Key;

/// Share of the connections that writers of one record may take, and the least number of them: while one holds the lock, the
/// next is on its way.
const SHARE: usize = 4;
const LEAST: usize = 2;

/// Turns of the writers of each record.
pub(super) struct Turns {
    queues: Arc<Queues>,
    at_once: usize,
    patience: Duration,
}

/// Queue of each record that has writers.
#[derive(Default)]
struct Queues(Mutex<HashMap<Key, Arc<Semaphore>>>);

/// Turn of a writer at one record. It ends when this is dropped.
pub(super) struct Turn {
    queues: Arc<Queues>,
    key: Key,
    queue: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Turns of a writer at all its records. Its statement holds them too: if the writer goes away, they last until the
/// connection is idle.
pub(super) type HeldTurns = Arc<Vec<Turn>>;

impl Turns {
    /// A writer waits for its turn no longer than it would for a connection and the lock.
    pub(super) fn new(connections: usize, patience: Duration) -> Self {
        Self { queues: Arc::default(), at_once: (connections / SHARE).max(LEAST), patience }
    }

    /// Waits for the turn at a record.
    pub(super) async fn of(&self, key: &Key) -> Result<HeldTurns> {
        self.of_all([key]).await
    }

    /// Waits for the turns at several records. Every caller takes them in the order of their kinds and keys, so that no two
    /// wait for each other.
    pub(super) async fn of_all(&self, keys: impl IntoIterator<Item = &Key>) -> Result<HeldTurns> {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable_by_key(|key| (key.kind(), key.as_bytes()));
        let all = async {
            let mut turns = Vec::with_capacity(keys.len());
            for key in keys {
                let queue = Arc::clone(
                    self.queues
                        .lock()
                        .entry(key.clone())
                        .or_insert_with(|| Arc::new(Semaphore::new(self.at_once))),
                );
                // It is dropped, and its queue with it, if the caller goes away while it waits.
                let mut turn = Turn {
                    queues: Arc::clone(&self.queues),
                    key: key.clone(),
                    queue: Some(Arc::clone(&queue)),
                    permit: None,
                };
                turn.permit = queue.acquire_owned().await.ok();
                turns.push(turn);
            }
            Arc::new(turns)
        };
        timeout(self.patience, all)
            .await
            .map_err(|_| Error::unavailable("other writers wait for a lock on the record; retry"))
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        self.permit = None;
        self.queue = None;
        // Others take a queue out of the map only while it is locked.
        if queues.get(&self.key).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kind::Kind;
    use crate::model::scope::Scope;

    fn key(name: &str) -> Key {
        Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap()
    }

    #[tokio::test]
    async fn writers_of_one_record_take_a_share_and_leave_nothing_behind() {
        let turns = Turns::new(8, Duration::from_millis(20));
        let held = [turns.of(&key("a")).await.unwrap(), turns.of(&key("a")).await.unwrap()];
        assert!(turns.of(&key("a")).await.is_err(), "the share is taken");
        assert!(turns.of_all([&key("b"), &key("a")]).await.is_err());
        assert!(turns.of(&key("b")).await.is_ok(), "those of another are free");
        drop(held);
        assert!(turns.of(&key("a")).await.is_ok());
        assert!(turns.queues.lock().is_empty());
    }

    #[tokio::test]
    async fn writers_of_the_same_records_do_not_wait_for_each_other() {
        let turns = Turns { at_once: 1, ..Turns::new(1, Duration::from_secs(60)) };
        let (a, b) = (key("a"), key("b"));
        let crossing = |first: bool| {
            let keys = if first { [&a, &b] } else { [&b, &a] };
            let turns = &turns;
            async move {
                for _ in 0..100 {
                    let held = turns.of_all(keys).await.unwrap();
                    tokio::task::yield_now().await;
                    drop(held);
                }
            }
        };
        futures_util::future::join_all((0..8).map(|caller| crossing(caller % 2 == 0))).await;
        assert!(turns.queues.lock().is_empty());
    }
}
