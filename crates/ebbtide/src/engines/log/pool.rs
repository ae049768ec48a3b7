//! A bounded pool of threads for reads from the disk, which never happen on a thread of the runtime.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::segment::failed;
use crate::model::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    come: Condvar,
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut jobs = self.jobs();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                drop(jobs);
                // A job that panics drops its answer, and its caller gets an error: the thread must stay for the others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                jobs = self.jobs();
            } else if jobs.stopping {
                return;
            } else {
                jobs = self.come.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// A pool. Dropping it ends its threads when all jobs are done.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of so many threads; with none, whoever has it calls [`step`](Self::step).
    pub(crate) fn new(name: &str, threads: usize) -> Result<Self> {
        let mut pool = Self { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || shared.run());
            pool.threads.push(thread.map_err(|error| failed("cannot start a thread", error))?);
        }
        Ok(pool)
    }

    /// Runs `work` on a thread of the pool.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move || drop(answer.send(work())));
        self.shared.jobs().waiting.push_back(job);
        self.shared.come.notify_one();
        answered.await.map_err(|_| Error::unavailable("the work was broken off"))
    }

    /// Runs one job on the calling thread, and answers whether there was one.
    #[cfg(test)]
    pub(crate) fn step(&self) -> bool {
        let job = self.shared.jobs().waiting.pop_front();
        let Some(job) = job else { return false };
        job();
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.jobs().stopping = true;
        self.shared.come.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_job_that_panics_is_an_error_and_leaves_its_thread_to_the_others() {
        let pool = Pool::new("ebbtide-test", 1).unwrap();
        for _ in 0..3 {
            let broken = pollster::block_on(pool.run(|| -> u32 { panic!("a job of a test panics") }));
            assert_eq!(broken.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        assert_eq!(pollster::block_on(pool.run(|| 7)).unwrap(), 7);
    }
}
