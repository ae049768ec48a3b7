//! Lifetimes of records, and the policies that bound them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;

/// Time to live of a record: at least a millisecond, at most a hundred years.
///
/// Deserializes from whole seconds, or from a newtype of whole milliseconds: a deserializer that knows the unit of a
/// member by its name, such as `ttl_ms`, presents it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// Maximum: a hundred years of 365 days.
    pub const MAX: Self = Self(Duration::from_secs(100 * 365 * 24 * 3600));

    /// Creates a TTL from seconds. Returns `Invalid` for zero, a negative number or more than [`Ttl::MAX`].
    pub fn from_secs(seconds: i64) -> Result<Self> {
        let duration = u64::try_from(seconds).map(Duration::from_secs);
        duration.map_or_else(|_| Err(out_of_bounds()), Self::new)
    }

    /// Creates a TTL. Returns `Invalid` for less than a millisecond or more than [`Ttl::MAX`].
    pub fn new(duration: Duration) -> Result<Self> {
        if duration < Duration::from_millis(1) || duration > Self::MAX.0 {
            return Err(out_of_bounds());
        }
        Ok(Self(duration))
    }

    pub(crate) const fn secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// TTL as a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// Computes the expiry of a record that is written at `now`.
    pub fn expires_at(self, now: Timestamp) -> Result<Timestamp> {
        now.checked_add(self.0)
    }
}

impl TryFrom<i64> for Ttl {
    type Error = Error;

    fn try_from(seconds: i64) -> Result<Self> {
        Self::from_secs(seconds)
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_i64(TtlVisitor)
    }
}

struct TtlVisitor;

impl<'de> Visitor<'de> for TtlVisitor {
    type Value = Ttl;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer")
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> std::result::Result<Ttl, E> {
        Ttl::from_secs(seconds).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> std::result::Result<Ttl, E> {
        Ttl::new(Duration::from_secs(seconds)).map_err(E::custom)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, millis: D) -> std::result::Result<Ttl, D::Error> {
        let millis = i64::deserialize(millis)?;
        let duration = u64::try_from(millis).map(Duration::from_millis);
        duration.map_or_else(|_| Err(out_of_bounds()), Ttl::new).map_err(de::Error::custom)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_millis() == 0 {
            write!(f, "{} s", self.0.as_secs())
        } else {
            write!(f, "{} ms", self.0.as_millis())
        }
    }
}

fn out_of_bounds() -> Error {
    Error::invalid(format!(
        "a TTL is more than zero and at most {} seconds (a hundred years)",
        Ttl::MAX.0.as_secs()
    ))
    .about("ttl_seconds")
}

/// Bounds on the TTLs of a kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TtlPolicy {
    /// TTL of a record that is written without one; `None` means that it does not expire.
    pub default: Option<Ttl>,
    /// Shortest TTL.
    pub min: Ttl,
    /// Longest TTL.
    pub max: Ttl,
    /// If true, a TTL out of bounds is refused; otherwise it is accepted and logged.
    pub enforce: bool,
}

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

impl Default for TtlPolicy {
    /// No default TTL; a minute to a year, enforced.
    fn default() -> Self {
        Self { default: None, min: Ttl::secs(60), max: Ttl::secs(365 * DAY), enforce: true }
    }
}

impl TtlPolicy {
    /// An hour by default, a minute to a day, enforced.
    #[must_use]
    pub const fn temporary() -> Self {
        Self { default: Some(Ttl::secs(HOUR)), min: Ttl::secs(60), max: Ttl::secs(DAY), enforce: true }
    }

    /// A day by default, an hour to a week, enforced.
    #[must_use]
    pub const fn short_lived() -> Self {
        Self { default: Some(Ttl::secs(DAY)), min: Ttl::secs(HOUR), max: Ttl::secs(7 * DAY), enforce: true }
    }

    /// Thirty days by default, a day to a year, enforced.
    #[must_use]
    pub const fn long_lived() -> Self {
        Self {
            default: Some(Ttl::secs(30 * DAY)),
            min: Ttl::secs(DAY),
            max: Ttl::secs(365 * DAY),
            enforce: true,
        }
    }

    /// Names of the presets.
    pub const PRESETS: [&'static str; 4] = ["default", "temporary", "short_lived", "long_lived"];

    /// Returns the preset of that name. Returns `Invalid` for a name that is not in [`PRESETS`](Self::PRESETS).
    pub fn preset(name: &str) -> Result<Self> {
        match name {
            "default" => Ok(Self::default()),
            "temporary" => Ok(Self::temporary()),
            "short_lived" => Ok(Self::short_lived()),
            "long_lived" => Ok(Self::long_lived()),
            _ => {
                Err(Error::invalid(format!("expected a preset: {}", Self::PRESETS.join(", ")))
                    .about("preset"))
            }
        }
    }

    /// Returns whether the policy refuses a record with this TTL.
    #[must_use]
    pub fn refuses(&self, ttl: Ttl) -> bool {
        self.enforce && (ttl < self.min || ttl > self.max)
    }

    /// Refuses a policy whose bounds cross, or whose default is outside of them.
    pub fn check(&self) -> Result<()> {
        if self.min > self.max {
            return Err(Error::invalid(format!(
                "the shortest TTL of a policy, {}, is more than its longest, {}",
                self.min, self.max
            ))
            .about("min_ttl_seconds"));
        }
        match self.default {
            Some(default) if default < self.min || default > self.max => Err(Error::invalid(format!(
                "the default TTL of a policy, {default}, is not within its bounds, {} to {}",
                self.min, self.max
            ))
            .about("default_ttl_seconds")),
            _ => Ok(()),
        }
    }

    /// Applies the policy to the requested TTL; `None` means that the record does not expire. A TTL out of bounds is
    /// `Invalid` if the policy is enforced, and a log line otherwise.
    pub fn apply(&self, requested: Option<Ttl>) -> Result<Option<Ttl>> {
        let Some(ttl) = requested else { return Ok(self.default) };
        if ttl < self.min || ttl > self.max {
            let message = format!("TTL out of bounds: a TTL is {} to {} here", self.min, self.max);
            if self.enforce {
                return Err(Error::invalid(message).about("ttl_seconds"));
            }
            tracing::warn!(%ttl, "{message}; the policy is not enforced");
        }
        Ok(Some(ttl))
    }
}

/// Records that a policy bounds: those of a kind, or those of one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyTarget<'a> {
    /// Kind of record.
    pub kind: Kind,
    /// Collection; none for every record of the kind.
    pub collection: Option<&'a str>,
}

impl<'a> PolicyTarget<'a> {
    /// Kinds whose records are in collections.
    pub const COLLECTED: [Kind; 3] = [Kind::Record, Kind::Counter, Kind::Lease];

    /// Longest name of a collection, in bytes.
    pub const MAX_COLLECTION_BYTES: usize = 128;

    /// Names the records of a kind, in one collection if one is given.
    #[must_use]
    pub const fn new(kind: Kind, collection: Option<&'a str>) -> Self {
        Self { kind, collection }
    }

    /// Refuses a collection of a kind that has none, and a name that no collection has.
    pub fn check(self) -> Result<()> {
        let Some(collection) = self.collection else { return Ok(()) };
        if !Self::COLLECTED.contains(&self.kind) {
            return Err(Error::invalid(format!(
                "only records, counters and leases have collections; {} have none",
                self.kind
            )));
        }
        check_collection(collection)
    }
}

impl From<Kind> for PolicyTarget<'_> {
    fn from(kind: Kind) -> Self {
        Self { kind, collection: None }
    }
}

/// Refuses a name that no collection has.
pub(crate) fn check_collection(collection: &str) -> Result<()> {
    let most = PolicyTarget::MAX_COLLECTION_BYTES;
    if collection.is_empty() || collection.len() > most || collection.chars().any(char::is_control) {
        let message = format!("the name of a collection has 1 to {most} bytes and no control characters");
        return Err(Error::invalid(message).about("collection"));
    }
    Ok(())
}

/// TTL policies per kind, scope and collection. The most specific one applies: the record's own scope, then each scope
/// that covers it, up to Global; within a scope, the policy of the record's collection before that of the kind. Without
/// one, the store's own bounds apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TtlPolicies(BTreeMap<(Kind, Scope), ScopePolicies>);

/// Policies of one kind in one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ScopePolicies {
    /// Policy of the records whose collection has none of its own.
    kind: Option<TtlPolicy>,
    collections: BTreeMap<String, TtlPolicy>,
}

/// Policy that applies to a record, and the place that it is set for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundPolicy {
    /// Scope.
    pub scope: Scope,
    /// Collection; none if it is set for every record of the kind.
    pub collection: Option<String>,
    /// Policy.
    pub policy: TtlPolicy,
}

impl TtlPolicies {
    /// Sets the policy of a kind, or of one collection of it, in a scope and all that it covers. Returns the previous
    /// one.
    pub fn set<'a>(
        &mut self,
        target: impl Into<PolicyTarget<'a>>,
        scope: Scope,
        policy: TtlPolicy,
    ) -> Result<Option<TtlPolicy>> {
        let target = target.into();
        target.check()?;
        scope.check()?;
        policy.check()?;
        let place = self.0.entry((target.kind, scope)).or_default();
        Ok(match target.collection {
            Some(collection) => place.collections.insert(collection.to_owned(), policy),
            None => place.kind.replace(policy),
        })
    }

    /// Removes the policy that was set for exactly that kind, collection and scope.
    pub fn unset<'a>(&mut self, target: impl Into<PolicyTarget<'a>>, scope: &Scope) -> Option<TtlPolicy> {
        let target = target.into();
        let place = self.0.get_mut(&(target.kind, scope.clone()))?;
        match target.collection {
            Some(collection) => place.collections.remove(collection),
            None => place.kind.take(),
        }
    }

    /// Bounds approvals and relationships to a minute to a year, enforced, where no policy of theirs is set for every
    /// scope.
    #[must_use]
    pub fn with_standard(mut self) -> Self {
        for kind in [Kind::Approval, Kind::Relationship] {
            self.0.entry((kind, Scope::Global)).or_default().kind.get_or_insert_default();
        }
        self
    }

    /// Returns the policy that applies to these records in this scope, if any.
    #[must_use]
    pub fn of<'a>(&self, target: impl Into<PolicyTarget<'a>>, scope: &Scope) -> Option<TtlPolicy> {
        self.found(target, scope).map(|found| found.policy)
    }

    /// Returns the policy that applies to these records in this scope, with the place that it is set for.
    #[must_use]
    pub fn found<'a>(&self, target: impl Into<PolicyTarget<'a>>, scope: &Scope) -> Option<FoundPolicy> {
        let target = target.into();
        if self.0.is_empty() {
            return None;
        }
        scope.ancestry().into_iter().find_map(|ancestor| {
            let key = (target.kind, ancestor);
            let place = self.0.get(&key)?;
            let own = target.collection.and_then(|collection| place.collections.get_key_value(collection));
            let (collection, policy) = match own {
                Some((collection, policy)) => (Some(collection.clone()), *policy),
                None => (None, place.kind?),
            };
            Some(FoundPolicy { scope: key.1, collection, policy })
        })
    }

    /// Every policy, by kind and scope.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyTarget<'_>, &Scope, &TtlPolicy)> {
        self.0.iter().flat_map(|((kind, scope), place)| {
            let of_kind = place.kind.iter().map(move |policy| (PolicyTarget::from(*kind), scope, policy));
            let of_collections = place.collections.iter().map(move |(collection, policy)| {
                (PolicyTarget::new(*kind, Some(collection.as_str())), scope, policy)
            });
            of_kind.chain(of_collections)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_negative_and_endless_lives_are_invalid() {
        for seconds in [0, -1, i64::MIN, i64::MAX, 100 * 365 * 24 * 3600 + 1] {
            let error = Ttl::from_secs(seconds).unwrap_err();
            assert!(error.message().contains("3153600000"), "{error}");
        }
        assert!(Ttl::new(Duration::from_micros(999)).is_err());
        assert!(Ttl::from_secs(1).is_ok());
    }

    #[test]
    fn a_life_past_the_last_time_is_invalid() {}

    #[test]
    fn presets_are_those_of_the_design() {
        let seconds = |policy: TtlPolicy| {
            let of = |ttl: Ttl| ttl.duration().as_secs();
            (policy.default.map(of), of(policy.min), of(policy.max), policy.enforce)
        };
        assert_eq!(seconds(TtlPolicy::default()), (None, 60, 31_536_000, true));
        assert_eq!(seconds(TtlPolicy::temporary()), (Some(3_600), 60, 86_400, true));
        assert_eq!(seconds(TtlPolicy::short_lived()), (Some(86_400), 3_600, 604_800, true));
        assert_eq!(seconds(TtlPolicy::long_lived()), (Some(2_592_000), 86_400, 31_536_000, true));
    }

    #[test]
    fn an_enforced_policy_refuses_and_names_the_bounds() {
        let policy = TtlPolicy::temporary();
        for seconds in [59, 86_401] {
            let error = policy.apply(Some(Ttl::from_secs(seconds).unwrap())).unwrap_err();
            assert!(error.message().contains("60 s to 86400 s"), "{error}");
        }
        for seconds in [60, 86_400] {
            let ttl = Ttl::from_secs(seconds).unwrap();
            assert_eq!(policy.apply(Some(ttl)).unwrap(), Some(ttl));
        }
        let advisory = TtlPolicy { enforce: false, ..policy };
        let ttl = Ttl::from_secs(1).unwrap();
        assert_eq!(advisory.apply(Some(ttl)).unwrap(), Some(ttl));
    }

    #[test]
    fn the_default_life_stands_in_and_none_is_never() {
        assert_eq!(TtlPolicy::default().apply(None).unwrap(), None);
        assert_eq!(TtlPolicy::temporary().apply(None).unwrap(), Some(Ttl::secs(3_600)));
    }

    #[test]
    fn a_policy_that_contradicts_itself_is_refused() {
        let mut policies = TtlPolicies::default();
        let crossed = TtlPolicy { min: Ttl::secs(10), max: Ttl::secs(5), default: None, enforce: true };
        assert!(policies.set(Kind::Code, Scope::Global, crossed).is_err());
        let outside = TtlPolicy { default: Some(Ttl::secs(1)), ..TtlPolicy::temporary() };
        assert!(policies.set(Kind::Code, Scope::Global, outside).is_err());
    }

    #[test]
    fn the_most_specific_policy_wins() {
        let mut policies = TtlPolicies::default();
        let scope = |text: &str| text.parse::<Scope>().unwrap();
        policies.set(Kind::Approval, Scope::Global, TtlPolicy::long_lived()).unwrap();
        policies.set(Kind::Approval, scope("tenant:a"), TtlPolicy::short_lived()).unwrap();
        policies.set(Kind::Approval, scope("tenant:a/env:dev"), TtlPolicy::temporary()).unwrap();
        for (text, policy) in [
            ("tenant:a/env:dev", TtlPolicy::temporary()),
            ("tenant:a/env:prod", TtlPolicy::short_lived()),
            ("tenant:a", TtlPolicy::short_lived()),
            ("tenant:b/env:dev", TtlPolicy::long_lived()),
            ("env:dev", TtlPolicy::long_lived()),
            ("custom:a/b", TtlPolicy::long_lived()),
        ] {
            assert_eq!(policies.of(Kind::Approval, &scope(text)), Some(policy), "{text}");
        }
        assert_eq!(policies.of(Kind::Code, &scope("tenant:a")), None);
        assert_eq!(policies.unset(Kind::Approval, &scope("tenant:a")), Some(TtlPolicy::short_lived()));
        assert_eq!(policies.of(Kind::Approval, &scope("tenant:a")), Some(TtlPolicy::long_lived()));
    }

    #[test]
    fn a_scope_comes_before_a_collection_and_a_collection_before_its_kind() {
        let mut policies = TtlPolicies::default();
        let acme: Scope = "tenant:acme".parse().unwrap();
        let redis = PolicyTarget::new(Kind::Record, Some("redis"));
        let other = PolicyTarget::new(Kind::Record, Some("other"));
        policies.set(redis, Scope::Global, TtlPolicy::temporary()).unwrap();
        assert_eq!(policies.of(redis, &acme), Some(TtlPolicy::temporary()));
        assert_eq!(policies.of(other, &acme), None);
        assert_eq!(policies.of(PolicyTarget::new(Kind::Counter, Some("redis")), &acme), None);
        policies.set(Kind::Record, acme.clone(), TtlPolicy::long_lived()).unwrap();
        assert_eq!(policies.of(redis, &acme), Some(TtlPolicy::long_lived()), "the scope is nearer");
        policies.set(redis, acme.clone(), TtlPolicy::short_lived()).unwrap();
        assert_eq!(policies.of(redis, &acme), Some(TtlPolicy::short_lived()));
        assert_eq!(policies.of(other, &acme), Some(TtlPolicy::long_lived()));
        let found = policies.found(redis, &acme).unwrap();
        assert_eq!((found.scope, found.collection.as_deref()), (acme.clone(), Some("redis")));
        assert_eq!(policies.iter().count(), 3);
        assert_eq!(policies.unset(redis, &acme), Some(TtlPolicy::short_lived()));
        assert_eq!(policies.of(redis, &acme), Some(TtlPolicy::long_lived()));
        for bad in [PolicyTarget::new(Kind::Code, Some("redis")), PolicyTarget::new(Kind::Record, Some(""))] {
            assert!(policies.set(bad, Scope::Global, TtlPolicy::default()).is_err());
        }
    }
}
