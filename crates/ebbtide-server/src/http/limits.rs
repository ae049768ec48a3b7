//! Limits of a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Limits that keep a server up, whatever its clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a body in bytes.
    pub body_bytes: usize,
    /// Maximum time for a body to arrive.
    pub body_timeout: Duration,
    /// Maximum time for a connection to be idle, or to send the head of a request.
    pub header_timeout: Duration,
    /// Maximum time in which a client takes nothing of its answer; then the connection is closed.
    pub send_timeout: Duration,
    /// Maximum time for an authenticated connection of the Redis protocol to be idle.
    pub resp_idle_timeout: Duration,
    /// Maximum number of requests in flight; more are answered 503 at once.
    pub requests: usize,
    /// Maximum number of requests in flight of one tenant, and of its unfinished bodies; more are answered 429.
    pub key_requests: usize,
    /// Maximum number of bytes of one tenant's bodies and answers in memory; more are answered 429.
    pub key_bytes: usize,
    /// Maximum number of open connections; more are answered 503 and closed.
    pub connections: usize,
    /// Time at shutdown in which the server is not ready, but still accepts connections.
    pub drain_delay: Duration,
    /// Maximum time to drain in-flight requests at shutdown.
    pub shutdown_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Size of the largest attribute or payload, plus some overhead.
            body_bytes: 1 << 20,
            body_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(30),
            resp_idle_timeout: Duration::from_secs(3_600),
            requests: 4_096,
            key_requests: 1_024,
            key_bytes: 64 << 20,
            connections: 16_384,
            drain_delay: Duration::from_secs(2),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

/// Places of a server, one for each request in flight.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicUsize,
    most: usize,
}

/// Place that is given back when it is dropped.
pub(crate) struct Place<'a>(&'a Places);

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    /// Takes a place; none if all are taken.
    pub(crate) fn take(&self) -> Option<Place<'_>> {
        let next = |taken: usize| (taken < self.most).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        // Not made without a place: it would be given back.
        taken.ok().map(|_| Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_when_it_is_dropped() {
        let places = Places::new(2);
        let (one, two) = (places.take(), places.take());
        assert!(one.is_some() && two.is_some() && places.take().is_none());
        drop(one);
        assert!(places.take().is_some());
        assert!(places.take().is_some());
        drop(two);
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }
}
