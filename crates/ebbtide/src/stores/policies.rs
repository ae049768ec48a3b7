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

use std::convert::Infallible;

use minicbor::{Decode, Encode};

use super::Stores;
use super::registry::{Store, default_ttl};
use super::shared::update::Step;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::{Ttl, TtlPolicies, TtlPolicy};
use crate::model::write::Write;
use crate::stores::audit::{Action, AuditContext, Note};
use crate::timekeeping::Now;

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
    /// Scope that it applies to, with all that it covers.
    pub scope: Scope,
    /// Policy.
    pub policy: TtlPolicy,
}

#[derive(Encode, Decode)]
struct PolicyRecord {
    #[n(0)]
    default_millis: Option<u64>,
    #[n(1)]
    min_millis: u64,
    #[n(2)]
    max_millis: u64,
    #[n(3)]
    enforce: bool,
}

impl Store for Policies {
    const KINDS: &'static [Kind] = &[Kind::Policy];
    type Question = Infallible;
}

impl Policies {
    pub(super) fn new(stores: Stores, caller: Scope) -> Self {
        Self { stores, caller }
    }

    /// Sets the policy of a kind in a scope and all that it covers, and appends to the audit log of that scope.
    /// Returns `Invalid`, and writes nothing, for a policy that contradicts itself or refuses the default of its
    /// store.
    pub async fn set(
        &self,
        kind: Kind,
        scope: &Scope,
        policy: TtlPolicy,
        context: &AuditContext,
    ) -> Result<Option<TtlPolicy>> {
        self.change(kind, scope, Some(policy), context).await
    }

    /// Removes the stored policy of exactly that kind and scope, and returns it.
    pub async fn unset(
        &self,
        kind: Kind,
        scope: &Scope,
        context: &AuditContext,
    ) -> Result<Option<TtlPolicy>> {
        self.change(kind, scope, None, context).await
    }

    /// Lists the stored policies of the scopes that the caller covers.
    pub async fn list(&self) -> Result<Vec<StoredPolicy>> {
        let all = self.stored(self.stores.now()?).await?;
        Ok(all.into_iter().filter(|stored| self.caller.covers(&stored.scope)).collect())
    }

    /// Reads the stored policies, and applies them from now on. If the set cannot be read or is invalid, that is an
    /// error, and the previous set stays in force.
    pub async fn reload(&self) -> Result<()> {
        let set = self.joined(self.stored(self.stores.now()?).await?)?;
        self.stores.take_over(set);
        Ok(())
    }

    async fn change(
        &self,
        kind: Kind,
        scope: &Scope,
        policy: Option<TtlPolicy>,
        context: &AuditContext,
    ) -> Result<Option<TtlPolicy>> {
        self.caller.require(scope)?;
        let key = Key::new(Kind::Policy, scope, &["policy".into()], &[kind.name().into()])?;
        let key = &key;
        let change = self.stores.retry(|now| async move {
            let mut all = self.stored(now).await?;
            all.retain(|stored| stored.kind != kind || stored.scope != *scope);
            all.extend(policy.map(|policy| StoredPolicy { kind, scope: scope.clone(), policy }));
            let set = self.joined(all)?;
            let present = self.stores.backend().get(key, now).await?;
            let before = present.as_ref().map(decode).transpose()?;
            let (key, expected) = (key.clone(), present.map(|record| record.version));
            let write = match (policy, expected) {
                (None, None) => return Ok(Step::answer(None)),
                (None, Some(expected)) => Write::Remove { key, expected },
                (Some(policy), Some(expected)) => {
                    Write::Replace { key, expected, record: self.record(&policy) }
                }
                (Some(policy), None) => Write::Insert { key, record: self.record(&policy) },
            };
            let detail = format!("from {} to {}", describe(before.as_ref()), describe(policy.as_ref()));
            let note = Note::of(Action::Policy, context)?.about(kind, Vec::new()).with_detail(detail);
            Ok(Step::write(vec![write], Some((before, set))).audited(scope, note))
        });
        let Some((before, set)) = change.await? else { return Ok(None) };
        self.stores.take_over(set);
        Ok(before)
    }

    fn record(&self, policy: &TtlPolicy) -> Record {
        let millis = |ttl: Ttl| u64::try_from(ttl.duration().as_millis()).unwrap_or(u64::MAX);
        let stored = PolicyRecord {
            default_millis: policy.default.map(millis),
            min_millis: millis(policy.min),
            max_millis: millis(policy.max),
            enforce: policy.enforce,
        };
        self.stores.record(codec::encode(&stored), Timestamp::NEVER)
    }

    async fn stored(&self, now: Now) -> Result<Vec<StoredPolicy>> {
        let records = self.stores.backend().scan_all(&Prefix::kind_wide(Kind::Policy), now).await?;
        let read = |(key, record): &(Key, Record)| {
            let sort = key.sort();
            let [Part::Text(kind)] = sort.as_slice() else {
                return Err(Error::corrupt("the key of a policy is not a kind"));
            };
            Ok(StoredPolicy { kind: kind.parse()?, scope: key.scope(), policy: decode(record)? })
        };
        records.iter().map(read).collect()
    }

    /// Configured policies, with the stored ones in front of them.
    fn joined(&self, stored: Vec<StoredPolicy>) -> Result<TtlPolicies> {
        let mut set = self.stores.configured_policies().clone();
        for StoredPolicy { kind, scope, policy } in stored {
            check_default(kind, &policy)?;
            set.set(kind, scope, policy)?;
        }
        Ok(set)
    }
}

/// Refuses a policy that would refuse every call without a TTL.
fn check_default(kind: Kind, policy: &TtlPolicy) -> Result<()> {
    let Some(own) = default_ttl(kind) else { return Ok(()) };
    if policy.default.is_none() && policy.enforce && (own < policy.min || own > policy.max) {
        return Err(Error::invalid(format!(
            "a policy for {kind} has a default TTL, since the {own} of its store are not within {} to {}",
            policy.min, policy.max
        )));
    }
    Ok(())
}

fn decode(record: &Record) -> Result<TtlPolicy> {
    let stored: PolicyRecord = codec::decode(&record.value)?;
    let ttl = |millis| {
        Ttl::new(std::time::Duration::from_millis(millis))
            .map_err(|error| Error::corrupt("a stored policy has a TTL that is none").caused_by(error))
    };
    Ok(TtlPolicy {
        default: stored.default_millis.map(ttl).transpose()?,
        min: ttl(stored.min_millis)?,
        max: ttl(stored.max_millis)?,
        enforce: stored.enforce,
    })
}

fn describe(policy: Option<&TtlPolicy>) -> String {
    let Some(policy) = policy else { return "none".to_owned() };
    let default = policy.default.map_or_else(|| "no default".to_owned(), |ttl| format!("default {ttl}"));
    let enforced = if policy.enforce { "enforced" } else { "not enforced" };
    format!("{default}, {} to {}, {enforced}", policy.min, policy.max)
}
