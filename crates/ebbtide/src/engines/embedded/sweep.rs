//! Sweeping an embedded store: compact what is worth it, then count what is left.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::committer::{Committer, Job, Shared};
use super::engine::Engine;
use super::ledger::{Ledger, Minutes, minute, settle};
use super::pace::Pace;
use super::stored;
use crate::backend::Budget;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// When a sweep finds a kind worth compacting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worth {
    /// At least this share of it has expired, in percent.
    pub(super) share_percent: u64,
    /// Or something has been expired for longer than this.
    pub(super) overdue: Duration,
}

/// The kinds that a sweep up to `until` compacts.
pub(super) fn worthwhile(ledger: &Ledger, until: Timestamp, budget: &Budget, worth: Worth) -> Vec<Kind> {
    let chosen = budget.kinds.iter().copied().filter(|&kind| {
        if budget.force {
            return ledger.may_hold_expired(kind, until);
        }
        let stats = ledger.kind_stats(kind, until);
        let share = stats.expired * 100 >= (stats.live + stats.expired) * worth.share_percent;
        stats.expired > 0 && (share || stats.oldest_overdue.is_some_and(|age| age > worth.overdue))
    });
    chosen.collect()
}

/// Compacts a kind and sets the ledger right. Blocks the thread; answers how many records are gone. Runs alone: two
/// that count the same loss would both take it off.
pub(super) fn sweep_kind<E: Engine>(
    shared: &Shared<E>,
    committer: &Committer,
    kind: Kind,
    until: Timestamp,
    pace: &Arc<Pace>,
) -> Result<u64> {
    shared.check()?;
    shared.engine.compact(kind, until, pace)?;
    // One instant for both: the ledger's rows are written with the records they count.
    let snapshot = shared.engine.snapshot();
    let mut ledger = Ledger::default();
    let mut outcome = Ok(());
    shared.engine.walk_meta(&snapshot, &mut |key, value| {
        outcome = ledger.read_row(key, value);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    let mut counted = Minutes::new();
    let mut malformed = 0;
    shared.engine.walk_snapshot(&snapshot, kind, &mut |_, value| {
        pace.record();
        match stored::millis(value) {
            Some(millis) => *counted.entry(minute(millis)).or_default() += 1,
            None => malformed += 1,
        }
        ControlFlow::Continue(())
    })?;
    drop(snapshot);
    if malformed > 0 {
        return Err(Error::corrupt(format!("{malformed} stored records are shorter than their header")));
    }
    let (removed, changes) = settle(kind, ledger.minutes(kind).unwrap_or(&Minutes::new()), &counted);
    if !changes.is_empty() {
        committer.ask_blocking(|answer| Job::Settle { changes, answer })?;
    }
    shared.engine.give_back()?;
    Ok(removed)
}
