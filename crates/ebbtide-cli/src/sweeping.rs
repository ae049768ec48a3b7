//! The sweeper beside the server: what it rests with, and how it is told to stop.

use std::ops::ControlFlow;
use std::time::Duration;

use ebbtide::Sweeper;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a step that has begun may take to end before the process does. It loses nothing by being broken off.
const PATIENCE: Duration = Duration::from_secs(5);

/// A sweeper at work.
pub(crate) struct Sweeping {
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Sweeping {
    /// Sweeps at every interval; without one, only looks whether somebody else does.
    pub(crate) fn start(sweeper: Sweeper, every: Option<Duration>) -> Self {
        let (stop, stopped) = watch::channel(());
        let rest = move |time| {
            let mut stopped = stopped.clone();
            async move {
                tokio::select! {
                    biased;
                    _ = stopped.changed() => ControlFlow::Break(()),
                    () = sleep(time) => ControlFlow::Continue(()),
                }
            }
        };
        Self { stop, task: tokio::spawn(async move { sweeper.run(every, rest).await }) }
    }

    /// Has it stop after the step that it is at.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        if timeout(PATIENCE, self.task).await.is_err() {
            tracing::info!("a sweep was broken off; the next one goes on with it");
        }
    }
}
