//! Approvals.

use std::collections::BTreeMap;

use ebbtide::stores::approvals::Granted;
use ebbtide::{Timestamp, Ttl};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Counted;
use crate::answers::{AnswerMode, Listed, extension_body, millis, seconds};

/// Approval to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalCheck {
    #[schema(min_length = 1, example = "alice")]
    pub identity: String,
    #[schema(min_length = 1, example = "doc")]
    pub resource: String,
    #[schema(min_length = 1, example = "GET")]
    pub action: String,
    /// Also finds it in a scope that the request's covers: a wildcard for all environments of a tenant. It reads every
    /// approval of those scopes.
    #[serde(default)]
    pub below: bool,
    /// Ignored: the body of a grant can be sent as it is.
    pub granted_by: Option<String>,
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
    /// With `always`, "no" is answered 200 with `approved: false` instead of 404.
    pub answer: Option<AnswerMode>,
}

extension_body! {
    /// Extension of an approval.
    ApprovalExtend {
        #[schema(min_length = 1, example = "alice")]
        pub identity: String,
        #[schema(min_length = 1, example = "doc")]
        pub resource: String,
        #[schema(min_length = 1, example = "GET")]
        pub action: String,
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalAnswer {
    pub identity: String,
    pub resource: String,
    pub action: String,
    pub granted_by: String,
    pub granted_at: Option<u64>,
    pub expires_at: Option<u64>,
    /// Lifetime that it began with; null without an end.
    pub ttl_seconds: Option<u64>,
    /// Latest expiry that checks and extensions can give it.
    pub cap_at: Option<u64>,
    /// True if each check renews it.
    pub sliding: bool,
    pub metadata: BTreeMap<String, String>,
    pub scope: String,
}

impl From<&Granted> for ApprovalAnswer {
    fn from(granted: &Granted) -> Self {
        Self {
            identity: granted.identity.clone(),
            resource: granted.resource.clone(),
            action: granted.action.clone(),
            granted_by: granted.granted_by.clone(),
            granted_at: millis(granted.granted_at),
            expires_at: millis(granted.expires_at),
            ttl_seconds: granted.ttl.map(seconds),
            cap_at: granted.cap_at.and_then(millis),
            sliding: granted.sliding_ttl.is_some(),
            metadata: granted.metadata.clone(),
            scope: granted.scope.to_string(),
        }
    }
}

/// One approval, a page, or a count.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ApprovalsAnswer {
    One(Box<ApprovalAnswer>),
    Page(Listed<ApprovalAnswer>),
    Count(Counted),
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalChecked {
    pub approved: bool,
    #[serde(flatten)]
    pub approval: ApprovalAnswer,
}

/// Answer to a check: the approval, or `approved: false` if the request asked for an answer in any case.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ApprovalCheckAnswer {
    Approved(Box<ApprovalChecked>),
    NotApproved(NotApproved),
}

/// Nothing is approved.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotApproved {
    #[schema(example = false)]
    pub approved: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalExtended {
    pub expires_at: Option<u64>,
}

impl From<Timestamp> for ApprovalExtended {
    fn from(expires_at: Timestamp) -> Self {
        Self { expires_at: millis(expires_at) }
    }
}
