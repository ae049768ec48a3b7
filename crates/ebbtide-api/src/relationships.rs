//! Relationships.

use std::collections::BTreeMap;

use ebbtide::Ttl;
use ebbtide::stores::relationships::{Edge, Related, RelationType};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Counted;
use crate::answers::{AnswerMode, Listed, millis, seconds};

/// Relationship to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationshipCheck {
    #[schema(min_length = 1, example = "alice")]
    pub subject: String,
    #[schema(min_length = 1, example = "member")]
    pub relation: String,
    #[schema(min_length = 1, example = "staff")]
    pub object: String,
    /// Any type without it; trust or membership if `transitive`.
    pub relation_type: Option<RelationType>,
    /// Also finds it in a scope that the request's covers: a wildcard for all environments of a tenant. It reads every
    /// relationship of those scopes, and follows none.
    #[serde(default)]
    pub below: bool,
    /// Ignored: the body that added it can be sent as it is.
    pub created_by: Option<String>,
    /// Ignored.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>)]
    pub ttl: Option<Ttl>,
    /// Ignored.
    #[serde(rename = "max_ttl_seconds")]
    #[schema(value_type = Option<i64>)]
    pub max_ttl: Option<Ttl>,
    /// Ignored.
    pub sliding: Option<bool>,
    /// Ignored.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Follows several relationships, for trust and membership.
    #[serde(default)]
    pub transitive: bool,
    /// Longest path; 10 by default.
    #[schema(minimum = 1)]
    pub max_depth: Option<usize>,
    /// With `always`, "no" is answered 200 with `related: false` and an empty path instead of 404.
    pub answer: Option<AnswerMode>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RelationshipAnswer {
    pub subject: String,
    pub relation: String,
    pub object: String,
    pub relation_type: RelationType,
    pub created_by: String,
    pub created_at: Option<u64>,
    pub expires_at: Option<u64>,
    /// Lifetime that it began with; null without an end.
    pub ttl_seconds: Option<u64>,
    /// Latest expiry that checks and extensions can give it.
    pub cap_at: Option<u64>,
    /// True if each direct check renews it.
    pub sliding: bool,
    pub metadata: BTreeMap<String, String>,
    pub scope: String,
}

impl From<&Related> for RelationshipAnswer {
    fn from(related: &Related) -> Self {
        let Edge { subject, relation, object, relation_type } = related.edge.clone();
        Self {
            subject,
            relation,
            object,
            relation_type,
            created_by: related.created_by.clone(),
            created_at: millis(related.created_at),
            expires_at: millis(related.expires_at),
            ttl_seconds: related.ttl.map(seconds),
            cap_at: related.cap_at.and_then(millis),
            sliding: related.sliding_ttl.is_some(),
            metadata: related.metadata.clone(),
            scope: related.scope.to_string(),
        }
    }
}

/// A page, or a count.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RelationshipsAnswer {
    Page(Listed<RelationshipAnswer>),
    Count(Counted),
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RelationshipFound {
    pub related: bool,
    /// From the subject to the object; empty if they are not related.
    pub path: Vec<String>,
    /// Lifetime of the relationship; none for a path of several, and if they are not related.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub life: Option<RelationshipLifetime>,
}

impl RelationshipFound {
    /// They are not related.
    #[must_use]
    pub fn none() -> Self {
        Self { related: false, path: Vec::new(), life: None }
    }
}

/// Lifetime of a relationship.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RelationshipLifetime {
    pub expires_at: Option<u64>,
    /// Lifetime that it began with; null without an end.
    pub ttl_seconds: Option<u64>,
    /// Latest expiry that checks and extensions can give it.
    pub cap_at: Option<u64>,
    /// True if each check renews it.
    pub sliding: bool,
}

impl From<&Related> for RelationshipLifetime {
    fn from(related: &Related) -> Self {
        Self {
            expires_at: millis(related.expires_at),
            ttl_seconds: related.ttl.map(seconds),
            cap_at: related.cap_at.and_then(millis),
            sliding: related.sliding_ttl.is_some(),
        }
    }
}
