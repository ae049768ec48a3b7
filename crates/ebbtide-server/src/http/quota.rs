//! Record quotas of scopes. The count is cheap, and therefore approximate.
//!
//! A quota applies to a scope and everything below it. Live records are counted by a scan that goes no further than
//! the quota: at the first insertion, and again in the background when the last count is old. In between, each node
//! adds its own insertions. So a node learns with the next count of other nodes' insertions, and of expiries and
//! deletions: between counts, a scope can exceed its quota by what other nodes insert, and can be refused although a
//! record has just expired.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebbtide::timekeeping::TimeSource;
use ebbtide::{Error, Reach, Result, Scope, Stopwatch, Stores};

use crate::http::problem::Problem;

/// Maximum age of a count.
const RECOUNT_AFTER: Duration = Duration::from_secs(30);

/// Minimum rest after a count, as a multiple of its duration, so that counting takes a small part of the time.
const REST: u32 = 20;

/// Maximum number of records in a scope and below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Scope of the quota.
    pub scope: Scope,
    /// Maximum number of records.
    pub most: u64,
}

impl FromStr for Quota {
    type Err = Error;

    /// Parses `SCOPE=NUMBER`, such as `tenant:acme=100000`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("a quota must be SCOPE=NUMBER, such as tenant:acme=100000");
        let (scope, most) = text.rsplit_once('=').ok_or_else(wrong)?;
        Ok(Self { scope: scope.parse()?, most: most.parse().map_err(|_| wrong())? })
    }
}

/// Number of records that an answer tells of, in its extensions. Without it, an answer of a call that adds is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Added(pub(crate) u64);

/// Quotas by scope.
#[derive(Debug, Default)]
pub struct Quotas(Vec<Arc<QuotaUsage>>);

#[derive(Debug)]
struct QuotaUsage {
    quota: Quota,
    /// `None` before the first count.
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    counted: u64,
    /// Number of insertions since the count began.
    added: u64,
    /// On the boot-time clock.
    recount_at: Duration,
    counting: bool,
}

impl Quotas {
    /// Creates the configured quotas.
    #[must_use]
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self(quotas.into_iter().map(|quota| Arc::new(QuotaUsage { quota, seen: Mutex::default() })).collect())
    }

    /// Refuses a record that would exceed a quota.
    pub(crate) async fn check(
        &self,
        stores: &Stores,
        scope: &Scope,
        time: &TimeSource,
    ) -> Result<(), Problem> {
        for quota in self.over(scope) {
            // Apart from the futures of calls in scopes without a quota.
            Box::pin(quota.check(stores, time.boot())).await?;
        }
        Ok(())
    }

    /// Counts insertions.
    pub(crate) fn added(&self, scope: &Scope, count: u64) {
        for quota in self.over(scope) {
            if let Some(seen) = quota.seen().as_mut() {
                seen.added += count;
            }
        }
    }

    fn over(&self, scope: &Scope) -> impl Iterator<Item = &Arc<QuotaUsage>> {
        self.0.iter().filter(move |quota| quota.quota.scope.covers(scope))
    }
}

impl QuotaUsage {
    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check(self: &Arc<Self>, stores: &Stores, now: Duration) -> Result<(), Problem> {
        let standing = *self.seen();
        let seen = match standing {
            // Wait for the first count: without it there is no answer.
            None => self.count(stores, now).await?,
            Some(seen) => {
                if now >= seen.recount_at && self.begin() {
                    let (this, stores) = (Arc::clone(self), stores.clone());
                    tokio::spawn(async move {
                        if let Err(error) = this.count(&stores, now).await {
                            tracing::warn!(%error, scope = %this.quota.scope, "cannot count the records of a quota");
                        }
                    });
                }
                seen
            }
        };
        if seen.counted + seen.added < self.quota.most {
            return Ok(());
        }
        let wait = u32::try_from(seen.recount_at.saturating_sub(now).as_secs()).unwrap_or(u32::MAX).max(1);
        Err(Problem::too_many("quota", "the scope has reached its record quota", wait))
    }

    /// Of several requests that find the count old, one counts.
    fn begin(&self) -> bool {
        self.seen().as_mut().is_some_and(|seen| !std::mem::replace(&mut seen.counting, true))
    }

    async fn count(&self, stores: &Stores, now: Duration) -> Result<Seen> {
        let (watch, before) = (Stopwatch::start(), self.seen().map_or(0, |seen| seen.added));
        let reach = Reach::Below(self.quota.scope.clone());
        let counted = stores.scopes(&Scope::Global).count_up_to(&reach, self.quota.most).await;
        let mut seen = self.seen();
        if counted.is_err()
            && let Some(seen) = seen.as_mut()
        {
            seen.counting = false;
        }
        let added = seen.map_or(0, |seen| seen.added.saturating_sub(before));
        let recount_at = now.saturating_add(RECOUNT_AFTER.max(watch.elapsed() * REST));
        let counted = Seen { counted: counted?, added, recount_at, counting: false };
        *seen = Some(counted);
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_scope_and_a_number() {
        let quota: Quota = "tenant:a=b/env:c=12".parse().unwrap();
        assert_eq!((quota.scope.to_string().as_str(), quota.most), ("tenant:a=b/env:c", 12));
        for bad in ["", "tenant:a", "tenant:a=", "tenant:a=-1", "=5", "nonsense=5", "tenant:a=1.5"] {
            assert!(bad.parse::<Quota>().is_err(), "{bad}");
        }
    }
}
