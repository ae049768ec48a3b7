//! Threads that serve connections: one for each processor, each with a runtime of its own.
//!
//! A connection stays on the thread that it was given to, with all of its requests: none of them waits for another
//! thread, and none is moved. Connections are handed out in turn by the thread that accepts them. Listeners that share a
//! port (`SO_REUSEPORT`) would spread them unevenly, and would let a second server start on the same port unnoticed and
//! answer half of the requests from another store.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// Threads that serve connections, until they are dropped.
#[derive(Debug)]
pub struct Cores {
    handles: Arc<Handles>,
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Runtimes of the threads.
#[derive(Debug)]
pub(crate) struct Handles {
    all: Vec<Handle>,
    next: AtomicUsize,
}

impl Cores {
    /// Starts `count` threads.
    pub fn start(count: usize) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(());
        let (mut all, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            all.push(runtime.handle().clone());
            let mut stopped = stopped.clone();
            let run = move || {
                // The sender is dropped, and never sends.
                let _ = runtime.block_on(stopped.changed());
                // Without a wait for threads that it has started.
                runtime.shutdown_background();
            };
            threads.push(thread::Builder::new().name(format!("ebbtide-core-{number}")).spawn(run)?);
        }
        let handles = Arc::new(Handles { all, next: AtomicUsize::new(0) });
        Ok(Self { handles, stop: Some(stop), threads })
    }

    /// Starts a thread for each processor.
    pub fn start_all() -> io::Result<Self> {
        Self::start(thread::available_parallelism().map_or(1, usize::from))
    }

    pub(crate) fn handles(&self) -> Arc<Handles> {
        Arc::clone(&self.handles)
    }
}

impl Drop for Cores {
    /// Ends the threads, with what is left on them.
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Handles {
    /// The current runtime alone.
    pub(crate) fn current() -> Arc<Self> {
        Arc::new(Self { all: vec![Handle::current()], next: AtomicUsize::new(0) })
    }

    /// Serves a connection on the next thread.
    pub(crate) fn serve<F>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len();
        // A stream belongs to the runtime that it was made in.
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%error, "cannot hand on a connection"),
        };
        self.all[next].spawn(async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "cannot take on a connection"),
            }
        });
    }
}
