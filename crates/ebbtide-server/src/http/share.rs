//! Bounds of each tenant: requests, bodies, bytes and heavy work. Whoever is within its own bounds is served, whatever
//! the others do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ebbtide::Scope;
use ebbtide::stores::api_keys::ApiKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::limits::Limits;
use crate::http::problem::Problem;

/// Heavy calls of one tenant that run at the same time.
const WALKS: usize = 2;

/// Heavy calls of one tenant that wait for their turn.
const WAITING: usize = 512;

/// Part of a node that one tenant uses.
#[derive(Debug)]
pub(crate) struct Share {
    limits: Limits,
    /// Requests in a route.
    places: AtomicUsize,
    /// Bodies that have not arrived yet.
    bodies: AtomicUsize,
    /// Bytes of bodies and of answers in memory.
    bytes: AtomicUsize,
    heavy: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Share {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            places: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            heavy: Arc::new(Semaphore::new(WALKS)),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Takes a place for a request whose body has arrived.
    pub(crate) fn place(self: &Arc<Self>) -> Result<Taken, Problem> {
        let most = self.limits.key_requests;
        Taken::take(self, |share| &share.places, 1, most).ok_or_else(|| too_much("requests in flight"))
    }

    /// Begins to read a body.
    pub(crate) fn body(self: &Arc<Self>) -> Result<Taken, Problem> {
        let most = self.limits.key_requests;
        Taken::take(self, |share| &share.bodies, 1, most).ok_or_else(|| too_much("unfinished bodies"))
    }

    /// Refuses a body while too many have not arrived yet.
    pub(crate) fn check_bodies(&self) -> Result<(), Problem> {
        let is_within = self.bodies.load(Ordering::Acquire) < self.limits.key_requests;
        if is_within { Ok(()) } else { Err(too_much("unfinished bodies")) }
    }

    /// Takes memory for a part of a body.
    pub(crate) fn bytes(self: &Arc<Self>, count: usize) -> Result<Taken, Problem> {
        let most = self.limits.key_bytes;
        Taken::take(self, |share| &share.bytes, count, most).ok_or_else(too_many_bytes)
    }

    /// Takes memory for one more part of a body.
    pub(crate) fn more_bytes(
        self: &Arc<Self>,
        held: &mut Option<Taken>,
        count: usize,
    ) -> Result<(), Problem> {
        if let Some(held) = held {
            let is_taken = held.add(count, self.limits.key_bytes);
            return if is_taken { Ok(()) } else { Err(too_many_bytes()) };
        }
        *held = Some(self.bytes(count)?);
        Ok(())
    }

    /// Refuses a request while too much memory is taken, also by answers that nobody reads.
    pub(crate) fn check_bytes(&self) -> Result<(), Problem> {
        let is_within = self.bytes.load(Ordering::Acquire) <= self.limits.key_bytes;
        if is_within { Ok(()) } else { Err(too_many_bytes()) }
    }

    /// Counts the memory of an answer. One that may not be refused is given, and the next request is refused. An answer is
    /// never too large by itself.
    pub(crate) fn answer(self: &Arc<Self>, count: usize, may_refuse: bool) -> Result<Taken, Problem> {
        let most = if may_refuse { self.limits.key_bytes.max(count) } else { usize::MAX };
        Taken::take(self, |share| &share.bytes, count, most).ok_or_else(too_many_bytes)
    }

    /// Waits for the turn of a heavy call.
    pub(crate) async fn heavy(self: &Arc<Self>) -> Result<OwnedSemaphorePermit, Problem> {
        let refused = || too_much("heavy calls");
        let _waiting = Taken::take(self, |share| &share.waiting, 1, WAITING).ok_or_else(refused)?;
        Arc::clone(&self.heavy).acquire_owned().await.map_err(|_| refused())
    }
}

fn too_much(what: &str) -> Problem {
    Problem::too_many(
        "limited",
        &format!("too many {what} of this key on this node; this one was not started"),
        1,
    )
}

fn too_many_bytes() -> Problem {
    too_much("bytes in memory")
}

/// Part of a share, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    share: Arc<Share>,
    of: fn(&Share) -> &AtomicUsize,
    count: usize,
}

impl Taken {
    fn take(share: &Arc<Share>, of: fn(&Share) -> &AtomicUsize, count: usize, most: usize) -> Option<Self> {
        Self::raise(of(share), count, most).then(|| Self { share: Arc::clone(share), of, count })
    }

    /// Takes more of the same, up to `most` of all that is taken. Returns false if that is too much.
    fn add(&mut self, count: usize, most: usize) -> bool {
        let is_taken = Self::raise((self.of)(&self.share), count, most);
        self.count += if is_taken { count } else { 0 };
        is_taken
    }

    fn raise(used: &AtomicUsize, count: usize, most: usize) -> bool {
        let more = |used: usize| used.checked_add(count).filter(|sum| *sum <= most);
        used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        (self.of)(&self.share).fetch_sub(self.count, Ordering::AcqRel);
    }
}

/// Shares by tenant, while they are used.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<HashMap<String, Weak<Share>>>);

impl Shares {
    /// Share of a key: all keys of a tenant, of an environment or of a custom path's first part have one. Keys of the
    /// whole store belong to no tenant, and have one each.
    pub(crate) fn of(&self, key: &ApiKey, limits: Limits) -> Arc<Share> {
        let scope = key.scope.to_string();
        let tenant = match key.scope {
            Scope::Global => format!("key:{}", key.id),
            _ => scope.split('/').next().unwrap_or_default().to_owned(),
        };
        self.named(tenant, limits)
    }

    /// Share of a client that has authenticated itself: that of its tenant, and one of its own without a tenant.
    pub(crate) fn of_client(&self, scope: &Scope, client_id: &str, limits: Limits) -> Arc<Share> {
        let tenant = match scope {
            Scope::Global => format!("client:{client_id}"),
            _ => scope.to_string().split('/').next().unwrap_or_default().to_owned(),
        };
        self.named(tenant, limits)
    }

    fn named(&self, tenant: String, limits: Limits) -> Arc<Share> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&tenant).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Share::new(limits);
        shares.insert(tenant, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(key_requests: usize, key_bytes: usize) -> Arc<Share> {
        Share::new(Limits { key_requests, key_bytes, ..Limits::default() })
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let share = share(2, 100);
        let (one, two) = (share.place().unwrap(), share.place().unwrap());
        assert!(share.place().is_err());
        drop(one);
        let three = share.place().unwrap();
        assert!(share.place().is_err());
        drop((two, three));
        assert_eq!(share.places.load(Ordering::Relaxed), 0);
        let held = share.bytes(60).unwrap();
        assert!(share.bytes(41).is_err());
        assert!(share.answer(41, true).is_err());
        let answer = share.answer(1_000, false).unwrap();
        assert!(
            share.check_bytes().is_err(),
            "an answer in memory counts, also for a request without a body"
        );
        drop((held, answer));
        assert!(share.check_bytes().is_ok());
        let mut parts = None;
        assert!(share.more_bytes(&mut parts, 60).is_ok() && share.more_bytes(&mut parts, 40).is_ok());
        assert!(share.more_bytes(&mut parts, 1).is_err() && share.bytes(1).is_err());
        drop(parts);
        assert_eq!(share.bytes.load(Ordering::Relaxed), 0, "all parts are given back, and no more");
        assert!(share.answer(1_000, true).is_ok(), "it is never too large by itself");
        assert!(share.bytes(100).is_ok());
    }

    #[tokio::test]
    async fn heavy_calls_wait_for_their_turn_and_a_crowd_is_refused() {
        let share = share(100, 100);
        let mut running = Vec::new();
        for _ in 0..WALKS {
            running.push(share.heavy().await.unwrap());
        }
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let share = Arc::clone(&share);
                tokio::spawn(async move { share.heavy().await.is_ok() })
            })
            .collect();
        while share.waiting.load(Ordering::Relaxed) < WAITING {
            tokio::task::yield_now().await;
        }
        assert!(share.heavy().await.is_err());
        drop(running);
        for one in waiting {
            assert!(one.await.unwrap());
        }
    }
}
