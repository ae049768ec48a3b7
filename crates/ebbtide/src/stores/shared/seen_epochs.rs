//! Raised epochs that this process has read lately, and the wait after a sign-out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::epochs::{Epoch, Parties, Stamp};
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::record::Version;
use crate::model::scope::Scope;
use crate::stores::Stores;

/// Most epochs that a process remembers; beyond it all are forgotten.
const MOST_SEEN: usize = 10_000;

/// Raised epochs that were read lately, so that an issue to a subject that was signed out once takes one round trip like
/// any other. The commit checks the version: an epoch that was raised since is read again.
#[derive(Default)]
pub(crate) struct SeenEpochs {
    seen: Mutex<HashMap<Key, (u64, Version)>>,
    /// False until the first one is seen: most subjects are never signed out.
    any: AtomicBool,
    /// Milliseconds after a sign-out in which nothing is issued to its subject.
    hold: AtomicU64,
}

impl SeenEpochs {
    fn seen(&self) -> MutexGuard<'_, HashMap<Key, (u64, Version)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the epoch that was read at `key`; forgets it if there is none.
    pub(super) fn note(&self, key: &Key, epoch: Option<(u64, Version)>) {
        let mut seen = self.seen();
        let Some(epoch) = epoch else {
            seen.remove(key);
            return;
        };
        if seen.len() >= MOST_SEEN {
            seen.clear();
        }
        seen.insert(key.clone(), epoch);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Stamp with the epochs of `parties` as they were seen last.
    pub(super) fn stamp(&self, scope: &Scope, parties: Parties<'_>) -> Result<Stamp> {
        let mut stamp = Stamp::default();
        if !self.any.load(Ordering::Relaxed) {
            return Ok(stamp);
        }
        for one in parties.conditions(scope, stamp)? {
            let Some((value, version)) = self.seen().get(&one.key).copied() else { continue };
            stamp.take(one.role, value, Some((*version.as_bytes()).into()));
        }
        Ok(stamp)
    }
}

impl Stores {
    /// Issues nothing to a subject for that long after its sign-out: the answer to the sign-out is on its way, and whoever
    /// gets something before that answer takes it for issued before. None by default: a caller in this process has the
    /// answer at once. It needs the timer of a runtime.
    pub fn hold_issues_after_sign_out(&self, hold: Duration) {
        let millis = u64::try_from(hold.as_millis()).unwrap_or(u64::MAX);
        self.seen_epochs().hold.store(millis, Ordering::Relaxed);
    }

    /// Waits while the sign-out or the revocation by client that gave an epoch of `stamp` may not be answered yet, and
    /// returns whether it did. An epoch is the time of its raise.
    pub(crate) async fn after_raise(&self, stamp: &Stamp) -> Result<bool> {
        let hold = self.seen_epochs().hold.load(Ordering::Relaxed);
        if hold == 0 || (stamp.subject() == 0 && stamp.client() == 0) {
            return Ok(false);
        }
        // The earliest that it may be here, since another node has raised the epoch: not less than this has passed.
        let now = self.now()?.earliest().as_millis();
        let left = |epoch: u64, hold: u64| {
            if epoch == 0 { 0 } else { hold.saturating_sub(now.saturating_sub(epoch)) }
        };
        let wait = left(stamp.subject(), hold).max(left(stamp.client(), hold + self.client_spread()));
        if wait > 0 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Ok(wait > 0)
    }

    /// Returns whether most of the hold after a raise to this epoch, which took `spread` milliseconds to be known
    /// everywhere, is still ahead, so that its answer arrives before anything is issued. A store under load may take
    /// longer for the raise than the hold.
    pub(crate) fn holds_issues_after(&self, epoch: Epoch, spread: u64) -> Result<bool> {
        let hold = self.seen_epochs().hold.load(Ordering::Relaxed);
        let age = self.now()?.latest().as_millis().saturating_sub(epoch.value);
        Ok(hold == 0 || age <= spread + hold / 4)
    }
}
