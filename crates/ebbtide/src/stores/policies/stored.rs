//! Policies as they are stored: one partition for all kinds and scopes, so that a node reads them with one query.

use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::{Ttl, TtlPolicy};

const PARTITION: &str = "policies";

#[derive(Encode, Decode)]
pub(super) struct PolicyRecord {
    #[n(0)]
    default_millis: Option<u64>,
    #[n(1)]
    min_millis: u64,
    #[n(2)]
    max_millis: u64,
    #[n(3)]
    enforce: bool,
    #[n(4)]
    pub(super) version: u64,
    #[n(5)]
    pub(super) changed_at: u64,
}

impl PolicyRecord {
    pub(super) fn new(policy: &TtlPolicy, version: u64, changed_at: Timestamp) -> Self {
        let millis = |ttl: Ttl| u64::try_from(ttl.duration().as_millis()).unwrap_or(u64::MAX);
        Self {
            default_millis: policy.default.map(millis),
            min_millis: millis(policy.min),
            max_millis: millis(policy.max),
            enforce: policy.enforce,
            version,
            changed_at: changed_at.as_millis(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    pub(super) fn decode(record: &Record) -> Result<Self> {
        codec::decode(&record.value)
    }

    pub(super) fn policy(&self) -> Result<TtlPolicy> {
        let ttl = |millis| {
            Ttl::new(Duration::from_millis(millis))
                .map_err(|error| Error::corrupt("a stored policy has an invalid TTL").caused_by(error))
        };
        Ok(TtlPolicy {
            default: self.default_millis.map(ttl).transpose()?,
            min: ttl(self.min_millis)?,
            max: ttl(self.max_millis)?,
            enforce: self.enforce,
        })
    }
}

/// Partition of every policy.
pub(super) fn partition() -> Result<Prefix> {
    Prefix::partition(Kind::Policy, &Scope::Global, &[PARTITION.into()], &[])
}

/// Key of the policy of a kind and a scope. The names of the scope are parts of it, since their text form may be too
/// long for one.
pub(super) fn key(kind: Kind, scope: &Scope) -> Result<Key> {
    scope.check()?;
    let form = match scope {
        Scope::Global => 0,
        Scope::Tenant(_) => 1,
        Scope::Environment(_) => 2,
        Scope::TenantEnvironment { .. } => 3,
        Scope::Custom(_) => 4,
    };
    let mut sort = vec![Part::from(kind.name()), Part::Int(form)];
    sort.extend(scope.names().into_iter().map(|name| Part::from(name.as_str())));
    Key::new(Kind::Policy, &Scope::Global, &[PARTITION.into()], &sort)
}

/// Kind and scope of a key that [`key`] made.
pub(super) fn place(key: &Key) -> Result<(Kind, Scope)> {
    let strange = || Error::corrupt("the key of a policy is not a kind and a scope");
    let parts = key.sort();
    let [Part::Text(kind), Part::Int(form), names @ ..] = parts.as_slice() else { return Err(strange()) };
    let name = |part: &Part<'_>| match part {
        Part::Text(name) => Ok(name.to_string()),
        _ => Err(strange()),
    };
    let names = names.iter().map(name).collect::<Result<Vec<_>>>()?;
    let scope = match (form, names.as_slice()) {
        (0, []) => Scope::Global,
        (1, [tenant]) => Scope::tenant(tenant)?,
        (2, [environment]) => Scope::env(environment)?,
        (3, [tenant, environment]) => Scope::tenant_env(tenant, environment)?,
        (4, path) => Scope::custom(path)?,
        _ => return Err(strange()),
    };
    Ok((kind.parse().map_err(|_| strange())?, scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_every_form_of_scope_is_read_back() {
        for scope in ["global", "tenant:a", "env:a", "tenant:a/env:b", "custom:a", "custom:a/b%2Fc"] {
            let scope: Scope = scope.parse().unwrap();
            let key = key(Kind::Approval, &scope).unwrap();
            assert_eq!(place(&key).unwrap(), (Kind::Approval, scope));
            assert!(partition().unwrap().contains(&key));
        }
        let long = Scope::custom(["%".repeat(128), "/".repeat(128), ":".repeat(128)]).unwrap();
        assert!(key(Kind::RelationshipReverse, &long).is_ok(), "escaped it would be too long");
    }
}
