//! What a server does by itself, from time to time.

use std::time::Duration;

use ebbtide::ops::skew::compare;
use ebbtide::{Clock, Scope};
use metrics::gauge;
use tokio::time::{MissedTickBehavior, interval};

use crate::app::App;
use crate::metrics::recorder;

/// How often a round is made: stored policies are read, and metrics are gathered.
const ROUND: Duration = Duration::from_secs(5);

/// In every how many rounds the clocks are compared; in each one, while they disagree.
const CLOCK_ROUNDS: u32 = 12;

/// Keeps a server as it should be, for as long as it runs: reads the stored policies anew, compares a clock with the
/// engine's and refuses every call while they are too far apart, keeps the store's clock mark, and gathers the metrics.
#[derive(Debug)]
pub struct Upkeep<C> {
    app: App,
    clock: C,
    bound: Duration,
    round: u32,
}

impl<C: Clock> Upkeep<C> {
    /// For the server of `app`; `clock` may be `bound` from the engine's.
    pub fn new(app: App, clock: C, bound: Duration) -> Self {
        Self { app, clock, bound, round: 0 }
    }

    /// One round after the other, every few seconds. Run it beside [`serve`](crate::http::serve).
    pub async fn run(mut self) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            self.round().await;
        }
    }

    /// One round. What fails is logged, and tried again in a later one.
    pub async fn round(&mut self) {
        recorder().run_upkeep();
        if self.round.is_multiple_of(CLOCK_ROUNDS) || self.app.edge.gate.is_closed() {
            self.check_clock().await;
            // So that a quiet week is no leap of the clock.
            if let Err(error) = self.app.guard.tick().await {
                tracing::warn!(%error, "the clock mark was not kept");
            }
        }
        if let Err(error) = self.app.stores.policies(&Scope::Global).reload().await {
            tracing::warn!(%error, "the stored policies were not read; those that were read last still hold");
        }
        self.round = self.round.wrapping_add(1);
    }

    /// Compares the clocks, and closes or opens the gate by it. An engine that does not answer changes nothing: then
    /// no call is answered anyway.
    async fn check_clock(&self) {
        let gate = &self.app.edge.gate;
        let difference = match compare(self.app.backend.0.as_ref(), &self.clock, self.bound).await {
            Ok(Some(difference)) => difference,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the engine's clock could not be read");
                return;
            }
        };
        gauge!("ebbtide_clock_difference_seconds").set(difference.as_secs_f64());
        match (difference.check(self.bound), gate.is_closed()) {
            (Err(error), _) => {
                tracing::error!(%error, "every call is refused until the clock is mended");
                gate.close(error.message());
            }
            (Ok(()), true) => {
                tracing::info!("the clock agrees with the engine's again");
                gate.open();
            }
            (Ok(()), false) => {}
        }
    }
}
