//! Requests and answers about many approvals or relationships, and about scopes.

use ebbtide::Scope;
use ebbtide::stores::relationships::{Reached, RelationType};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::answers::{AnswerMode, extension_body};

/// Number of records.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    pub count: u64,
}

/// Approval of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalNames {
    #[schema(min_length = 1, example = "alice")]
    pub identity: String,
    #[schema(min_length = 1, example = "doc")]
    pub resource: String,
    #[schema(min_length = 1, example = "GET")]
    pub action: String,
}

/// Approvals to check together.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalBatch {
    /// 1 to 1,000 approvals.
    pub items: Vec<ApprovalNames>,
    /// Also finds them in scopes that the request's covers. It reads every approval of those scopes, for each item.
    #[serde(default)]
    pub below: bool,
    /// With `always`, the outcomes are answered 200 whatever they are.
    #[serde(default)]
    pub answer: Option<AnswerMode>,
}

/// Relationship of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationshipNames {
    #[schema(min_length = 1, example = "alice")]
    pub subject: String,
    #[schema(min_length = 1, example = "member")]
    pub relation: String,
    #[schema(min_length = 1, example = "staff")]
    pub object: String,
    /// Any type without it.
    pub relation_type: Option<RelationType>,
}

/// Relationships to check together.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelationshipBatch {
    /// 1 to 1,000 relationships.
    pub items: Vec<RelationshipNames>,
    /// Also finds them in scopes that the request's covers. It reads every relationship of those scopes, for each item.
    #[serde(default)]
    pub below: bool,
    /// With `always`, the outcomes are answered 200 whatever they are.
    #[serde(default)]
    pub answer: Option<AnswerMode>,
}

/// Answers to a batch of checks, in its order; all are yes, unless the request asked for an answer in any case.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchChecked {
    pub outcomes: Vec<bool>,
}

/// Extent of a deletion, with the actor and the reason.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteAll {
    /// Includes the scopes that the request's covers.
    #[serde(default)]
    pub below: bool,
    /// Name that the caller acts for, in the audit log.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    pub actor: Option<String>,
    pub reason: Option<String>,
}

/// Search from a subject, or to an object.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Subject of `reachable`, object of `reaching`.
    #[schema(min_length = 1, example = "alice")]
    pub name: String,
    #[schema(min_length = 1, example = "member")]
    pub relation: String,
    /// `trust` or `membership`.
    #[schema(value_type = String, example = "membership")]
    pub relation_type: RelationType,
    /// Longest path; 10 by default.
    #[schema(minimum = 1, maximum = 100)]
    pub max_depth: Option<usize>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReachedName {
    pub name: String,
    /// Number of relationships on a shortest path.
    pub distance: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReachedAnswer {
    /// Nearest first.
    pub names: Vec<ReachedName>,
    /// True if the search was cut short, with more names left.
    pub depth_reached: bool,
}

impl From<Reached> for ReachedAnswer {
    fn from(reached: Reached) -> Self {
        let named = |(name, distance): (String, usize)| ReachedName { name, distance: distance as u64 };
        Self { names: reached.names.into_iter().map(named).collect(), depth_reached: reached.depth_reached }
    }
}

extension_body! {
    /// Extension of a relationship.
    RelationshipExtend {
        #[schema(min_length = 1, example = "alice")]
        pub subject: String,
        #[schema(min_length = 1, example = "member")]
        pub relation: String,
        #[schema(min_length = 1, example = "staff")]
        pub object: String,
        #[schema(value_type = String, example = "membership")]
        pub relation_type: RelationType,
    }
}

extension_body! {
    /// Extension of an attribute.
    AttributeExtend {}
}

/// Question about the access of one scope to another.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeAccess {
    /// Scope of the caller; that of the request by default.
    #[schema(example = "tenant:acme")]
    pub caller: Option<String>,
    #[schema(example = "tenant:acme/env:prod")]
    pub requested: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ScopeAccessAnswer {
    pub allowed: bool,
    pub caller: String,
    pub requested: String,
}

impl ScopeAccessAnswer {
    /// Answers whether a caller of one scope may act in another.
    #[must_use]
    pub fn new(caller: &Scope, requested: &Scope) -> Self {
        let allowed = caller.covers(requested);
        Self { allowed, caller: caller.to_string(), requested: requested.to_string() }
    }
}
