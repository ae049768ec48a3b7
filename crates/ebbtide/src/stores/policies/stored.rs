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
use crate::model::ttl::{PolicyTarget, Ttl, TtlPolicy};

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

/// Number that is added to the form of a scope where a collection follows it.
const COLLECTION: u64 = 8;

/// Key of the policy of a kind, or of one collection, and a scope. The names of the scope are parts of it, since their
/// text form may be too long for one. A collection comes before them, since a path has any number of names.
pub(super) fn key(target: PolicyTarget<'_>, scope: &Scope) -> Result<Key> {
    target.check()?;
    scope.check()?;
    let form = match scope {
        Scope::Global => 0,
        Scope::Tenant(_) => 1,
        Scope::Environment(_) => 2,
        Scope::TenantEnvironment { .. } => 3,
        Scope::Custom(_) => 4,
    };
    let form = if target.collection.is_some() { form + COLLECTION } else { form };
    let mut sort = vec![Part::from(target.kind.name()), Part::Int(form)];
    sort.extend(target.collection.map(Part::from));
    sort.extend(scope.names().map(|name| Part::from(name.as_str())));
    Key::new(Kind::Policy, &Scope::Global, &[PARTITION.into()], &sort)
}

/// Kind, collection and scope of a key that [`key`] made.
pub(super) fn place(key: &Key) -> Result<(Kind, Option<String>, Scope)> {
    let strange = || Error::corrupt("the key of a policy is not a kind and a scope");
    let parts = key.sort();
    let [Part::Text(kind), Part::Int(form), names @ ..] = parts.as_slice() else { return Err(strange()) };
    let name = |part: &Part<'_>| match part {
        Part::Text(name) => Ok(name.to_string()),
        _ => Err(strange()),
    };
    let mut names = names.iter().map(name).collect::<Result<Vec<_>>>()?;
    let (mut form, mut collection) = (*form, None);
    if form >= COLLECTION && !names.is_empty() {
        form -= COLLECTION;
        collection = Some(names.remove(0));
    }
    let scope = match (form, names.as_slice()) {
        (0, []) => Scope::Global,
        (1, [tenant]) => Scope::tenant(tenant)?,
        (2, [environment]) => Scope::env(environment)?,
        (3, [tenant, environment]) => Scope::tenant_env(tenant, environment)?,
        (4, path) => Scope::custom(path)?,
        _ => return Err(strange()),
    };
    Ok((kind.parse().map_err(|_| strange())?, collection, scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_every_form_of_scope_is_read_back() {
        for scope in ["global", "tenant:a", "env:a", "tenant:a/env:b", "custom:a", "custom:a/b%2Fc"] {
            let scope: Scope = scope.parse().unwrap();
            for (kind, collection) in
                [(Kind::Approval, None), (Kind::Record, Some("c")), (Kind::Lease, Some("a"))]
            {
                let key = key(PolicyTarget::new(kind, collection), &scope).unwrap();
                assert_eq!(place(&key).unwrap(), (kind, collection.map(str::to_owned), scope.clone()));
                assert!(partition().unwrap().contains(&key));
            }
        }
        let long = Scope::custom(["%".repeat(128), "/".repeat(128), ":".repeat(128)]).unwrap();
        assert!(key(Kind::RelationshipReverse.into(), &long).is_ok(), "escaped it would be too long");
        let collection = "c".repeat(PolicyTarget::MAX_COLLECTION_BYTES);
        assert!(key(PolicyTarget::new(Kind::Record, Some(&collection)), &long).is_ok());
    }

    /// Keys that earlier builds wrote have no collection, and are made as they were.
    #[test]
    fn the_key_of_a_kind_is_as_it_was() {
        let scope = Scope::tenant("acme").unwrap();
        let sort = ["records".into(), Part::Int(1), "acme".into()];
        let old = Key::new(Kind::Policy, &Scope::Global, &[PARTITION.into()], &sort).unwrap();
        assert_eq!(key(Kind::Record.into(), &scope).unwrap(), old);
        assert_eq!(place(&old).unwrap(), (Kind::Record, None, scope));
    }
}
