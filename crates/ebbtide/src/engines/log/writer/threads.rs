//! The threads of a log.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Log;
use crate::engines::log::segment::failed;
use crate::model::error::Result;
use crate::model::time::Stopwatch;

/// Idle time after which a seal is written. Until then damage of the last group cannot be told from a torn tail.
const SEAL_AFTER: Duration = Duration::from_millis(20);

/// Time between two lines in the log that name the acknowledged sequence.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Times that the thread yields to others before it writes a small group that follows a large one.
const GATHER_YIELDS: u32 = 16;

/// Work of one thread.
type Role = fn(&Log);

/// Closes the log if the thread that holds it panics: nobody else does its work, and callers would wait for ever.
pub(crate) struct ClosesOnPanic<'a>(pub(crate) &'a Log);

impl Drop for ClosesOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.poison("a thread of the engine has panicked");
        }
    }
}

/// Reports of the acknowledged sequence, which `ebbtide doctor --expect` compares with the log.
struct Reports {
    every: Duration,
    since: Stopwatch,
    /// Sequence of the last line.
    reported: Option<u64>,
}

impl Reports {
    fn new(every: Duration) -> Self {
        Self { every, since: Stopwatch::start(), reported: None }
    }

    /// Sets the metric, and writes the line if it is time for the next one.
    fn note(&mut self, sequence: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        metrics::gauge!("ebbtide_log_acknowledged").set(sequence as f64);
        if self.due_in(sequence) == Some(Duration::ZERO) {
            self.write(sequence);
        }
    }

    /// Time until the next line; none while the last one says it all.
    fn due_in(&self, sequence: u64) -> Option<Duration> {
        (self.reported != Some(sequence)).then(|| self.every.saturating_sub(self.since.elapsed()))
    }

    /// Writes the line, unless the last one says the same.
    fn write(&mut self, sequence: u64) {
        if self.reported.replace(sequence) != Some(sequence) {
            tracing::info!(sequence, "highest acknowledged group of the log");
        }
        self.since = Stopwatch::start();
    }
}

impl Log {
    /// Lets other threads run while a small group follows a large one: the callers of the last group come back one by
    /// one, and each group costs an fsync. It takes no time where a processor is idle.
    fn gather(&self) {
        for _ in 0..GATHER_YIELDS {
            if !self.queue().is_small() {
                return;
            }
            thread::yield_now();
        }
    }

    fn write_until_stopped(&self) {
        self.write_and_report(REPORT_EVERY);
    }

    /// Writes groups until the log is stopped, and says how far it is: at least so often while that changes, and at the end.
    pub(super) fn write_and_report(&self, every: Duration) {
        let mut reports = Reports::new(every);
        self.write_groups(&mut reports);
        reports.note(self.acknowledged());
        reports.write(self.acknowledged());
    }

    fn write_groups(&self, reports: &mut Reports) {
        loop {
            reports.note(self.acknowledged());
            self.gather();
            match self.write_next() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return,
            }
            let mut queue = self.queue();
            // Under the lock, which whoever poisons the log takes before it wakes this thread.
            if queue.has_work() || self.is_poisoned() {
                continue;
            }
            if queue.stopping {
                drop(queue);
                let _ = self.seal();
                return;
            }
            queue.writer_waits = true;
            if queue.sealed {
                match reports.due_in(self.acknowledged()) {
                    Some(left) => drop(self.work.wait_timeout(queue, left)),
                    None => drop(self.work.wait(queue)),
                }
                continue;
            }
            let waited = self.work.wait_timeout(queue, SEAL_AFTER);
            let (queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            let is_idle = timeout.timed_out() && !queue.has_work();
            drop(queue);
            if is_idle && self.seal().is_err() {
                return;
            }
        }
    }
}

/// Threads of a log. Dropping them writes what was appended, seals the log and ends them.
pub(crate) struct Threads {
    log: Arc<Log>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the thread that writes and the thread that prepares segments.
    pub(crate) fn start(log: &Arc<Log>) -> Result<Self> {
        let mut threads = Self { log: Arc::clone(log), handles: Vec::new() };
        let roles: [(&str, Role); 2] =
            [("ebbtide-log", Log::write_until_stopped), ("ebbtide-segments", Log::prepare_until_stopped)];
        for (name, role) in roles {
            let log = Arc::clone(log);
            let handle = thread::Builder::new().name(name.to_owned()).spawn(move || {
                let _guard = ClosesOnPanic(&log);
                role(&log);
            });
            let start = |error: io::Error| failed("cannot start a thread of the log", error);
            threads.handles.push(handle.map_err(start)?);
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.log.queue().stopping = true;
        self.log.work.notify_all();
        self.log.prepare.notify_all();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}
