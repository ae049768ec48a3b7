//! Periodic background work of a server.

use std::time::Duration;

use ebbtide::ops::skew::compare;
use ebbtide::{Clock, Scope};
use metrics::{counter, gauge};
use tokio::time::{MissedTickBehavior, interval};

use crate::app::App;
use crate::metrics::recorder;

/// Interval of a round, which reads stored policies and gathers metrics. A change of a policy is in force on every
/// node within 5 seconds.
const ROUND: Duration = Duration::from_secs(3);

/// Number of rounds between two comparisons of the clocks; every round while they disagree.
const CLOCK_ROUNDS: u32 = 20;

/// Number of rounds between two checkpoints of the audit log.
const CHECKPOINT_ROUNDS: u32 = 12;

/// Background work while a server runs: reloads the stored policies, compares the clock with the engine's and refuses
/// every call while they differ too much, moves the store's clock mark, and gathers the metrics.
#[derive(Debug)]
pub struct Upkeep<C> {
    app: App,
    clock: C,
    bound: Duration,
    round: u32,
}

impl<C: Clock> Upkeep<C> {
    /// Creates the background work of `app`; `clock` may differ from the engine's by `bound`.
    pub fn new(app: App, clock: C, bound: Duration) -> Self {
        Self { app, clock, bound, round: 0 }
    }

    /// Runs rounds every few seconds. Run it beside [`serve`](crate::http::serve).
    pub async fn run(mut self) {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            self.round().await;
        }
    }

    /// Runs one round. Failures are logged and retried in a later one.
    pub async fn round(&mut self) {
        recorder().run_upkeep();
        if self.round.is_multiple_of(CLOCK_ROUNDS) || self.app.edge.gate.is_closed() {
            self.check_clock().await;
            // A quiet week must not look like a leap of the clock.
            if let Err(error) = self.app.guard.tick().await {
                tracing::warn!(%error, "cannot move the clock mark");
            }
        }
        if let Err(error) = self.app.stores.policies(&Scope::Global).reload().await {
            tracing::warn!(%error, "cannot read the stored policies; keeping the previous ones");
        }
        if self.round.is_multiple_of(CHECKPOINT_ROUNDS) {
            self.checkpoint().await;
        }
        self.round = self.round.wrapping_add(1);
    }

    /// Checkpoints the audit log, and tells it to the log and the metrics, which an attacker of the store does not
    /// reach.
    async fn checkpoint(&self) {
        let checkpoint = match self.app.stores.checkpoint_audit().await {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                tracing::warn!(%error, "cannot write the checkpoint of the audit log");
                return;
            }
        };
        counter!("ebbtide_audit_checkpoints_total").increment(1);
        let chains: usize = checkpoint.scopes.iter().map(|(_, mark)| mark.chains().len()).sum();
        gauge!("ebbtide_audit_checkpoint_chains").set(f64::from(u32::try_from(chains).unwrap_or(u32::MAX)));
        for (scope, mark) in &checkpoint.scopes {
            tracing::info!(%scope, %mark, "audit checkpoint");
        }
    }

    /// Compares the clocks, and closes or opens the gate accordingly. An engine that does not answer changes nothing:
    /// no call succeeds then anyway.
    async fn check_clock(&self) {
        let gate = &self.app.edge.gate;
        let difference = match compare(self.app.backend.0.as_ref(), &self.clock, self.bound).await {
            Ok(Some(difference)) => difference,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot read the engine's clock");
                return;
            }
        };
        gauge!("ebbtide_clock_difference_seconds").set(difference.as_secs_f64());
        match (difference.check(self.bound), gate.is_closed()) {
            (Err(error), _) => {
                tracing::error!(%error, "refusing every call until the clock is corrected");
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
