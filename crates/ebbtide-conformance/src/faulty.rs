//! Backend that fails on demand, for tests of the code above it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::model::error::{Error, Result};
use ebbtide::{Admin, Backend, async_trait, delegate, provide};

/// Point at which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// Before the write: nothing has happened.
    Before,
    /// After the write: it has happened, and its answer is lost.
    After,
}

/// Forwards every call to `B`, except that the configured write (a commit or a take) returns `Unavailable`, before or
/// after it happens. With [`Faulty::stay_down`] every later call fails too, as after the death of a process.
#[derive(Debug)]
pub struct Faulty<B> {
    inner: B,
    writes: AtomicU64,
    plan: Mutex<Option<Plan>>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    at: u64,
    fault: FaultPoint,
    stay_down: bool,
}

impl<B: Admin> Faulty<B> {
    /// Creates a backend that forwards every call until told otherwise.
    pub fn new(inner: B) -> Self {
        Self { inner, writes: AtomicU64::new(0), plan: Mutex::new(None) }
    }

    /// Fails the write after the next `skip` ones, once.
    pub fn fail(&self, skip: u64, fault: FaultPoint) {
        self.arm(skip, fault, false);
    }

    /// Fails the write after the next `skip` ones, and every call after it.
    pub fn stay_down(&self, skip: u64, fault: FaultPoint) {
        self.arm(skip, fault, true);
    }

    /// Forwards every call again.
    pub fn mend(&self) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Number of writes so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Backend behind the faults.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    fn arm(&self, skip: u64, fault: FaultPoint, stay_down: bool) {
        let plan = Plan { at: self.writes() + skip, fault, stay_down };
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }

    fn plan(&self) -> Option<Plan> {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_up(&self) -> Result<()> {
        match self.plan() {
            Some(plan) if plan.stay_down && self.writes() > plan.at => Err(fault()),
            _ => Ok(()),
        }
    }

    async fn read<T>(&self, _method: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.check_up()?;
        call.await
    }

    async fn write<T>(&self, _method: &str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.check_up()?;
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        match self.plan().filter(|plan| plan.at == number).map(|plan| plan.fault) {
            Some(FaultPoint::Before) => Err(fault()),
            Some(FaultPoint::After) => call.await.and(Err(fault())),
            None => call.await,
        }
    }
}

fn fault() -> Error {
    Error::unavailable("injected fault")
}

#[async_trait]
impl<B: Admin> Backend for Faulty<B> {
    delegate!(self => self.inner, through self.read; get get_many scan sweep);
    delegate!(self => self.inner, through self.write; take alter commit);
    delegate!(self => self.inner; info);
    // Each of the commits is a write of its own, so that a fault can come between any two.
    provide!(commit_each);
}

#[async_trait]
impl<B: Admin> Admin for Faulty<B> {
    delegate!(self => self.inner, through self.read; stats stats_at_hand);
    delegate!(self => self.inner; clock_mark set_clock_mark engine_clock warnings backup);
    // By scans and commits, so that a fault can come between any two.
    provide!(list count clear erase);
}
