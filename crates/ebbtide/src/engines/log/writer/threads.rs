//! The threads of a log.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Log;
use crate::engines::log::segment::failed;
use crate::model::error::Result;
use crate::model::time::Stopwatch;

/// Idle time after which a seal is written. Until then damage of the last group cannot be told from a torn tail.
const SEAL_AFTER: Duration = Duration::from_millis(20);

/// Time between two lines in the log that name the acknowledged sequence.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Work of one thread.
type Role = fn(&Log);

impl Log {
    fn write_until_stopped(&self) {
        let report = Stopwatch::start();
        let mut reports = 0;
        loop {
            match self.write_next() {
                Ok(true) => {
                    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                    metrics::gauge!("ebbtide_log_acknowledged").set(self.acknowledged() as f64);
                    if report.elapsed() >= REPORT_EVERY * (reports + 1) {
                        reports = u32::try_from(report.elapsed().as_secs() / REPORT_EVERY.as_secs())
                            .unwrap_or(u32::MAX);
                        tracing::info!(
                            sequence = self.acknowledged(),
                            "highest acknowledged group of the log"
                        );
                    }
                    continue;
                }
                Ok(false) => {}
                Err(_) => return,
            }
            let mut queue = self.queue();
            if queue.has_work() {
                continue;
            }
            if queue.stopping {
                drop(queue);
                let _ = self.seal();
                return;
            }
            queue.writer_waits = true;
            if queue.sealed {
                drop(self.work.wait(queue));
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
            let handle = std::thread::Builder::new().name(name.to_owned()).spawn(move || role(&log));
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
