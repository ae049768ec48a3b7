//! What a relationship is, and how it is stored.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::shared::lifetime::{Lifetime, LifetimeRequest};

/// What sort of relationship it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = RelationshipType))]
pub enum RelationType {
    /// A role in something.
    Role,
    /// Trust in someone. It carries on from one to the next.
    Trust,
    /// Membership of something. It carries on from one to the next.
    Membership,
    /// Ownership of something.
    Ownership,
    /// Acting for someone.
    Delegation,
    /// One's own sort.
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

    /// Whether it carries on from one to the next, and so has transitive checks.
    #[must_use]
    pub fn is_transitive(&self) -> bool {
        matches!(self, Self::Trust | Self::Membership)
    }

    /// As parts of a key. A sort of one's own never meets one of these, whatever its name.
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
    /// `role` and so on; one's own sort as `custom:` and its name.
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
        })
    }
}

/// Relation of a subject to an object.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Edge {
    /// Who.
    pub subject: String,
    /// Is what.
    pub relation: String,
    /// To what.
    pub object: String,
    /// In what way.
    pub relation_type: RelationType,
}

impl Edge {
    /// A question or a statement.
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

/// What to add.
#[derive(Debug, Clone)]
pub struct Relationship {
    pub(super) edge: Edge,
    pub(super) created_by: String,
    pub(super) scope: Option<Scope>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) span: LifetimeRequest,
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
    /// That this is so, because `created_by` says so.
    pub fn new(edge: Edge, created_by: impl Into<String>) -> Self {
        let (metadata, span) = (BTreeMap::new(), LifetimeRequest::default());
        Self { edge, created_by: created_by.into(), scope: None, metadata, span }
    }

    of_type! {
        /// That a subject has a role.
        role = Role;
        /// That a subject trusts.
        trust = Trust;
        /// That a subject is a member.
        membership = Membership;
        /// That a subject is an owner.
        ownership = Ownership;
        /// That a subject acts for an object.
        delegation = Delegation;
    }

    /// What it says.
    #[must_use]
    pub fn edge(&self) -> Edge {
        self.edge.clone()
    }

    /// In that scope instead of the handle's, which must cover it.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Ends after that long.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Ttl) -> Self {
        self.span.ttl = Some(ttl);
        self
    }

    /// Ends after that long at the latest: no extension carries it further.
    #[must_use]
    pub fn with_cap(mut self, cap: Ttl) -> Self {
        self.span.cap = Some(cap);
        self
    }

    /// Ends when it was not checked for that long, or nine tenths of it, and after `cap` at the latest. Only direct
    /// checks renew it.
    #[must_use]
    pub fn with_sliding_ttl(mut self, ttl: Ttl, cap: Ttl) -> Self {
        self.span = LifetimeRequest::sliding(ttl, cap);
        self
    }

    /// With a note of the caller's own.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }
}

/// A relationship as it stands.
#[derive(Clone, PartialEq, Eq)]
pub struct Related {
    /// What it says.
    pub edge: Edge,
    /// Who says so.
    pub created_by: String,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when.
    pub expires_at: Timestamp,
    /// The latest end that checks and extensions can give it, where one was set.
    pub cap_at: Option<Timestamp>,
    /// How long it lives on from a check, where direct checks renew it.
    pub sliding_ttl: Option<Duration>,
    /// The caller's own notes.
    pub metadata: BTreeMap<String, String>,
    /// Where.
    pub scope: Scope,
    /// Which writing of it this is.
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
        let stored: StoredRelationship = codec::decode(&record.value)?;
        Ok(Self {
            edge: edge_of(key)?,
            created_by: stored.created_by,
            created_at: stored.lifetime.began_at()?,
            expires_at: record.expires_at,
            cap_at: stored.lifetime.cap_at()?,
            sliding_ttl: stored.lifetime.sliding_ttl(),
            metadata: stored.metadata,
            scope: key.scope(),
            version: record.version,
        })
    }
}

pub(super) fn edge_of(key: &Key) -> Result<Edge> {
    let strange = || Error::corrupt("a relationship stands under a key that is not one of relationships");
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

#[derive(Encode, Decode)]
pub(super) struct StoredRelationship {
    #[n(0)]
    pub(super) created_by: String,
    #[n(1)]
    pub(super) metadata: BTreeMap<String, String>,
    #[n(2)]
    pub(super) lifetime: Lifetime,
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
