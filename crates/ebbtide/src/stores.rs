//! The typed stores: one handle, a method for each store. A store knows nothing of engines or of HTTP.

pub mod approvals;
pub mod attributes;
pub mod extension;
pub mod listing;
pub(crate) mod lives;
pub mod policies;
pub mod relationships;
pub mod replays;
pub mod scopes;

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Mutex;

use crate::audit::{Audit, GATES};
use crate::backend::Backend;
use crate::chance::{Chance, SystemChance};
use crate::error::Result;
use crate::kind::Kind;
use crate::record::Record;
use crate::scope::Scope;
use crate::time::{Clock, SystemClock, Timestamp};
use crate::ttl::{Ttl, TtlPolicies, TtlPolicy};

use approvals::Approvals;
use attributes::Attributes;
use policies::Policies;
use relationships::Relationships;
use replays::Replays;
use scopes::Scopes;

/// Every store on one backend. Cheap to clone.
#[derive(Clone)]
pub struct Stores(Arc<Shared>);

struct Shared {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    /// As the stores were built with.
    configured: TtlPolicies,
    /// With those that are stored in front of them, as they were read last.
    policies: RwLock<Arc<TtlPolicies>>,
    audit_gates: [Mutex<()>; GATES],
}

impl Stores {
    /// The stores on `backend`, with the system's clock and chance.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::builder(backend).build()
    }

    /// The stores on `backend`, with a clock, chance and policies of your own.
    pub fn builder(backend: Arc<dyn Backend>) -> Builder {
        Builder(Shared {
            backend,
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
            configured: TtlPolicies::default(),
            policies: RwLock::default(),
            audit_gates: Default::default(),
        })
    }

    /// What was seen, and must not be seen again.
    #[must_use]
    pub fn replays(&self, scope: &Scope) -> Replays {
        Replays::new(self.clone(), scope.clone())
    }

    /// Who may do what.
    #[must_use]
    pub fn approvals(&self, scope: &Scope) -> Approvals {
        Approvals::new(self.clone(), scope.clone())
    }

    /// Who is what to whom.
    #[must_use]
    pub fn relationships(&self, scope: &Scope) -> Relationships {
        Relationships::new(self.clone(), scope.clone())
    }

    /// JSON attributes in buckets.
    #[must_use]
    pub fn attributes(&self, scope: &Scope) -> Attributes {
        Attributes::new(self.clone(), scope.clone())
    }

    /// The policies that a caller of that scope sees and changes.
    #[must_use]
    pub fn policies(&self, caller: &Scope) -> Policies {
        Policies::new(self.clone(), caller.clone())
    }

    /// Scopes as an operator sees them; a caller of that scope, those that it covers.
    #[must_use]
    pub fn scopes(&self, caller: &Scope) -> Scopes {
        Scopes::new(self.clone(), caller.clone())
    }

    /// Who changed what, and why.
    #[must_use]
    pub fn audit(&self, scope: &Scope) -> Audit {
        Audit::new(self.clone(), scope.clone())
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.0.backend.as_ref()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(crate) fn record(&self, value: impl Into<bytes::Bytes>, expires_at: Timestamp) -> Record {
        Record::new(value, expires_at, self.0.chance.as_ref())
    }

    /// The life of a record: what was asked for, else what the policy says, else the store's own default; within
    /// the policy's bounds where one is set.
    pub(crate) fn ttl(&self, kind: Kind, scope: &Scope, asked: Option<Ttl>, default: Ttl) -> Result<Ttl> {
        match self.policy(kind, scope) {
            Some(policy) => Ok(policy.apply(asked.or(policy.default).or(Some(default)))?.unwrap_or(default)),
            None => Ok(asked.unwrap_or(default)),
        }
    }

    /// When a record that may live for ever ends: by what was asked for, else what the policy says, else never.
    pub(crate) fn expiry(
        &self,
        kind: Kind,
        scope: &Scope,
        asked: Option<Ttl>,
        now: Timestamp,
    ) -> Result<Timestamp> {
        match self.policy(kind, scope) {
            Some(policy) => policy.expires_at(asked, now),
            None => asked.map_or(Ok(Timestamp::NEVER), |ttl| ttl.expires_at(now)),
        }
    }

    /// The latest end of a life that began at `began_at`: its own cap, and the longest that an enforced policy
    /// allows.
    pub(crate) fn cap(
        &self,
        kind: Kind,
        scope: &Scope,
        began_at: Timestamp,
        own: Option<Timestamp>,
    ) -> Result<Timestamp> {
        let own = own.unwrap_or(Timestamp::MAX);
        match self.policy(kind, scope).filter(|policy| policy.enforce) {
            Some(policy) => Ok(own.min(policy.max.expires_at(began_at)?)),
            None => Ok(own),
        }
    }

    fn policy(&self, kind: Kind, scope: &Scope) -> Option<TtlPolicy> {
        self.0.policies.read().unwrap_or_else(PoisonError::into_inner).of(kind, scope)
    }

    fn configured_policies(&self) -> &TtlPolicies {
        &self.0.configured
    }

    fn take_over(&self, policies: TtlPolicies) {
        *self.0.policies.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policies);
    }

    pub(crate) fn audit_gates(&self) -> &[Mutex<()>; GATES] {
        &self.0.audit_gates
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stores({})", self.backend().engine())
    }
}

/// Builds [`Stores`].
#[must_use]
pub struct Builder(Shared);

impl Builder {
    /// Takes the time from `clock`.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.0.clock = Arc::new(clock);
        self
    }

    /// Takes random bytes from `chance`.
    pub fn chance(mut self, chance: impl Chance) -> Self {
        self.0.chance = Arc::new(chance);
        self
    }

    /// Bounds the lives of records by `policies`.
    pub fn policies(mut self, policies: TtlPolicies) -> Self {
        self.0.policies = RwLock::new(Arc::new(policies.clone()));
        self.0.configured = policies;
        self
    }

    /// The stores.
    #[must_use]
    pub fn build(self) -> Stores {
        Stores(Arc::new(self.0))
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Builder(…)")
    }
}
