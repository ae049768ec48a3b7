//! Periodic background work of a server.

use std::time::Duration;

use ebbtide::stores::shared::belongings::Reconciled;
use ebbtide::{Reach, Scope};
use metrics::{counter, gauge};
use tokio::time::{MissedTickBehavior, interval};

use crate::app::App;
use crate::metrics::recorder;

/// Interval of a round, which reads stored policies and gathers metrics. A change of a policy is in force on every
/// node within 5 seconds.
const ROUND: Duration = Duration::from_secs(3);

/// Number of rounds between two checkpoints of the audit log.
const CHECKPOINT_ROUNDS: u32 = 12;

/// Number of rounds between two looks at what belongs to what: an hour. They read every link of the store.
const RECONCILE_ROUNDS: u32 = 1_200;

/// Background work while a server runs: reloads the stored policies, checkpoints the audit log, and gathers the metrics, and removes what
/// belonged to what has ended. The handle of the store looks after the clock by itself.
#[derive(Debug)]
pub struct Upkeep {
    app: App,
    round: u32,
}

impl Upkeep {
    /// Creates the background work of `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self { app, round: 0 }
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
        self.app.reload_keyring().await;
        if let Err(error) = self.app.db.report_keyring(&self.app.node).await {
            tracing::warn!(%error, "cannot report the keyring of this node");
        }
        if let Err(error) = self.app.stores.policies(&Scope::Global).reload().await {
            tracing::warn!(%error, "cannot read the stored policies; keeping the previous ones");
        }
        if self.round.is_multiple_of(CHECKPOINT_ROUNDS) {
            self.checkpoint().await;
        }
        // Not in the first round: a server is ready before it looks after anything.
        if self.round % RECONCILE_ROUNDS == RECONCILE_ROUNDS - 1 {
            self.reconcile().await;
        }
        self.round = self.round.wrapping_add(1);
    }

    /// Removes what belonged to a trust, a client or a grant that has ended since. A table whose engine reclaims by
    /// itself is too large to be read for it.
    async fn reconcile(&self) {
        if self.app.db.engine().info().reclaims_itself {
            return;
        }
        match self.app.stores.reconcile_below(&Reach::Below(Scope::Global)).await {
            Ok(done) if done == Reconciled::default() => {}
            Ok(done) => {
                tracing::info!(
                    links = done.links,
                    records = done.records,
                    "removed what belonged to nothing"
                );
            }
            Err(error) => tracing::warn!(%error, "cannot reconcile what belongs to what"),
        }
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
}
