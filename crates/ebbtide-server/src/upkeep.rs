//! Periodic background work of a server.

use std::time::Duration;

use ebbtide::Scope;
use tokio::time::{MissedTickBehavior, interval};

use crate::app::App;
use crate::metrics::recorder;

/// Interval of a round, which reads stored policies and gathers metrics.
const ROUND: Duration = Duration::from_secs(5);

/// Background work while a server runs: reloads the stored policies, and gathers the metrics. The handle of the store
/// looks after the clock by itself.
#[derive(Debug)]
pub struct Upkeep {
    app: App,
}

impl Upkeep {
    /// Creates the background work of `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self { app }
    }

    /// Runs rounds every few seconds. Run it beside [`serve`](crate::http::serve).
    pub async fn run(self) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            self.round().await;
        }
    }

    /// Runs one round. Failures are logged and retried in a later one.
    pub async fn round(&self) {
        recorder().run_upkeep();
        if let Err(error) = self.app.stores.policies(&Scope::Global).reload().await {
            tracing::warn!(%error, "cannot read the stored policies; keeping the previous ones");
        }
    }
}
