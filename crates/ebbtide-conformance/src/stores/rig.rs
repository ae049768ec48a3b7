//! Test rig of the typed stores.

use std::sync::Arc;
use std::time::Duration;

use super::meanwhile::{Event, Meanwhile};
use super::yielding::Yielding;
use crate::faulty::Faulty;
use ebbtide::admin::Admin;
use ebbtide::backend::{BackendExt, Budget, Swept};
use ebbtide::keyring::Keyring;
use ebbtide::model::key::{Key, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Record;
use ebbtide::model::rng::SeededRng;
use ebbtide::model::scope::Scope;
use ebbtide::model::time::{Clock, ManualClock, Timestamp};
use ebbtide::model::ttl::Ttl;
use ebbtide::stores::Stores;
use ebbtide::stores::profile::Profile;
use ebbtide::timekeeping::TimeSource;

/// Stores with a clock that the case moves.
#[derive(Clone)]
pub(crate) struct StoreRig {
    pub(crate) backend: Arc<dyn Admin>,
    pub(crate) stores: Stores,
    pub(crate) clock: ManualClock,
    pub(crate) scope: Scope,
    rng: Arc<SeededRng>,
    keyring: Keyring,
}

impl StoreRig {
    pub(crate) fn new(backend: Arc<dyn Admin>, seed: u64) -> Self {
        let backend: Arc<dyn Admin> = Arc::new(Yielding::new(backend, seed));
        let begin = Timestamp::from_millis(1_800_000_000_000).expect("a time of this century");
        let clock = ManualClock::at(begin);
        let rng = Arc::new(SeededRng::new(seed));
        let keyring = Keyring::generate(rng.as_ref(), begin);
        let stores = Stores::for_tests(Arc::clone(&backend));
        let scope = Scope::tenant("acme").expect("a good name");
        Self { backend, stores, clock, scope, rng, keyring }.on(None)
    }

    fn on(mut self, event: Option<(Kind, Event)>) -> Self {
        let backend = Meanwhile::new(Arc::clone(&self.backend), event);
        self.stores = self.stores_on(Arc::new(backend));
        self
    }

    pub(crate) fn stores_on(&self, backend: Arc<dyn Admin>) -> Stores {
        let builder =
            Stores::builder_for_tests(backend).clock(self.clock.clone()).keyring(self.keyring.clone());
        builder.rng(Arc::clone(&self.rng)).build()
    }

    /// Stores on the same engine with a time of their own.
    pub(crate) fn stores_with_time(&self, time: Arc<TimeSource>) -> Stores {
        let backend = Arc::new(Meanwhile::new(Arc::clone(&self.backend), None));
        let builder = Stores::builder_for_tests(backend).time(time).keyring(self.keyring.clone());
        builder.rng(Arc::clone(&self.rng)).build()
    }

    /// Same store, through a node whose writes fail on demand.
    pub(crate) fn faulty(&self) -> (Self, Arc<Faulty<impl Admin + use<>>>) {
        let faulty = Arc::new(Faulty::new(Meanwhile::new(Arc::clone(&self.backend), None)));
        let stores = self.stores_on(Arc::clone(&faulty) as Arc<dyn Admin>);
        (Self { stores, ..self.clone() }, faulty)
    }

    /// Same store; `event` happens once, right after a record of that kind is read.
    pub(crate) fn meanwhile(&self, kind: Kind, event: impl Future<Output = ()> + Send + 'static) -> Self {
        self.clone().on(Some((kind, Box::pin(event))))
    }

    /// Keyring of the node.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Same store, through a node with this keyring.
    pub(crate) fn with_keyring(&self, keyring: Keyring) -> Self {
        Self { keyring, ..self.clone() }.on(None)
    }

    /// Same store, in another scope.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { scope: Scope::tenant("other").expect("a good name"), ..self.clone() }
    }

    /// Advances the clock by `seconds`.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Advances the clock by `millis` milliseconds.
    pub(crate) fn pass_millis(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Same store, with a profile that takes every old refresh token for a theft after proof of receipt.
    pub(crate) fn strict(&self) -> Self {
        let backend = Arc::new(Meanwhile::new(Arc::clone(&self.backend), None));
        let builder =
            Stores::builder_for_tests(backend).clock(self.clock.clone()).keyring(self.keyring.clone());
        let profile = Profile::oauth().with_strict(true);
        let stores = builder.rng(Arc::clone(&self.rng)).profile(profile).require_pkce(true).build();
        Self { stores, ..self.clone() }
    }

    /// Sets the clock to `before` milliseconds before `time`.
    pub(crate) fn go_to(&self, time: Timestamp, before: u64) {
        self.clock.set(Timestamp::from_millis(time.as_millis() - before).expect("a time of this century"));
    }

    /// Sweeps completely at the clock's time.
    pub(crate) async fn sweep(&self) -> Swept {
        let budget = Budget::everything(Kind::ALL);
        self.backend.sweep_all(self.clock.now(), &budget).await.expect("sweep")
    }

    /// Every live record of every kind.
    pub(crate) async fn contents(&self) -> Vec<(Key, Record)> {
        let mut contents = Vec::new();
        for &kind in Kind::ALL {
            let records = self.backend.scan_all(&Prefix::kind_wide(kind), self.clock.now()).await;
            contents.extend(records.expect("scan"));
        }
        // A scan over all partitions has no defined order.
        contents.sort_by(|(one, _), (other, _)| one.cmp(other));
        contents
    }

    /// Total size of all keys and values.
    pub(crate) async fn stored_bytes(&self) -> usize {
        let contents = self.contents().await;
        contents.iter().map(|(key, record)| key.as_bytes().len() + record.value.len()).sum()
    }

    /// Runs `count` tasks that begin together, and returns their answers.
    pub(crate) async fn together<T, F>(&self, count: usize, task: impl Fn(Self, usize) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        crate::rig::together(count, |index| task(self.clone(), index)).await
    }
}

pub(crate) fn secs(seconds: i64) -> Ttl {
    Ttl::from_secs(seconds).expect("a good TTL")
}
