//! Heavy calls: those that walk many records. They run on a thread of their own, so that they take no thread from other
//! calls.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::http::problem::Problem;
use axum::http::StatusCode;

/// Cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A few round trips to the engine.
    Plain,
    /// Reads any number of records.
    Walk,
}

impl Work {
    /// Cost of a call by its template. Calls that list are walks.
    pub(crate) fn of(template: &str, query: &[String]) -> Self {
        const WALKS: [&str; 14] = [
            "/v1/relationships/check",
            "/v1/relationships/reachable",
            "/v1/attributes/list",
            "/v1/attributes/list-buckets",
            "/v1/attributes/delete-all",
            "/v1/records/list",
            "/v1/subjects/overview",
            "/v1/audit/verify",
            "/v1/explain",
            "/v1/stats",
            "/v1/sweep",
            "/v1/policies/simulate",
            "/v1/import",
            // It looks for the author of a revocation in the audit log.
            "/v1/why/{request_id}",
        ];
        if query.iter().any(|name| name == "limit")
            || WALKS.contains(&template)
            || template.starts_with("/v1/scopes")
            || template.starts_with("/v1/owners")
            || template.ends_with("/delete-all")
        {
            Self::Walk
        } else {
            Self::Plain
        }
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
