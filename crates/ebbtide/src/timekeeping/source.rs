//! The time source of one process and one store.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::bounds::{Bounds, Micros, SECOND};
use super::engine::EngineReading;
use super::event::{Accepted, Event, NotReady};
use super::machine::Machine;
use super::mark::{self, BootId, Mark};
use super::now::Now;
use super::published::{Plain, Published};
use super::reading::{Clocks, Reading, micros};
use super::status::ClockStatus;
use crate::model::error::{Error, Result};
use crate::model::time::{Clock, Stopwatch, Timestamp};

/// The time of one process and one store: the clocks of the node behind the rules of the time contract.
///
/// The wall is compared in every call of [`now`](Self::now), so that there is no watcher that a frozen process would
/// miss. In normal running that takes two readings and no lock.
pub struct TimeSource {
    clocks: Arc<dyn Clocks>,
    /// A clock that is taken at its word.
    trusted: Option<Arc<dyn Clock>>,
    /// Start of the clock of leases beside a clock that is taken at its word.
    started: Option<Stopwatch>,
    /// True if several nodes share the engine, and its clock is compared.
    shared: bool,
    bounds: Bounds,
    published: Published,
    doubts: AtomicU64,
    machine: Mutex<MachineState>,
}

struct MachineState {
    machine: Machine,
    /// Boot-time reading of the last question for the kernel's synchronization, and the answer.
    synchronized: Option<(Micros, Option<Micros>)>,
}

/// The engine that a store is on, as far as time is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineClock {
    /// The engine belongs to this process and has no clock of its own.
    None,
    /// Several nodes share the engine. Its clock is compared every 10 s, and before each step of a sweep; until the first
    /// comparison nothing is answered.
    Shared,
}

/// A question to the engine's clock that has been sent.
#[derive(Debug, Clone, Copy)]
pub struct EngineQuestion {
    sent: Reading,
}

/// A right to rely on what was read before, until a time on the boot-time clock. A doubt voids it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    begun: Micros,
    until: Micros,
    doubts: u64,
}

impl TimeSource {
    /// The time of a store that remembers `mark`.
    pub fn new(clocks: Arc<dyn Clocks>, engine: EngineClock, mark: Option<Mark>) -> Self {
        Self::bounded(Bounds::CONTRACT, clocks, engine, mark)
    }

    /// The time of tests: every instant is the one that `clock` shows, also if it leaps or goes back.
    pub fn of_clock(clock: impl Clock) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let clocks = Arc::new(TrustedClock(Arc::clone(&clock)));
        let source = Self::new(clocks, EngineClock::None, None);
        Self { trusted: Some(clock), started: Some(Stopwatch::start()), ..source }
    }

    pub(super) fn bounded(
        bounds: Bounds,
        clocks: Arc<dyn Clocks>,
        engine: EngineClock,
        mark: Option<Mark>,
    ) -> Self {
        let machine = Machine::new(bounds, engine == EngineClock::Shared, clocks.boot_id(), mark);
        Self {
            clocks,
            trusted: None,
            started: None,
            shared: engine == EngineClock::Shared,
            bounds,
            published: Published::default(),
            doubts: AtomicU64::new(0),
            machine: Mutex::new(MachineState { machine, synchronized: None }),
        }
    }

    /// The time of a request that begins now. `Unavailable`, with the reason and what to do about it, while nothing can
    /// be answered.
    pub fn now(&self) -> Result<Now> {
        if let Some(clock) = &self.trusted {
            return Ok(Now::exact(clock.now()));
        }
        // The wall is read first: a thread that is preempted in between then sees a wall that is behind, and looks again.
        if let Some(plain) = self.published.get()
            && let Some(now) = {
                let wall = micros(self.clocks.wall());
                plain.now(wall, micros(self.clocks.boot()), &self.bounds)
            }
        {
            return Ok(now);
        }
        self.look(Machine::observe).map_err(NotReady::into_error)
    }

    /// The wall clock, for the date of something that no answer depends on.
    #[must_use]
    pub fn date(&self) -> Timestamp {
        mark::timestamp(micros(self.clocks.wall()))
    }

    /// `Unavailable` if the time has passed `end` by now: for the answer to a commit that took long.
    pub fn check_written(&self, end: Timestamp) -> Result<()> {
        if self.now()?.before(end)? {
            return Ok(());
        }
        Err(Error::unavailable("the record expired before its commit was confirmed"))
    }

    /// The time up to which a sweep may remove. `Unavailable` while nothing may be swept. On a shared engine the
    /// engine's clock is compared first.
    pub fn sweep_until(&self) -> Result<Timestamp> {
        if let Some(clock) = &self.trusted {
            return Ok(clock.now());
        }
        self.look(Machine::sweep_until).map_err(NotReady::into_error)
    }

    /// The mark to store: with commits, and otherwise every 10 s. None while it must not be written. On a shared engine
    /// its clock must have been compared within the last second.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        if self.trusted.is_some() {
            return None;
        }
        self.look(|machine, at| {
            let _ = machine.observe(at);
            machine.mark(at)
        })
    }

    /// True unless the clock is a test's, which no store remembers.
    pub(crate) fn keeps_a_mark(&self) -> bool {
        self.trusted.is_none()
    }

    /// Describes the clock for operators.
    #[must_use]
    pub fn status(&self) -> ClockStatus {
        self.look(Machine::status)
    }

    /// Makes the wall own time, on the word of an operator. It is refused where a shared engine's clock disagrees.
    pub fn accept(&self) -> Result<Accepted> {
        self.look(Machine::accept).map_err(NotReady::into_error)
    }

    /// Begins a comparison with the engine's clock.
    #[must_use]
    pub fn ask_engine(&self) -> EngineQuestion {
        EngineQuestion { sent: Reading::take(&*self.clocks) }
    }

    /// Ends a comparison. The engine's clock showed `engine`, or up to `resolution` later, between question and answer.
    /// False if that took too long to prove anything: ask again.
    pub fn hear_engine(&self, question: EngineQuestion, engine: Timestamp, resolution: Duration) -> bool {
        self.look(|machine, received| {
            let (engine, resolution) = (mark::micros(engine), micros(resolution));
            let heard = machine.compare(&EngineReading { sent: question.sent, received, engine, resolution });
            let _ = machine.observe(received);
            heard
        })
    }

    /// True if the engine's clock should be asked now: every 10 s, and at once when the wall has moved.
    #[must_use]
    pub fn wants_engine(&self) -> bool {
        self.look(|machine, at| {
            let fresh = |at_boot: Micros| at.boot - at_boot < 10 * SECOND;
            machine.shared && !machine.current_engine(at).is_some_and(|engine| fresh(engine.at))
        })
    }

    /// True if the engine has a clock that is compared.
    pub(super) fn has_engine(&self) -> bool {
        self.shared
    }

    /// Changes of state since the last call, oldest first: for the log, and adoptions for the audit log.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.lock().machine.events.drain(..).collect()
    }

    /// The boot-time clock, for rate limits and leases.
    #[must_use]
    pub fn boot(&self) -> Duration {
        self.clocks.boot()
    }

    /// A lease that starts now: take it before the read that it covers is sent.
    #[must_use]
    pub fn lease(&self, length: Duration) -> Lease {
        let doubts = self.doubts.load(Ordering::Acquire);
        let begun = self.steady();
        Lease { begun, until: begun.saturating_add(micros(length)), doubts }
    }

    /// Time since the lease was taken.
    #[must_use]
    pub fn age(&self, lease: &Lease) -> Duration {
        Duration::from_micros(u64::try_from(self.steady().saturating_sub(lease.begun)).unwrap_or(0))
    }

    /// True if the lease is still good: check it after the record was read.
    #[must_use]
    pub fn holds(&self, lease: &Lease) -> bool {
        let confirmed = self.now().is_ok_and(Now::is_confirmed);
        let same = self.doubts.load(Ordering::Acquire) == lease.doubts;
        confirmed && same && (lease.begun..lease.until).contains(&self.steady())
    }

    /// The clock of leases: the boot-time clock. A test's clock may stand still while other nodes wait for leases to
    /// end; beside it leases run on the monotonic clock, by which those wait.
    fn steady(&self) -> Micros {
        match &self.started {
            Some(started) => micros(started.elapsed()),
            None => micros(self.clocks.boot()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        // A panic leaves the machine between two readings at worst; the next one sets it right.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the clocks under the lock, hands them to the machine, and publishes what follows.
    fn look<T>(&self, answer: impl FnOnce(&mut Machine, Reading) -> T) -> T {
        let mut state = self.lock();
        let mut at = Reading::take(&*self.clocks);
        at.synchronized_at = state.synchronized(&*self.clocks, at.boot);
        let answer = answer(&mut state.machine, at);
        let machine = &state.machine;
        self.doubts.store(machine.doubts, Ordering::Release);
        self.published.set(machine.is_plain().then(|| Plain::of(machine, at.boot)));
        answer
    }
}

impl MachineState {
    /// Asks the kernel while it matters, once a second at the most.
    fn synchronized(&mut self, clocks: &dyn Clocks, boot: Micros) -> Option<Micros> {
        if self.machine.is_plain() && self.machine.hold.is_none() {
            return None;
        }
        match self.synchronized {
            Some((asked, answer)) if (0..SECOND).contains(&(boot - asked)) => answer,
            _ => {
                let answer = clocks.synchronized_at().map(micros);
                self.synchronized = Some((boot, answer));
                answer
            }
        }
    }
}

/// A clock that stands for wall and boot-time clock.
struct TrustedClock(Arc<dyn Clock>);

impl Clocks for TrustedClock {
    fn wall(&self) -> Duration {
        Duration::from_millis(self.0.now().as_millis())
    }

    fn boot(&self) -> Duration {
        self.wall()
    }

    fn boot_id(&self) -> Option<BootId> {
        None
    }

    fn synchronized_at(&self) -> Option<Duration> {
        None
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeSource").field("published", &self.published).finish_non_exhaustive()
    }
}
