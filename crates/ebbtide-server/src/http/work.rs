//! Heavy calls: those that walk many records. They run on a thread of their own, so that they take no thread from other
//! calls.

use std::sync::OnceLock;

use axum::http::StatusCode;
use ebbtide::stores::shared::refusal::RefusalCause;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::app::App;
use crate::http::auth::Caller;
use crate::http::problem::Problem;

/// Cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A few round trips to the engine.
    Plain,
    /// Reads any number of records.
    Walk,
    /// One or the other by what is asked for: the handler decides, and calls [`App::walk`].
    ByRequest,
}

impl App {
    /// Runs the heavy part of a call in the turn of its tenant, on the thread for walks.
    pub(crate) async fn walk<T: Send + 'static>(
        &self,
        caller: &Caller,
        part: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        let _turn = caller.share.heavy().await?;
        let part = caller.author().run(RefusalCause::watch(part));
        let (answer, noted) = self.edge.walker.run(part).await?;
        if let Some(noted) = noted {
            noted.note();
        }
        Ok(answer)
    }
}

/// Thread for walks, started with the first one.
#[derive(Debug, Default)]
pub(crate) struct Walker(OnceLock<Option<Runtime>>);

impl Walker {
    /// Runs `walk` on the thread. If the caller goes away, so does the walk.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        walk: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        let start = || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("ebbtide-walk")
                .enable_all()
                .build();
            runtime.inspect_err(|error| tracing::error!(%error, "cannot start the thread for walks")).ok()
        };
        let failed =
            || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the call was interrupted");
        let runtime = self.0.get_or_init(start).as_ref().ok_or_else(failed)?;
        let mut task = Abort(runtime.spawn(walk));
        (&mut task.0).await.map_err(|_| failed())
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which an asynchronous task must not.
        if let Some(runtime) = self.0.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

/// Task that ends with its handle.
struct Abort<T>(JoinHandle<T>);

impl<T> Drop for Abort<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
