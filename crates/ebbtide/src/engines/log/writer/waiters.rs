//! Waking the callers of a group: the thread that writes wakes one caller of each thread, and that one wakes the others
//! of its thread.
//!
//! To wake a task of another thread costs a system call, and to wake one of the same thread does not: a group of 64
//! callers on two threads costs two calls instead of 64.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, ThreadId};

/// Callers of one group that wait on one thread.
#[derive(Default)]
pub(super) struct Crowd(Mutex<Vec<Waker>>);

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one caller, and returns the number of callers. Whoever is woken calls [`wake_all`](Self::wake_all), or
    /// [`leave`](Self::leave) if it goes away.
    fn wake_one(&self) -> usize {
        let mut wakers = self.lock();
        let (count, first) = (wakers.len(), wakers.pop());
        drop(wakers);
        if let Some(first) = first {
            first.wake();
        }
        count
    }

    /// Wakes all callers that are left.
    pub(super) fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.lock());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Removes a caller that goes away. If it is the one that was woken, it wakes the others.
    pub(super) fn leave(&self, waker: &Waker) {
        let mut wakers = self.lock();
        if let Some(place) = wakers.iter().position(|one| one.will_wake(waker)) {
            drop(wakers.swap_remove(place));
        } else {
            drop(wakers);
            self.wake_all();
        }
    }
}

/// Callers of one group.
#[derive(Default)]
pub(super) struct Waiters(Vec<(ThreadId, Arc<Crowd>)>);

impl Waiters {
    /// Adds a caller of the current thread.
    pub(super) fn join(&mut self, waker: &Waker) -> Arc<Crowd> {
        let here = thread::current().id();
        let place = self.0.iter().position(|(thread, _)| *thread == here).unwrap_or_else(|| {
            self.0.push((here, Arc::default()));
            self.0.len() - 1
        });
        let crowd = Arc::clone(&self.0[place].1);
        crowd.lock().push(waker.clone());
        crowd
    }

    /// Wakes one caller of each thread, and returns the number of all callers.
    pub(super) fn wake_first(&self) -> usize {
        self.0.iter().map(|(_, crowd)| crowd.wake_one()).sum()
    }

    /// Wakes all callers that are left.
    pub(super) fn wake_all(&self) {
        self.0.iter().for_each(|(_, crowd)| crowd.wake_all());
    }
}
