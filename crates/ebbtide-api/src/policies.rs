//! TTL policies.

use ebbtide::stores::policies::{InForce, Simulation, StoredPolicy};
use ebbtide::{Kind, PolicyTarget, Result, Scope, Ttl, TtlPolicy};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::answers::{Listed, millis, seconds};

/// Policy to set or to simulate.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// Kind of record, such as `approvals`.
    #[schema(example = "approvals")]
    pub kind: String,
    /// Collection that it applies to, of `records`, `counters` or `leases`; without it, every record of the kind.
    #[schema(example = "redis")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Scope that it applies to, with all that it covers; the scope of the request by default.
    #[schema(example = "tenant:acme")]
    pub scope: Option<String>,
    /// Bounds to begin with: `default`, `temporary`, `short_lived` or `long_lived`.
    #[schema(example = "short_lived")]
    pub preset: Option<String>,
    /// TTL of a record that is written without one.
    #[serde(rename(serialize = "default_ttl_ms"), serialize_with = "in_millis")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub default_ttl_seconds: Option<Ttl>,
    #[serde(rename(serialize = "min_ttl_ms"), serialize_with = "in_millis")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub min_ttl_seconds: Option<Ttl>,
    #[serde(rename(serialize = "max_ttl_ms"), serialize_with = "in_millis")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub max_ttl_seconds: Option<Ttl>,
    /// If false, a TTL out of bounds is accepted and logged.
    pub enforce_ttl: Option<bool>,
    /// Stored version that is required; zero if there must be none.
    pub version: Option<u64>,
    /// Name that the caller acts for, in the audit log.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    pub actor: Option<String>,
    pub reason: Option<String>,
}

impl PolicyRequest {
    /// Records that it applies to.
    pub fn target(&self) -> Result<PolicyTarget<'_>> {
        let target = PolicyTarget::new(self.kind.parse()?, self.collection.as_deref());
        target.check()?;
        Ok(target)
    }

    /// Policy: the preset, with the members that are given in place of its own.
    pub fn policy(&self) -> Result<TtlPolicy> {
        let mut policy =
            self.preset.as_deref().map_or_else(|| Ok(TtlPolicy::default()), TtlPolicy::preset)?;
        policy.default = self.default_ttl_seconds.or(policy.default);
        policy.min = self.min_ttl_seconds.unwrap_or(policy.min);
        policy.max = self.max_ttl_seconds.unwrap_or(policy.max);
        policy.enforce = self.enforce_ttl.unwrap_or(policy.enforce);
        policy.check()?;
        Ok(policy)
    }
}

#[allow(clippy::ref_option, reason = "serde hands in a reference to the member")]
fn in_millis<S: Serializer>(ttl: &Option<Ttl>, serializer: S) -> Result<S::Ok, S::Error> {
    ttl.map(|ttl| u64::try_from(ttl.duration().as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}

/// Policy of a kind or a collection, and a scope.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyAnswer {
    pub kind: String,
    /// Collection that it is set for; absent for every record of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Scope that it is set for.
    pub scope: String,
    pub default_ttl_seconds: Option<u64>,
    pub min_ttl_seconds: u64,
    pub max_ttl_seconds: u64,
    pub enforce_ttl: bool,
    /// `stored`, or `configured` for one of the node's configuration and for the built-in bounds.
    #[schema(example = "stored")]
    pub source: String,
    /// Number of changes; null unless it is stored.
    pub version: Option<u64>,
    pub changed_at: Option<u64>,
}

impl PolicyAnswer {
    fn new(
        target: PolicyTarget<'_>,
        scope: &Scope,
        policy: &TtlPolicy,
        stored: Option<&StoredPolicy>,
    ) -> Self {
        let seconds = |ttl: Ttl| seconds(ttl.duration());
        Self {
            kind: target.kind.to_string(),
            collection: target.collection.map(str::to_owned),
            scope: scope.to_string(),
            default_ttl_seconds: policy.default.map(seconds),
            min_ttl_seconds: seconds(policy.min),
            max_ttl_seconds: seconds(policy.max),
            enforce_ttl: policy.enforce,
            source: if stored.is_some() { "stored" } else { "configured" }.to_owned(),
            version: stored.map(|stored| stored.version),
            changed_at: stored.and_then(|stored| millis(stored.changed_at)),
        }
    }

    /// Policy that is in force for a kind.
    #[must_use]
    pub fn in_force(kind: Kind, found: &InForce) -> Self {
        let target = PolicyTarget::new(kind, found.collection.as_deref());
        Self::new(target, &found.scope, &found.policy, found.stored.as_ref())
    }
}

impl From<&StoredPolicy> for PolicyAnswer {
    fn from(stored: &StoredPolicy) -> Self {
        Self::new(stored.target(), &stored.scope, &stored.policy, Some(stored))
    }
}

/// Policy in force for one kind and scope, or the stored policies.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PoliciesAnswer {
    One(Box<PolicyAnswer>),
    Page(Listed<PolicyAnswer>),
}

/// Effect of a policy on the live records that it would apply to.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SimulationAnswer {
    pub live: u64,
    /// Live records that the policy would have refused.
    pub refused: u64,
    pub too_short: u64,
    pub too_long: u64,
    /// Records that do not expire.
    pub without_end: u64,
    /// False if the kind does not keep the TTL that a record began with: then more may have been refused.
    pub exact: bool,
}

impl From<Simulation> for SimulationAnswer {
    fn from(found: Simulation) -> Self {
        let Simulation { live, refused, too_short, too_long, without_end, exact, .. } = found;
        Self { live, refused, too_short, too_long, without_end, exact }
    }
}
