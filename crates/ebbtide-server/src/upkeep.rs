//! Periodic background work of a server.

use std::time::Duration;

use ebbtide::stores::shared::belongings::Reconciled;
use ebbtide::{Reach, Rng as _, Scope, Stopwatch, SystemRng};
use metrics::{counter, gauge};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::app::App;
use crate::metrics::{recorder, tell_system_usage};

/// Interval of a round, which reads stored policies and gathers metrics. A change of a policy is in force on every
/// node within 5 seconds.
const ROUND: Duration = Duration::from_secs(3);

/// Number of rounds between two checkpoints of the audit log.
const CHECKPOINT_ROUNDS: u32 = 12;

/// Interval of the reports of the keyring, within half of the time after which a node counts as gone. A keyring that has
/// changed is reported at once.
const REPORT_EVERY: Duration = Duration::from_secs(12);

/// Number of rounds between two looks at what belongs to what: an hour. They read every link of the store.
const RECONCILE_ROUNDS: u32 = 1_200;

/// Round of each hour in which the attributes of system owners are counted: a minute after the start.
const USAGE_ROUND: u32 = 20;

/// Number of rounds between two looks at the index records: a day. They read every index of the store.
const INDEX_ROUNDS: u32 = 24 * RECONCILE_ROUNDS;

/// Background work while a server runs: reloads the stored policies, checkpoints the audit log, gathers the metrics, and
/// removes what belonged to what has ended. The handle of the store looks after the clock by itself.
#[derive(Debug)]
pub struct Upkeep {
    app: App,
    round: u32,
    /// Last report of the keyring.
    reported: Option<Stopwatch>,
    /// Walk through the store that may still be running.
    walk: Option<JoinHandle<()>>,
    /// Checkpoint that may still be running.
    checkpoint: Option<JoinHandle<()>>,
}

/// Interval of a round, up to a fifth shorter or longer: nodes that were started together part.
fn round_with_jitter() -> Duration {
    let mut bytes = [0; 4];
    SystemRng.fill(&mut bytes);
    ROUND.mul_f64(0.8 + 0.4 * f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX))
}

impl Upkeep {
    /// Creates the background work of `app`.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self { app, round: 0, reported: None, walk: None, checkpoint: None }
    }

    /// Runs rounds every few seconds. Run it beside [`serve`](crate::http::serve). Checkpoints and walks through the
    /// store run beside the rounds, so that a change of a policy does not wait for them.
    pub async fn run(mut self) {
        loop {
            self.refresh().await;
            let (is_checkpoint, due) = self.next_round();
            if is_checkpoint && is_over(self.checkpoint.as_ref()) {
                self.checkpoint = Some(tokio::spawn(checkpoint(self.app.clone())));
            }
            if due.any() && is_over(self.walk.as_ref()) {
                self.walk = Some(tokio::spawn(walk(self.app.clone(), due)));
            }
            sleep(round_with_jitter()).await;
        }
    }

    /// Runs one round to its end. Failures are logged and retried in a later one.
    pub async fn round(&mut self) {
        self.refresh().await;
        let (is_checkpoint, due) = self.next_round();
        if is_checkpoint {
            checkpoint(self.app.clone()).await;
        }
        if due.any() {
            walk(self.app.clone(), due).await;
        }
    }

    /// Checkpoints the audit log now: for a process that may be frozen or ended before the next round.
    pub async fn checkpoint(&self) {
        checkpoint(self.app.clone()).await;
    }

    /// Reads again what other nodes may have changed.
    async fn refresh(&mut self) {
        recorder().run_upkeep();
        self.app.reload_keyring().await;
        if self.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
            match self.app.db.report_keyring(&self.app.node).await {
                Ok(()) => self.reported = Some(Stopwatch::start()),
                Err(error) => tracing::warn!(%error, "cannot report the keyring of this node"),
            }
        }
        if let Err(error) = self.app.stores.policies(&Scope::Global).reload().await {
            tracing::warn!(%error, "cannot read the stored policies; keeping the previous ones");
        }
    }

    /// Work of this round: whether a checkpoint is due, and the walks that are.
    fn next_round(&mut self) -> (bool, Walks) {
        let round = self.round;
        self.round = round.wrapping_add(1);
        // A table whose engine reclaims by itself is too large to be read for it.
        let may_walk = !self.app.db.engine().info().reclaims_itself;
        // Links not in the first round: a server is ready before it looks after anything.
        let is_last = |rounds| may_walk && round % rounds == rounds - 1;
        let walks = Walks {
            usage: may_walk && round % RECONCILE_ROUNDS == USAGE_ROUND,
            links: is_last(RECONCILE_ROUNDS),
            indexes: is_last(INDEX_ROUNDS),
        };
        (round.is_multiple_of(CHECKPOINT_ROUNDS), walks)
    }
}

/// Walks through the store that are due in a round.
#[derive(Debug, Clone, Copy)]
struct Walks {
    usage: bool,
    links: bool,
    indexes: bool,
}

impl Walks {
    fn any(self) -> bool {
        self.usage || self.links || self.indexes
    }
}

fn is_over(task: Option<&JoinHandle<()>>) -> bool {
    task.is_none_or(JoinHandle::is_finished)
}

/// Walks through the store: counts what system owners have, and removes what belonged to a trust, a client or a grant
/// that has ended since.
async fn walk(app: App, due: Walks) {
    if due.usage
        && let Err(error) = tell_system_usage(&app).await
    {
        tracing::warn!(%error, "cannot count the attributes of system owners");
    }
    let everywhere = Reach::Below(Scope::Global);
    let done = match (due.indexes, due.links) {
        (true, _) => app.stores.reconcile_all(&everywhere).await,
        (false, true) => app.stores.reconcile_below(&everywhere).await,
        (false, false) => return,
    };
    match done {
        Ok(done) if done == Reconciled::default() => {}
        Ok(done) => {
            tracing::info!(links = done.links, records = done.records, "removed what belonged to nothing");
        }
        Err(error) => tracing::warn!(%error, "cannot reconcile what belongs to what"),
    }
}

/// Checkpoints the audit log, and tells it to the log and the metrics, which an attacker of the store does not reach.
async fn checkpoint(app: App) {
    let checkpoint = match app.stores.checkpoint_audit().await {
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
