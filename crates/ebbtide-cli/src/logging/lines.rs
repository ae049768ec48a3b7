//! Log lines that nobody waits for: a thread writes them, many at a time.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// The most that waits to be written. Where standard error takes no more, lines are dropped, and it is said how many.
const MOST_BYTES: usize = 4 << 20;

/// For how long lines are gathered before they are written.
const GATHERING: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    dropped: u64,
    ended: bool,
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

    /// Writes until it is told that nothing more comes.
    fn write_all(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        loop {
            let waiting =
                self.some.wait_while(self.lock(), |waiting| waiting.bytes.is_empty() && !waiting.ended);
            let ended = waiting.unwrap_or_else(PoisonError::into_inner).ended;
            if !ended {
                std::thread::sleep(GATHERING);
            }
            let mut waiting = self.lock();
            std::mem::swap(&mut bytes, &mut waiting.bytes);
            let dropped = std::mem::take(&mut waiting.dropped);
            drop(waiting);
            if dropped > 0 {
                bytes.extend_from_slice(format!("{dropped} lines of the log were dropped\n").as_bytes());
            }
            // There is nowhere to say that the log cannot be written.
            let _ = out.write_all(&bytes);
            bytes.clear();
            if ended {
                return;
            }
        }
    }
}

/// Where the lines go.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

/// Writes what is left, when it is dropped.
pub(super) struct Flush {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    pub(super) fn start() -> io::Result<(Self, Flush)> {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("ebbtide-log".to_owned())
            .spawn(move || own.write_all(io::stderr()))?;
        Ok((Self(Arc::clone(&shared)), Flush { shared, thread: Some(thread) }))
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.some.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Write for &Lines {
    /// Takes a whole line, or drops it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock();
        if waiting.bytes.len() + line.len() > MOST_BYTES {
            waiting.dropped += 1;
        } else {
            waiting.bytes.extend_from_slice(line);
            // Whoever finds it empty wakes the thread; it looks again by itself after that.
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

    #[test]
    fn every_line_is_written_and_those_beyond_the_bound_are_counted() {
        let shared = Arc::<Shared>::default();
        let lines = Lines(Arc::clone(&shared));
        (&lines).write_all(b"first\n").unwrap();
        (&lines).write_all(&vec![b'x'; MOST_BYTES]).unwrap();
        (&lines).write_all(b"second\n").unwrap();
        shared.lock().ended = true;
        let mut out = Vec::new();
        shared.write_all(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "first\nsecond\n1 lines of the log were dropped\n");
    }
}
