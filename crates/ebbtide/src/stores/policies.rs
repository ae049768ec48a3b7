//! TTL policies that are stored, so that they can be changed while a server runs.
//!
//! A stored policy takes precedence over a configured one. A node reads the policies when [`Policies::reload`] is
//! called, at its start and periodically, and applies the set that it read last. A change through a node applies
//! there at once.
//!
//! ```
//! use ebbtide::stores::approvals::Approval;
//! use ebbtide::stores::audit::AuditContext;
//! use ebbtide::{Ebbtide, Kind, Ttl, TtlPolicy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! let context = AuditContext::new("admin", "approvals last a week at most")?;
//! acme.policies().set(Kind::Approval, acme.scope(), TtlPolicy::short_lived(), &context).await?;
//!
//! let month = Approval::new("alice", "doc", "GET", "admin").ttl(Ttl::from_secs(30 * 24 * 3600)?);
//! assert!(acme.approvals().grant(&month).await.is_err());
//! # Ok(())
//! # }
//! ```

mod stored;

use std::convert::Infallible;
use std::time::Duration;

use super::Stores;
use super::registry::{Store, default_ttl, kinds_with};
use super::shared::paging::Pages;
use super::shared::update::Step;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::model::ttl::{FoundPolicy, PolicyTarget, Ttl, TtlPolicies, TtlPolicy};
use crate::model::write::{Batch, Write};
use crate::stores::audit::{Action, AuditContext, Note};
use crate::timekeeping::Now;
use stored::{PolicyRecord, key, place};

/// Policies that a caller of one scope reads and changes: those of the scopes that it covers.
#[derive(Debug, Clone)]
pub struct Policies {
    stores: Stores,
    caller: Scope,
}

/// Stored policy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredPolicy {
    /// Kind of record that it applies to.
    pub kind: Kind,
    /// Collection that it applies to; none for every record of the kind.
    pub collection: Option<String>,
    /// Scope that it applies to, with all that it covers.
    pub scope: Scope,
    /// Policy.
    pub policy: TtlPolicy,
    /// Number of the change that made it: 1 when it was first set, and one more with each change.
    pub version: u64,
    /// Time of that change.
    pub changed_at: Timestamp,
}

impl StoredPolicy {
    /// Records that it applies to.
    #[must_use]
    pub fn target(&self) -> PolicyTarget<'_> {
        PolicyTarget::new(self.kind, self.collection.as_deref())
    }

    fn is_of(&self, target: PolicyTarget<'_>, scope: &Scope) -> bool {
        self.target() == target && self.scope == *scope
    }
}

/// Policy in force for a kind or a collection, and a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InForce {
    /// Scope that it is set for: the one that was asked for, or one that covers it.
    pub scope: Scope,
    /// Collection that it is set for; none if it is set for every record of the kind.
    pub collection: Option<String>,
    /// Policy.
    pub policy: TtlPolicy,
    /// Stored policy that it comes from; none if it is configured or built in.
    pub stored: Option<StoredPolicy>,
}

/// Answer to a change of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a conflict has changed nothing"]
#[non_exhaustive]
pub enum PolicyOutcome {
    /// The policy is set, and in force on this node.
    Set(StoredPolicy),
    /// The stored policy has another version than the expected one.
    Conflict {
        /// Version that is stored; zero if there is none.
        version: u64,
    },
}

/// Effect of a policy on the live records that it would apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Simulation {
    /// Live records that the policy would apply to.
    pub live: u64,
    /// Records that it would have refused.
    pub refused: u64,
    /// Records whose TTL is shorter than its shortest.
    pub too_short: u64,
    /// Records whose TTL is longer than its longest.
    pub too_long: u64,
    /// Records without an end. The policy's default would have given them one, where it has one.
    pub without_end: u64,
    /// True if the records keep the TTL that they began with. Otherwise it is the time that is left to them, and more
    /// may have been refused.
    pub exact: bool,
}

impl Store for Policies {
    const KINDS: &'static [Kind] = &[Kind::Policy];
    type Question = Infallible;
}

impl Policies {
    pub(super) fn new(stores: Stores, caller: Scope) -> Self {
        Self { stores, caller }
    }

    /// Sets the policy of a kind, or of one collection of records, in a scope and all that it covers, and appends to the
    /// audit log of that scope. Returns the previous policy. Returns `Invalid`, and writes nothing, for a policy that
    /// contradicts itself or refuses the default of its store.
    pub async fn set<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        policy: TtlPolicy,
        context: &AuditContext,
    ) -> Result<Option<TtlPolicy>> {
        let change = self.change(target.into(), scope, Some(policy), None, context).await?;
        Ok(change.ok().and_then(|change| change.before))
    }

    /// Sets a policy as [`set`](Self::set) does, if the stored version is `expected`; zero if there is none.
    pub async fn set_version<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        policy: TtlPolicy,
        expected: Option<u64>,
        context: &AuditContext,
    ) -> Result<PolicyOutcome> {
        let target = target.into();
        Ok(match self.change(target, scope, Some(policy), expected, context).await? {
            Ok(Change { version, changed_at, .. }) => {
                PolicyOutcome::Set(stored_policy(target, scope, policy, version, changed_at))
            }
            Err(version) => PolicyOutcome::Conflict { version },
        })
    }

    /// Removes the stored policy of exactly that kind, collection and scope, and returns it.
    pub async fn unset<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        context: &AuditContext,
    ) -> Result<Option<TtlPolicy>> {
        let change = self.change(target.into(), scope, None, None, context).await?;
        Ok(change.ok().and_then(|change| change.before))
    }

    /// Lists the stored policies of the scopes that the caller covers.
    pub async fn list(&self) -> Result<Vec<StoredPolicy>> {
        let all = self.stored(self.stores.now()?).await?;
        Ok(all.into_iter().filter(|stored| self.caller.covers(&stored.scope)).collect())
    }

    /// Returns the policy that is in force for a kind, or for one collection, and a scope, if there is one.
    pub async fn in_force<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
    ) -> Result<Option<InForce>> {
        let target = target.into();
        target.check()?;
        self.caller.require(scope)?;
        let all = self.stored(self.stores.now()?).await?;
        let Some(found) = self.joined(all.clone())?.found(target, scope) else { return Ok(None) };
        let FoundPolicy { scope, collection, policy } = found;
        let set_for = PolicyTarget::new(target.kind, collection.as_deref());
        let stored = all.into_iter().find(|stored| stored.is_of(set_for, &scope));
        Ok(Some(InForce { scope, collection, policy, stored }))
    }

    /// Compares the live records that a policy would apply to with its bounds, and changes nothing. It reads every
    /// record of the kind in the scope and below it.
    pub async fn simulate<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        policy: TtlPolicy,
    ) -> Result<Simulation> {
        let target = target.into();
        let kind = target.kind;
        self.caller.require(scope)?;
        let now = self.stores.now()?;
        let mut all = self.stored(now).await?;
        all.retain(|stored| !stored.is_of(target, scope));
        let mut set = self.joined(all)?;
        check(target, &policy)?;
        set.set(target, scope.clone(), policy)?;
        let prefix = Prefix::reach(kind, &Reach::Below(scope.clone()))?;
        let mut pages = Pages::new(&self.stores, &prefix, 500).at(now);
        let mut found = Simulation { exact: true, ..Simulation::default() };
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let parts = key.partition();
                let applies = set.found(PolicyTarget::new(kind, collection_of(kind, &parts)), &key.scope());
                if applies
                    .is_some_and(|of| of.scope == *scope && of.collection.as_deref() == target.collection)
                {
                    found.add(&policy, began_with(kind, record)?, record, now.latest());
                }
            }
        }
        Ok(found)
    }

    /// Reads the stored policies, and applies them from now on. If the set cannot be read or is invalid, that is an
    /// error, and the previous set stays in force.
    pub async fn reload(&self) -> Result<()> {
        // Policies never expire, so any time will do: they are read also while the clock is in doubt.
        let set = self.joined(self.stored(Now::exact(Timestamp::ZERO)).await?)?;
        self.stores.take_over(set);
        Ok(())
    }

    /// Removes the stored policies of scopes that are deleted, and returns their number.
    pub(crate) async fn forget(&self, reach: &Reach) -> Result<u64> {
        let now = self.stores.now()?;
        let gone: Vec<Write> = self
            .stored(now)
            .await?
            .iter()
            .filter(|stored| reach.contains(&stored.scope))
            .map(|stored| Ok(Write::Delete { key: key(stored.target(), &stored.scope)? }))
            .collect::<Result<_>>()?;
        for part in gone.chunks(Batch::MAX_WRITES) {
            // A delete has no condition that could be refused.
            let _ = self.stores.backend().commit(Batch::new(part.to_vec())?, now).await?;
        }
        self.reload().await?;
        Ok(gone.len() as u64)
    }

    /// Changes a policy. Returns the stored version if it is not the expected one.
    async fn change(
        &self,
        target: PolicyTarget<'_>,
        scope: &Scope,
        policy: Option<TtlPolicy>,
        wanted: Option<u64>,
        context: &AuditContext,
    ) -> Result<std::result::Result<Change, u64>> {
        self.caller.require(scope)?;
        let key = key(target, scope)?;
        let key = &key;
        let change = self.stores.retry(|now| async move {
            let mut all = self.stored(now).await?;
            all.retain(|stored| !stored.is_of(target, scope));
            let present = self.stores.backend().get(key, now).await?;
            let before = present.as_ref().map(PolicyRecord::decode).transpose()?;
            let version = before.as_ref().map_or(0, |before| before.version);
            if wanted.is_some_and(|wanted| wanted != version) {
                return Ok(Step::answer(Err(version)));
            }
            let before = before.map(|before| before.policy()).transpose()?;
            let (changed_at, version) = (now.latest(), version + 1);
            all.extend(policy.map(|policy| stored_policy(target, scope, policy, version, changed_at)));
            let set = self.joined(all)?;
            let (key, expected) = (key.clone(), present.map(|record| record.version));
            let record = |policy: &TtlPolicy| self.record(policy, version, changed_at);
            let write = match (policy, expected) {
                (None, None) => None,
                (None, Some(expected)) => Some(Write::Remove { key, expected }),
                (Some(policy), Some(expected)) => {
                    Some(Write::Replace { key, expected, record: record(&policy) })
                }
                (Some(policy), None) => Some(Write::Insert { key, record: record(&policy) }),
            };
            let Some(write) = write else {
                return Ok(Step::answer(Ok((Change { before: None, version: 0, changed_at }, None))));
            };
            let detail = format!("from {} to {}", describe(before.as_ref()), describe(policy.as_ref()));
            let about = target.collection.map(str::to_owned).into_iter().collect();
            let note = Note::of(Action::Policy, context)?.about(target.kind, about).with_detail(detail);
            let answer = Ok((Change { before, version, changed_at }, Some(set)));
            Ok(Step::write(vec![write], answer).audited(scope, note))
        });
        Ok(change.await?.map(|(change, set)| {
            if let Some(set) = set {
                self.stores.take_over(set);
            }
            change
        }))
    }

    fn record(&self, policy: &TtlPolicy, version: u64, changed_at: Timestamp) -> Record {
        self.stores.record(PolicyRecord::new(policy, version, changed_at).encode(), Timestamp::NEVER)
    }

    /// Reads every stored policy: one partition, whatever their scopes.
    async fn stored(&self, now: Now) -> Result<Vec<StoredPolicy>> {
        let records = self.stores.backend().scan_all(&stored::partition()?, now).await?;
        let read = |(key, record): &(Key, Record)| {
            let (kind, collection, scope) = place(key)?;
            let record = PolicyRecord::decode(record)?;
            let (version, changed_at) = (record.version, Timestamp::from_stored(record.changed_at)?);
            Ok(StoredPolicy { kind, collection, scope, policy: record.policy()?, version, changed_at })
        };
        records.iter().map(read).collect()
    }

    /// Configured policies, with the stored ones in front of them.
    fn joined(&self, stored: Vec<StoredPolicy>) -> Result<TtlPolicies> {
        let mut set = self.stores.configured_policies().clone();
        for stored in stored {
            check(stored.target(), &stored.policy)?;
            set.set(stored.target(), stored.scope.clone(), stored.policy)?;
        }
        Ok(set)
    }
}

fn stored_policy(
    target: PolicyTarget<'_>,
    scope: &Scope,
    policy: TtlPolicy,
    version: u64,
    changed_at: Timestamp,
) -> StoredPolicy {
    let collection = target.collection.map(str::to_owned);
    StoredPolicy { kind: target.kind, collection, scope: scope.clone(), policy, version, changed_at }
}

/// Collection of a record with this partition key, if its kind has collections.
fn collection_of<'a>(kind: Kind, partition: &'a [Part<'_>]) -> Option<&'a str> {
    match partition.first() {
        Some(Part::Text(collection)) if PolicyTarget::COLLECTED.contains(&kind) => Some(collection),
        _ => None,
    }
}

/// Change of a policy.
struct Change {
    before: Option<TtlPolicy>,
    version: u64,
    changed_at: Timestamp,
}

impl Simulation {
    fn add(&mut self, policy: &TtlPolicy, began_with: Option<Duration>, record: &Record, now: Timestamp) {
        self.live += 1;
        if record.expires_at.is_never() {
            self.without_end += 1;
            return;
        }
        self.exact &= began_with.is_some();
        let ttl = began_with.unwrap_or_else(|| record.expires_at.since(now));
        let Ok(ttl) = Ttl::new(ttl.max(Duration::from_millis(1))) else { return };
        // The time that is left to a record says nothing about a shortest TTL.
        let (short, long) = (ttl < policy.min && began_with.is_some(), ttl > policy.max);
        self.too_short += u64::from(short);
        self.too_long += u64::from(long);
        self.refused += u64::from(policy.enforce && (short || long));
    }
}

/// TTL that a record began with, where its kind keeps it.
fn began_with(kind: Kind, record: &Record) -> Result<Option<Duration>> {
    let lifetime = match kind {
        Kind::Approval | Kind::Relationship => super::approvals::lifetime_of(record)?,
        Kind::Attribute => super::attributes::lifetime_of(record)?,
        _ => return Ok(None),
    };
    Ok(lifetime.ttl(record.expires_at))
}

/// Refuses a policy for a kind that has no TTL of its own, and one that would refuse every call without a TTL.
fn check(target: PolicyTarget<'_>, policy: &TtlPolicy) -> Result<()> {
    let kind = target.kind;
    if is_beside(kind) || matches!(kind, Kind::Owner | Kind::Policy | Kind::System) || kind.is_probe() {
        return Err(
            Error::invalid(format!("records of the kind {kind} have no TTL of their own")).about("kind")
        );
    }
    target.check()?;
    policy.check()?;
    check_default(kind, policy)
}

/// Returns whether records of this kind are only written beside those of another.
fn is_beside(kind: Kind) -> bool {
    let beside = |other: &Kind| *other != kind && kinds_with(*other)[1..].contains(&kind);
    // Counters and leases are of the store of records, and have TTLs of their own.
    !PolicyTarget::COLLECTED.contains(&kind) && Kind::ALL.iter().any(beside)
}

/// Refuses a policy that would refuse every call without a TTL.
fn check_default(kind: Kind, policy: &TtlPolicy) -> Result<()> {
    let own = if kind == Kind::Lease { Some(super::records::LEASE_TTL) } else { default_ttl(kind) };
    let Some(own) = own else { return Ok(()) };
    if policy.default.is_none() && policy.enforce && (own < policy.min || own > policy.max) {
        return Err(Error::invalid(format!(
            "a policy for {kind} has a default TTL, since the {own} of its store are not within {} to {}",
            policy.min, policy.max
        ))
        .about("default_ttl_seconds"));
    }
    Ok(())
}

fn describe(policy: Option<&TtlPolicy>) -> String {
    let Some(policy) = policy else { return "none".to_owned() };
    let default = policy.default.map_or_else(|| "no default".to_owned(), |ttl| format!("default {ttl}"));
    let enforced = if policy.enforce { "enforced" } else { "not enforced" };
    format!("{default}, {} to {}, {enforced}", policy.min, policy.max)
}
