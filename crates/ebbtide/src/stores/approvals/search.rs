//! Listings, counts, checks and deletions that go beyond one identity or one scope.

use super::{Approvals, Granted, read};
use crate::backend::Cursor;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::stores::audit::AuditContext;
use crate::stores::shared::filtered::{self, Filter};
use crate::stores::shared::paging::Listing;
use crate::stores::shared::tombstones::Principal;

/// Approvals to find: those that have every name that is given.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ApprovalFilter {
    /// Identity.
    pub identity: Option<String>,
    /// Resource.
    pub resource: Option<String>,
    /// Action.
    pub action: Option<String>,
    /// Includes the scopes that the handle's covers.
    pub below: bool,
}

impl ApprovalFilter {
    /// Finds the approvals of an identity, on a resource, for an action; of any where none is given.
    #[must_use]
    pub fn new(identity: Option<String>, resource: Option<String>, action: Option<String>) -> Self {
        Self { identity, resource, action, below: false }
    }

    /// Includes the scopes that the handle's covers.
    #[must_use]
    pub fn below(mut self, below: bool) -> Self {
        self.below = below;
        self
    }
}

impl Filter for ApprovalFilter {
    type Item = Granted;

    fn read(&self, key: &Key, record: &Record) -> Result<Option<Granted>> {
        let is = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
        Ok(Some(read(key, record)?).filter(|granted| {
            is(&self.identity, &granted.identity)
                && is(&self.resource, &granted.resource)
                && is(&self.action, &granted.action)
        }))
    }

    fn whose(granted: &Granted) -> (&Scope, Vec<Principal<'_>>) {
        (&granted.scope, vec![Principal::Owner(&granted.identity)])
    }

    fn prefix(&self, scope: &Scope) -> Result<Prefix> {
        match &self.identity {
            Some(identity) if !self.below => {
                let sort: Vec<_> = self.resource.iter().map(|name| name.as_str().into()).collect();
                Prefix::partition(Kind::Approval, scope, &[identity.as_str().into()], &sort)
            }
            _ if self.below => Prefix::reach(Kind::Approval, &Reach::Below(scope.clone())),
            _ => Prefix::reach(Kind::Approval, &Reach::Exact(scope.clone())),
        }
    }
}

impl Approvals {
    /// Lists the approvals that a filter finds. It renews nothing. One of an identity, in one scope, reads only what it
    /// returns; any other reads every approval of the scope, and a page may have fewer items than `limit`.
    pub async fn find(
        &self,
        filter: &ApprovalFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<Granted>> {
        filtered::find(&self.stores, &self.scope, filter, after, limit).await
    }

    /// Counts the approvals that a filter finds. It reads them all.
    pub async fn count_found(&self, filter: &ApprovalFilter) -> Result<u64> {
        filtered::count(&self.stores, &self.scope, filter).await
    }

    /// Returns an approval of exactly these names from the scope or one that it covers: a wildcard for all
    /// environments of a tenant. It reads every approval of those scopes until it has found one, and renews nothing.
    pub async fn get_below(&self, identity: &str, resource: &str, action: &str) -> Result<Option<Granted>> {
        if let Some(here) = self.get(identity, resource, action).await? {
            return Ok(Some(here));
        }
        let [identity, resource, action] = [identity, resource, action].map(|name| Some(name.to_owned()));
        let filter = ApprovalFilter::new(identity, resource, action).below(true);
        filtered::first(&self.stores, &self.scope, &filter).await
    }

    /// Deletes every approval of the scope, and of those that it covers if `below`, and appends to the audit log.
    pub async fn delete_all(&self, below: bool, context: &AuditContext) -> Result<u64> {
        let scope = self.scope.clone();
        let reach = if below { Reach::Below(scope) } else { Reach::Exact(scope) };
        let scopes = self.stores.scopes(&self.scope);
        let removed = scopes.delete_kinds(vec![Kind::Approval], &reach, context).await?.finish().await?;
        Ok(removed.total())
    }
}
