//! What a server does by itself, from time to time.

use std::time::Duration;

use ebbtide::backend::skew::{Difference, compare};
use ebbtide::{Clock, Scope};
use metrics::gauge;
use tokio::time::{MissedTickBehavior, interval};

use crate::app::App;
use crate::metrics::recorder;

/// How often a round is made: stored policies are read, and metrics are gathered.
const ROUND: Duration = Duration::from_secs(5);

/// In every how many rounds the clocks are compared; in each one, while they disagree.
const CLOCK_ROUNDS: u32 = 12;

/// Keeps a server as it should be, for as long as it runs: reads the stored policies anew, compares `clock` with the
/// engine's and refuses every call while they are more than `bound` apart, keeps the store's clock mark, and gathers
/// the metrics. Run it beside [`serve`](crate::serve).
pub async fn upkeep(app: App, clock: impl Clock, bound: Duration) {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_u32.. {
        rounds.tick().await;
        recorder().run_upkeep();
        if round.is_multiple_of(CLOCK_ROUNDS) || app.edge.gate.is_closed() {
            check_clock(&app, &clock, bound).await;
            // So that a quiet week is no leap of the clock.
            if let Err(error) = app.guard.tick().await {
                tracing::warn!(%error, "the clock mark was not kept");
            }
        }
        if let Err(error) = app.stores.policies(&Scope::Global).reload().await {
            tracing::warn!(%error, "the stored policies were not read; those that were read last still hold");
        }
    }
}

/// Compares the clocks, and closes or opens the gate by it. An engine that does not answer changes nothing: then no
/// call is answered anyway.
async fn check_clock(app: &App, clock: &dyn Clock, bound: Duration) {
    let gate = &app.edge.gate;
    let difference = match compare(app.backend.0.as_ref(), clock, bound).await {
        Ok(Some(difference)) => difference,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, "the engine's clock could not be read");
            return;
        }
    };
    show(&difference);
    match (difference.check(bound), gate.is_closed()) {
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

fn show(difference: &Difference) {
    gauge!("ebbtide_clock_difference_seconds").set(difference.as_secs_f64());
}
