//! Cache of recently verified keys, so that a request takes one engine round trip and not two.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use ebbtide::stores::api_keys::{ApiKey, KeyId};
use ebbtide::stores::audit::Author;
use ebbtide::timekeeping::{Lease, TimeSource};
use ebbtide::{Digest, Reach, Scope};

use super::rate::Rate;
use crate::http::problem::Problem;
use crate::http::share::Share;

/// Time for which a key is honoured without another lookup. A key that is revoked on another node is refused after
/// this time plus the time of a read.
pub(super) const LIFE: Duration = Duration::from_secs(4);

/// Maximum number of keys in the cache.
const MOST: usize = 10_000;

/// Parts of a verified key beside its record.
#[derive(Debug)]
pub(super) struct Tied {
    /// Keys that it ends with, and whose rates it spends.
    pub(super) ancestors: Vec<ApiKey>,
    pub(super) share: Arc<Share>,
}

/// Verified key.
#[derive(Debug)]
pub(super) struct Held {
    /// Author of its changes in the audit log.
    pub(super) author: Author,
    pub(super) key: ApiKey,
    ancestors: Vec<KeyId>,
    /// On the boot-time clock; a doubt about the time ends it.
    lease: Lease,
    /// Its own rate, and those of the keys above it: whoever makes keys gets no faster by that.
    rates: Vec<Arc<Rate>>,
    pub(super) share: Arc<Share>,
}

impl Held {
    /// Counts one request against the key's rate limit.
    pub(super) fn spend(&self, time: &TimeSource) -> Result<(), Problem> {
        if self.rates.is_empty() {
            return Ok(());
        }
        let boot = time.boot();
        let limited = |wait| Problem::too_many("limited", "the key has reached its rate limit", wait);
        self.rates.iter().try_for_each(|rate| rate.spend(boot).map_err(limited))
    }
}

/// Look at a key in the store, from before the read. The key that it finds is held only if none was forgotten since:
/// that one may have been revoked after it was read.
#[derive(Debug)]
pub(super) struct Look {
    lease: Lease,
    forgotten: u64,
}

/// Cache by digest: the keys themselves are not kept.
#[derive(Default)]
pub(super) struct Cache {
    held: RwLock<HashMap<[u8; 32], Arc<Held>>>,
    /// Number of times that keys were forgotten. It changes under the lock of `held`.
    forgotten: AtomicU64,
    /// Rate limiters of the keys that are held, and of those above them.
    rates: Mutex<HashMap<KeyId, Weak<Rate>>>,
}

impl fmt::Debug for Cache {
    /// Prints the number of keys, not their digests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} keys)", self.held.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}

impl Cache {
    pub(super) fn get(&self, digest: &Digest, time: &TimeSource) -> Option<Arc<Held>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.get(digest.as_bytes()).filter(|held| time.holds(&held.lease)).cloned()
    }

    /// Returns true if the key was valid lately.
    pub(super) fn knows(&self, digest: &Digest) -> bool {
        self.held.read().unwrap_or_else(PoisonError::into_inner).contains_key(digest.as_bytes())
    }

    /// Begins a look at a key, before it is read: a cached key is never younger than it seems.
    pub(super) fn look(&self, time: &TimeSource) -> Look {
        let forgotten = self.forgotten.load(Ordering::Acquire);
        Look { lease: time.lease(LIFE), forgotten }
    }

    /// Adds a key that was found; rate limiters carry over, and are shared with other keys.
    pub(super) fn hold(
        &self,
        digest: &Digest,
        key: ApiKey,
        Tied { ancestors, share }: Tied,
        Look { lease, forgotten }: Look,
        time: &TimeSource,
    ) -> Arc<Held> {
        let mut all = self.held.write().unwrap_or_else(PoisonError::into_inner);
        // The key itself comes first: what it is refused is not spent of the keys above it.
        let rates = [&key].into_iter().chain(&ancestors).filter_map(|key| self.rate(key)).collect();
        let ancestors = ancestors.into_iter().map(|ancestor| ancestor.id).collect();
        let author = Author::new(&key.id.to_string());
        let held = Arc::new(Held { author, key, ancestors, lease, rates, share });
        if self.forgotten.load(Ordering::Acquire) != forgotten {
            return held;
        }
        if all.len() >= MOST && !all.contains_key(digest.as_bytes()) {
            all.retain(|_, held| time.holds(&held.lease));
            if all.len() >= MOST {
                all.clear();
            }
        }
        all.insert(*digest.as_bytes(), Arc::clone(&held));
        held
    }

    /// Rate limiter of a key, one for all that spend it; none without a limit.
    fn rate(&self, key: &ApiKey) -> Option<Arc<Rate>> {
        let limit = key.rate_limit?;
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() >= 2 * MOST {
            rates.retain(|_, rate| rate.strong_count() > 0);
        }
        if let Some(rate) = rates.get(&key.id).and_then(Weak::upgrade) {
            return Some(rate);
        }
        let rate = Arc::new(Rate::new(limit));
        rates.insert(key.id.clone(), Arc::downgrade(&rate));
        Some(rate)
    }

    pub(super) fn drop(&self, digest: &Digest) {
        self.held.write().unwrap_or_else(PoisonError::into_inner).remove(digest.as_bytes());
    }

    pub(super) fn forget(&self, id: &KeyId) {
        let keep = |held: &Held| held.key.id != *id && !held.ancestors.contains(id);
        self.retain(keep);
    }

    /// Forgets the keys of a scope, and those that they have created.
    pub(super) fn forget_scope(&self, reach: &Reach) {
        let is_of = |scope: &Scope| match reach {
            Reach::Exact(exact) => exact == scope,
            Reach::Below(above) => above.covers(scope),
        };
        let keep = |held: &Held| {
            !is_of(&held.key.scope) && !held.ancestors.iter().any(|ancestor| is_of(ancestor.scope()))
        };
        self.retain(keep);
    }

    fn retain(&self, keep: impl Fn(&Held) -> bool) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        held.retain(|_, held| keep(held));
    }
}

#[cfg(test)]
mod tests {
    use ebbtide::stores::api_keys::{KeyRequest, Role};
    use ebbtide::stores::audit::AuditContext;
    use ebbtide::{Ebbtide, SystemClock};

    use super::*;
    use crate::http::limits::Limits;

    #[tokio::test]
    async fn a_key_that_is_revoked_while_it_is_looked_up_is_not_held() {
        let (time, cache) = (TimeSource::of_clock(SystemClock), Cache::default());
        let context = AuditContext::because("a test").unwrap();
        let keys = Ebbtide::in_memory().scope("global").unwrap().api_keys();
        let key = keys.create(&KeyRequest::new(Scope::Global, Role::Reader), &context).await.unwrap().about;
        let digest = Digest::of("test", &[]);
        let hold = |look| {
            let tied = Tied { ancestors: Vec::new(), share: Share::new(Limits::default()) };
            cache.hold(&digest, key.clone(), tied, look, &time)
        };
        for forget in
            [&(|| cache.forget(&key.id)) as &dyn Fn(), &|| cache.forget_scope(&Reach::Exact(Scope::Global))]
        {
            let look = cache.look(&time);
            forget();
            assert_eq!(hold(look).key.id, key.id, "the request that read it is served");
            assert!(cache.get(&digest, &time).is_none(), "the next one reads again");
            hold(cache.look(&time));
            assert!(cache.get(&digest, &time).is_some());
            forget();
            assert!(cache.get(&digest, &time).is_none());
        }
    }
}
