//! Approval to grant, as a caller asks for it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::record_setters;
use crate::model::scope::Scope;
use crate::model::ttl::Ttl;
use crate::stores::shared::lifetime::lifetime_setters;

/// Approval to grant.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ApprovalGrant))]
#[non_exhaustive]
pub struct Approval {
    /// Identity that may act.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub identity: String,
    /// Resource that it may act on.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "doc"))]
    pub resource: String,
    /// Action that it may do.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "GET"))]
    pub action: String,
    /// Grantor of the approval.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "admin"))]
    pub granted_by: String,
    /// Lifetime, in seconds. Without one, the approval does not expire.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Notes of the caller.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Longest lifetime, from now on: neither checks nor extensions reach further.
    #[serde(rename = "max_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub(super) cap: Option<Ttl>,
    /// Lets each check renew the lifetime, up to `max_ttl_seconds`.
    #[serde(default, rename = "sliding")]
    pub(super) slides: bool,
    #[serde(skip)]
    pub(super) scope: Option<Scope>,
}

impl Approval {
    /// Lets `identity` do `action` to `resource`, on the word of `granted_by`.
    pub fn new(
        identity: impl Into<String>,
        resource: impl Into<String>,
        action: impl Into<String>,
        granted_by: impl Into<String>,
    ) -> Self {
        Self {
            identity: identity.into(),
            resource: resource.into(),
            action: action.into(),
            granted_by: granted_by.into(),
            ttl: None,
            metadata: BTreeMap::new(),
            cap: None,
            slides: false,
            scope: None,
        }
    }

    lifetime_setters!();
    record_setters!();
}

impl fmt::Debug for Approval {
    /// Without names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Approval({:?}, …)", self.ttl)
    }
}
