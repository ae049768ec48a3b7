//! Records of the measurements, and callers that write them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{
    Admin, Batch, Clock as _, Digest, Key, Kind, Record, Scope, Stores, SystemClock, SystemRng, Timestamp,
    Write,
};
use tokio::task::JoinSet;

use crate::load::{Caller, StatelessCaller};

/// Returns a number that is unique in this run.
pub(crate) fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Scope of all records.
pub(crate) fn scope() -> Scope {
    Scope::tenant("acme").expect("a good name")
}

/// Time `seconds` after `now`.
pub(crate) fn in_seconds(now: Timestamp, seconds: u64) -> Result<Timestamp> {
    Ok(now.checked_add(Duration::from_secs(seconds))?)
}

/// Key of a replay record.
pub(crate) fn key(number: u64) -> Result<Key> {
    let digest = Digest::of("replay", &[&number.to_be_bytes()]);
    Ok(Key::new(Kind::Replay, &scope(), &[digest.part()], &[])?)
}

/// Creates a replay record.
pub(crate) fn record(expires_at: Timestamp) -> Record {
    Record::new("", expires_at, &SystemRng)
}

/// Writes records in large batches, 64 at once; `expires_at` maps each number to its expiry.
pub(crate) async fn fill(
    store: &Arc<dyn Admin>,
    records: u64,
    expires_at: impl Fn(u64) -> Timestamp,
) -> Result<()> {
    let now = SystemClock.now();
    let mut commits = JoinSet::new();
    let mut number = 0;
    while number < records || !commits.is_empty() {
        while number < records && commits.len() < 64 {
            let upto = (number + Batch::MAX_WRITES as u64).min(records);
            let writes = (number..upto)
                .map(|number| Ok(Write::Insert { key: key(next())?, record: record(expires_at(number)) }))
                .collect::<Result<Vec<_>>>()?;
            number = upto;
            let (store, batch) = (Arc::clone(store), Batch::new(writes)?);
            commits.spawn(async move { store.commit(batch, now).await });
        }
        if let Some(commit) = commits.join_next().await {
            ensure!(commit??.is_applied(), "a key of the filling is taken");
        }
    }
    Ok(())
}

/// Durable replay check of a new proof.
pub(crate) fn replay_check(stores: &Stores) -> impl Caller + Clone + use<> {
    let replays = stores.replays(&scope());
    StatelessCaller(move || {
        let replays = replays.clone();
        async move {
            let proof = Proof::new("https://api.example/token", format!("jti-{:020}", next()));
            let seen = replays.check(&proof).await?;
            ensure!(matches!(seen, ReplayOutcome::Fresh { .. }), "a new proof is a replay");
            Ok(())
        }
    })
}
