//! Types of relationships, and their stored form.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::approvals::{StoredGrant, record_setters};
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::lifetime::lifetime_setters;

/// Type of a relationship.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = RelationshipType))]
#[non_exhaustive]
pub enum RelationType {
    /// Role in an object.
    Role,
    /// Trust in an object. Transitive.
    Trust,
    /// Membership of an object. Transitive.
    Membership,
    /// Ownership of an object.
    Ownership,
    /// Acting for an object.
    Delegation,
    /// Type of the caller.
    Custom(String),
}

impl RelationType {
    const NAMED: [(Self, &'static str, u64); 5] = [
        (Self::Role, "role", 1),
        (Self::Trust, "trust", 2),
        (Self::Membership, "membership", 3),
        (Self::Ownership, "ownership", 4),
        (Self::Delegation, "delegation", 5),
    ];
    const CUSTOM: u64 = 6;

    /// Returns whether it is transitive.
    #[must_use]
    pub fn is_transitive(&self) -> bool {
        matches!(self, Self::Trust | Self::Membership)
    }

    /// Every type with a name of its own.
    pub(super) fn named() -> impl Iterator<Item = Self> {
        Self::NAMED.into_iter().map(|(named, ..)| named)
    }

    /// Part with which the keys of custom types begin.
    pub(super) fn custom_part() -> Part<'static> {
        Part::Int(Self::CUSTOM)
    }

    /// Parts of a key. A custom type never equals a named one, whatever its name.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        match Self::NAMED.iter().find(|(named, ..)| named == self) {
            Some((_, _, code)) => vec![Part::Int(*code)],
            None => match self {
                Self::Custom(name) => vec![Part::Int(Self::CUSTOM), name.as_str().into()],
                _ => unreachable!("every type but a custom one has a name of its own"),
            },
        }
    }
}

impl fmt::Display for RelationType {
    /// `role` and so on; a custom type as `custom:` and its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Custom(name) = self {
            return write!(f, "custom:{name}");
        }
        let named = Self::NAMED.iter().find(|(named, ..)| named == self);
        f.write_str(named.map_or("custom", |(_, name, _)| name))
    }
}

impl FromStr for RelationType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(name) = text.strip_prefix("custom:").filter(|name| !name.is_empty()) {
            return Ok(Self::Custom(name.to_owned()));
        }
        let named = Self::NAMED.into_iter().find(|(_, name, _)| *name == text);
        named.map(|(named, ..)| named).ok_or_else(|| {
            Error::invalid("a relation type is role, trust, membership, ownership, delegation or custom:NAME")
                .about("relation_type")
        })
    }
}

/// Relation of a subject to an object.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Edge {
    /// Subject.
    pub subject: String,
    /// Relation of the subject to the object.
    pub relation: String,
    /// Object.
    pub object: String,
    /// Type of the relation.
    pub relation_type: RelationType,
}

impl Edge {
    /// Relates `subject` to `object`.
    pub fn new(
        subject: impl Into<String>,
        relation: impl Into<String>,
        object: impl Into<String>,
        relation_type: RelationType,
    ) -> Self {
        Self { subject: subject.into(), relation: relation.into(), object: object.into(), relation_type }
    }
}

impl fmt::Debug for Edge {
    /// Without names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edge({:?}, …)", self.relation_type)
    }
}

/// Relationship to add.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = RelationshipAdd))]
#[non_exhaustive]
pub struct Relationship {
    /// Subject.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub subject: String,
    /// Relation of the subject to the object.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "member"))]
    pub relation: String,
    /// Object.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "staff"))]
    pub object: String,
    /// Type of the relation.
    pub relation_type: RelationType,
    /// Creator of the relationship.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "admin"))]
    pub created_by: String,
    /// Lifetime, in seconds. Without one, the relationship does not expire.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Notes of the caller.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Longest lifetime, from now on: neither checks nor extensions reach further.
    #[serde(rename = "max_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    cap: Option<Ttl>,
    /// Lets each check renew the lifetime, up to `max_ttl_seconds`.
    #[serde(default, rename = "sliding")]
    slides: bool,
    /// Record that it belongs to, and is removed with.
    pub belongs_to: Option<Parent>,
    #[serde(skip)]
    pub(super) scope: Option<Scope>,
}

impl fmt::Debug for Relationship {
    /// Without names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relationship({:?}, {:?}, …)", self.relation_type, self.ttl)
    }
}

macro_rules! of_type {
    ($($(#[$doc:meta])+ $name:ident = $variant:ident;)+) => {
        $($(#[$doc])+
        pub fn $name(
            subject: impl Into<String>,
            relation: impl Into<String>,
            object: impl Into<String>,
            created_by: impl Into<String>,
        ) -> Self {
            Self::new(Edge::new(subject, relation, object, RelationType::$variant), created_by)
        })+
    };
}

impl Relationship {
    /// States `edge`, on the word of `created_by`.
    pub fn new(edge: Edge, created_by: impl Into<String>) -> Self {
        let Edge { subject, relation, object, relation_type } = edge;
        Self {
            subject,
            relation,
            object,
            relation_type,
            created_by: created_by.into(),
            ttl: None,
            metadata: BTreeMap::new(),
            cap: None,
            slides: false,
            belongs_to: None,
            scope: None,
        }
    }

    of_type! {
        /// States that a subject has a role.
        role = Role;
        /// States that a subject trusts an object.
        trust = Trust;
        /// States that a subject is a member.
        membership = Membership;
        /// States that a subject is an owner.
        ownership = Ownership;
        /// States that a subject acts for an object.
        delegation = Delegation;
    }

    /// Subject, relation, object and type.
    #[must_use]
    pub fn edge(&self) -> Edge {
        let Self { subject, relation, object, relation_type, .. } = self;
        Edge::new(subject, relation, object, relation_type.clone())
    }

    /// Names the record that it belongs to, and is removed with.
    #[must_use]
    pub fn belongs_to(mut self, parent: Parent) -> Self {
        self.belongs_to = Some(parent);
        self
    }

    lifetime_setters!();
    record_setters!();
}

/// Relationship that exists.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Related {
    /// Subject, relation, object and type.
    pub edge: Edge,
    /// Creator.
    pub created_by: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time at which it expires.
    pub expires_at: Timestamp,
    /// TTL that it began with; none without an end.
    pub ttl: Option<Duration>,
    /// Latest expiry that checks and extensions can give it, where there is a cap.
    pub cap_at: Option<Timestamp>,
    /// Lifetime after a check, where direct checks renew it.
    pub sliding_ttl: Option<Duration>,
    /// Notes of the caller.
    pub metadata: BTreeMap<String, String>,
    /// Scope of the relationship.
    pub scope: Scope,
    /// Version of the record.
    pub version: Version,
}

impl fmt::Debug for Related {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Related({:?} in {}, expires_at {})", self.edge, self.scope, self.expires_at)
    }
}

impl Related {
    /// Reads a relationship, from its own record or from its reverse.
    pub fn read(key: &Key, record: &Record) -> Result<Self> {
        let stored: StoredGrant = codec::decode(&record.value)?;
        Ok(Self {
            edge: edge_of(key)?,
            created_by: stored.by,
            created_at: stored.lifetime.began_at()?,
            expires_at: record.expires_at,
            ttl: stored.lifetime.ttl(record.expires_at),
            cap_at: stored.lifetime.cap_at()?,
            sliding_ttl: stored.lifetime.sliding_ttl(),
            metadata: stored.metadata,
            scope: key.scope(),
            version: record.version,
        })
    }
}

/// Subject, relation, object and type of a key.
pub(crate) fn edge_of(key: &Key) -> Result<Edge> {
    let strange = || Error::corrupt("a relationship has the key of another kind");
    let (partition, mut sort) = (key.partition(), key.sort());
    let text = |part: Option<Part<'static>>| match part {
        Some(Part::Text(text)) => Ok(text.into_owned()),
        _ => Err(strange()),
    };
    let far = text(sort.pop())?;
    let relation = text(sort.pop())?;
    let relation_type = match sort.as_slice() {
        [Part::Int(code)] => {
            RelationType::NAMED.into_iter().find(|(.., named)| named == code).map(|(t, ..)| t)
        }
        [Part::Int(RelationType::CUSTOM), Part::Text(name)] => Some(RelationType::Custom(name.to_string())),
        _ => None,
    };
    let relation_type = relation_type.ok_or_else(strange)?;
    let near = text(partition.into_iter().next())?;
    let (subject, object) = if key.kind() == Kind::Relationship { (near, far) } else { (far, near) };
    Ok(Edge { subject, relation, object, relation_type })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_as_it_is_printed() {
        for text in ["role", "trust", "membership", "ownership", "delegation", "custom:role", "custom:a:b"] {
            assert_eq!(text.parse::<RelationType>().unwrap().to_string(), text);
        }
        for bad in ["", "custom", "custom:", "Role", "member"] {
            assert!(bad.parse::<RelationType>().is_err(), "{bad}");
        }
    }
}
