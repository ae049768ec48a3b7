//! Relationships.

use std::collections::BTreeMap;

use ebbtide::Ttl;
use ebbtide::stores::relationships::{Edge, Related, RelationType};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::{AnswerMode, millis};

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
    pub relation_type: RelationType,
    /// Ignored: the body that added it can be sent as it is.
    pub created_by: Option<String>,
    /// Ignored.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>)]
    pub ttl: Option<Ttl>,
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

impl From<RelationshipCheck> for Edge {
    fn from(check: RelationshipCheck) -> Self {
        Self::new(check.subject, check.relation, check.object, check.relation_type)
    }
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
            metadata: related.metadata.clone(),
            scope: related.scope.to_string(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RelationshipFound {
    pub related: bool,
    /// From the subject to the object; empty if they are not related.
    pub path: Vec<String>,
}
