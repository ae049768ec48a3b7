//! Non-blocking log lines: a thread writes them in batches.
//!
//! `tracing-appender` does the same with a system call for each line and a bound in lines; this batches for
//! [`BATCHING`], bounds the memory, and reports dropped lines in the log itself.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Bound of the buffer. If standard error blocks, further lines are dropped and counted.
const MAX_BYTES: usize = 4 << 20;

/// Time to collect lines before they are written.
const BATCHING: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    dropped: u64,
    /// No more lines follow.
    ended: bool,
    /// Every line is written.
    finished: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    some: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines until [`Shared::end`].
    fn write_all(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        loop {
            let waiting =
                self.some.wait_while(self.lock(), |waiting| waiting.bytes.is_empty() && !waiting.ended);
            let ended = waiting.unwrap_or_else(PoisonError::into_inner).ended;
            if !ended {
                std::thread::sleep(BATCHING);
            }
            let mut waiting = self.lock();
            std::mem::swap(&mut bytes, &mut waiting.bytes);
            let dropped = std::mem::take(&mut waiting.dropped);
            drop(waiting);
            if dropped > 0 {
                bytes.extend_from_slice(format!("{dropped} log lines dropped\n").as_bytes());
            }
            // An error of the log cannot be logged.
            let _ = out.write_all(&bytes);
            bytes.clear();
            if ended {
                self.lock().finished = true;
                self.some.notify_all();
                return;
            }
        }
    }

    /// Ends the log: waits until every line is written, at most for `timeout` in case standard error blocks.
    fn end(&self, timeout: Duration) {
        let mut waiting = self.lock();
        waiting.ended = true;
        self.some.notify_all();
        let _ = self.some.wait_timeout_while(waiting, timeout, |waiting| !waiting.finished);
    }
}

/// Writer of log lines.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

/// Writes the remaining lines when it is dropped.
pub(super) struct Flush(Arc<Shared>);

impl Lines {
    pub(super) fn start() -> io::Result<(Self, Flush)> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("ebbtide-log".to_owned());
        builder.spawn(move || own.write_all(io::stderr()))?;
        Ok((Self(Arc::clone(&shared)), Flush(shared)))
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.end(Duration::from_secs(1));
    }
}

impl Write for &Lines {
    /// Accepts a whole line, or drops it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock();
        if waiting.bytes.len() + line.len() > MAX_BYTES {
            waiting.dropped += 1;
        } else {
            waiting.bytes.extend_from_slice(line);
            // The first line wakes the thread, which then collects the lines that follow.
            if waiting.bytes.len() == line.len() {
                self.0.some.notify_one();
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks until the sender is dropped.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_never_reads() {
        let shared = Arc::<Shared>::default();
        let lines = Lines(Arc::clone(&shared));
        (&lines).write_all(b"a line\n").unwrap();
        let (go, stuck) = std::sync::mpsc::channel();
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || own.write_all(Stuck(stuck)));
        shared.end(Duration::from_millis(50));
        assert!(!shared.lock().finished, "the end timed out");
        drop(go);
        thread.join().unwrap();
        shared.end(Duration::from_secs(60));
        assert!(shared.lock().finished);
    }

    #[test]
    fn every_line_is_written_and_those_beyond_the_bound_are_counted() {
        let shared = Arc::<Shared>::default();
        let lines = Lines(Arc::clone(&shared));
        (&lines).write_all(b"first\n").unwrap();
        (&lines).write_all(&vec![b'x'; MAX_BYTES]).unwrap();
        (&lines).write_all(b"second\n").unwrap();
        shared.lock().ended = true;
        let mut out = Vec::new();
        shared.write_all(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "first\nsecond\n1 log lines dropped\n");
    }
}
