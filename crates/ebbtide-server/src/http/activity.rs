//! Activity of a connection: a client that neither asks nor reads is noticed. Pings are no activity.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ebbtide::Stopwatch;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::http::limits::Limits;

/// Activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    clock: Stopwatch,
    /// Time of the last request or the end of the last answer, in milliseconds of `clock`.
    last: AtomicU64,
    /// Requests that are not answered yet.
    working: AtomicUsize,
    /// Answers that are not sent yet.
    answers: AtomicUsize,
    /// Last progress of each answer over HTTP/2, which a client holds back by its window.
    streams: Mutex<Vec<Arc<AtomicU64>>>,
    /// Time since which the peer takes no bytes, plus one; 0 if it does.
    blocked: AtomicU64,
    /// True once a request with a valid key has succeeded.
    trusted: AtomicBool,
    /// Notified if the connection must make room for another one.
    evicted: Notify,
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Active,
    /// Nothing was asked for some time.
    Idle,
    /// The client does not read its answers.
    Stuck,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            clock: Stopwatch::start(),
            last: AtomicU64::new(0),
            working: AtomicUsize::new(0),
            answers: AtomicUsize::new(0),
            streams: Mutex::default(),
            blocked: AtomicU64::new(0),
            trusted: AtomicBool::new(false),
            evicted: Notify::new(),
        })
    }

    /// Notes that the peer has a valid key: its connection is the last to make room for others.
    pub(crate) fn trust(&self) {
        if !self.trusted.load(Ordering::Relaxed) {
            self.trusted.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the connection must make room for another one.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Milliseconds for which the connection asks nothing, if it may be closed for another one. A peer without a valid key
    /// does not keep its connection by leaving an answer unread.
    fn idle(&self) -> Option<(bool, u64)> {
        let trusted = self.trusted.load(Ordering::Relaxed);
        let is_busy =
            self.working.load(Ordering::Acquire) > 0 || trusted && self.answers.load(Ordering::Acquire) > 0;
        let since = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
        (!is_busy).then_some((trusted, since))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn touch(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Begins a request.
    pub(crate) fn begin(self: &Arc<Self>) -> Working {
        self.working.fetch_add(1, Ordering::AcqRel);
        self.touch();
        Working(Arc::clone(self))
    }

    /// Judges the connection. At shutdown a client has `patience` to read.
    pub(crate) fn state(&self, limits: &Limits, patience: Option<Duration>) -> ConnectionState {
        let now = self.now();
        let send = patience.unwrap_or(limits.send_timeout).as_millis();
        let since = |then: u64| u128::from(now.saturating_sub(then));
        let blocked = self.blocked.load(Ordering::Relaxed);
        if blocked > 0 && since(blocked - 1) >= send {
            return ConnectionState::Stuck;
        }
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.iter().any(|progress| since(progress.load(Ordering::Relaxed)) >= send) {
            return ConnectionState::Stuck;
        }
        let busy = self.working.load(Ordering::Acquire) + self.answers.load(Ordering::Acquire) > 0;
        let idle = since(self.last.load(Ordering::Relaxed)) >= limits.header_timeout.as_millis();
        if !busy && idle { ConnectionState::Idle } else { ConnectionState::Active }
    }
}

/// Open connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<OpenConnections>);

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<Activity>>,
}

/// Part of the connections without a valid key that is closed at once if there are too many: looking for the idlest takes
/// longer than closing it.
const EVICTED_PART: usize = 64;

impl Connections {
    /// Adds a connection, and returns its number. If there are `most` already, those that have been idle longest make
    /// room, those without a valid key first. None if all are busy.
    pub(crate) fn add(&self, activity: &Arc<Activity>, most: usize) -> Option<u64> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all.len() >= most && !open.make_room(most) {
            return None;
        }
        open.next += 1;
        let number = open.next;
        open.all.insert(number, Arc::clone(activity));
        Some(number)
    }

    pub(crate) fn remove(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.remove(&number);
    }
}

impl OpenConnections {
    fn make_room(&mut self, most: usize) -> bool {
        let idle = |(number, activity): (&u64, &Arc<Activity>)| {
            activity.idle().map(|(trusted, since)| ((trusted, u64::MAX - since), *number))
        };
        let mut idle: Vec<_> = self.all.iter().filter_map(idle).collect();
        idle.sort_unstable();
        let is_trusted = idle.first().is_some_and(|((trusted, _), _)| *trusted);
        let count = if is_trusted { 1 } else { (most / EVICTED_PART).max(1) };
        idle.truncate(count);
        // Of those with a valid key, no more than needed.
        idle.retain(|((trusted, _), _)| *trusted == is_trusted);
        for (_, number) in &idle {
            if let Some(activity) = self.all.remove(number) {
                activity.evicted.notify_one();
            }
        }
        !idle.is_empty()
    }
}

/// Request that is not answered yet.
pub(crate) struct Working(Arc<Activity>);

impl Working {
    /// Turns the request into its answer. `held_back` is true for HTTP/2, where the client's window holds an answer back.
    pub(crate) fn answered(self, held_back: bool) -> Sending {
        let activity = Arc::clone(&self.0);
        activity.answers.fetch_add(1, Ordering::AcqRel);
        let progress = held_back.then(|| {
            let progress = Arc::new(AtomicU64::new(activity.now()));
            activity.streams.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&progress));
            progress
        });
        Sending { activity, progress }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answer that is not sent yet.
pub(crate) struct Sending {
    activity: Arc<Activity>,
    progress: Option<Arc<AtomicU64>>,
}

impl Sending {
    /// Notes that the client has taken a part.
    pub(crate) fn progress(&self) {
        if let Some(progress) = &self.progress {
            progress.store(self.activity.now(), Ordering::Relaxed);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            let mut streams = self.activity.streams.lock().unwrap_or_else(PoisonError::into_inner);
            streams.retain(|one| !Arc::ptr_eq(one, progress));
        }
        self.activity.answers.fetch_sub(1, Ordering::AcqRel);
        self.activity.touch();
    }
}

/// Stream that notes since when its peer takes no bytes.
pub(crate) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        let blocked = &self.activity.blocked;
        if written.is_ready() {
            if blocked.load(Ordering::Relaxed) > 0 {
                blocked.store(0, Ordering::Relaxed);
            }
        } else if blocked.load(Ordering::Relaxed) == 0 {
            blocked.store(self.activity.now() + 1, Ordering::Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_pending() { self.note(flushed) } else { flushed }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(activity: &Activity) -> bool {
        use std::task::Waker;
        let mut evicted = std::pin::pin!(activity.evicted());
        evicted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn strangers_make_room_before_callers_and_nobody_who_waits_for_an_answer() {
        let connections = Connections::default();
        let [caller, stranger, unread, busy, new] = [(); 5].map(|()| Activity::new());
        caller.trust();
        let _unread = unread.begin().answered(true);
        let mut working = Some(busy.begin());
        for open in [&caller, &stranger, &unread, &busy] {
            assert!(connections.add(open, 4).is_some());
        }
        for _ in 0..2 {
            assert!(connections.add(&new, 4).is_some());
            // The new one is not to be chosen here.
            new.trust();
        }
        assert!(is_evicted(&stranger) && is_evicted(&unread), "an unread answer keeps no stranger");
        assert!(!is_evicted(&caller) && !is_evicted(&busy));
        let _own = new.begin();
        assert!(connections.add(&Activity::new(), 4).is_some());
        assert!(is_evicted(&caller), "a caller that asks nothing");
        let last = Activity::new();
        let _last = last.begin();
        assert!(connections.add(&last, 4).is_some());
        assert!(connections.add(&Activity::new(), 4).is_none(), "all are busy");
        drop(working.take());
        assert!(connections.add(&Activity::new(), 4).is_some());
        assert!(is_evicted(&busy));
    }
}
