//! Listings, counts, checks and deletions that go beyond one identity or one scope.

use super::{Approvals, Granted, read};
use crate::backend::Cursor;
use crate::model::error::Result;
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::scope::{Reach, Scope};
use crate::stores::audit::AuditContext;
use crate::stores::shared::filtered;
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

    fn has(&self, granted: &Granted) -> bool {
        let is = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
        is(&self.identity, &granted.identity)
            && is(&self.resource, &granted.resource)
            && is(&self.action, &granted.action)
    }

    /// Smallest range that has them all.
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
        let prefix = filter.prefix(&self.scope)?;
        let mut listing = filtered::list(&self.stores, &prefix, after, limit, |key, record| {
            Ok(Some(read(key, record)?).filter(|granted| filter.has(granted)))
        })
        .await?;
        listing.items = self.unless_deleted(listing.items).await?;
        Ok(listing)
    }

    /// Counts the approvals that a filter finds. It reads them all.
    pub async fn count_found(&self, filter: &ApprovalFilter) -> Result<u64> {
        let prefix = filter.prefix(&self.scope)?;
        filtered::count(&self.stores, &prefix, |key, record| Ok(filter.has(&read(key, record)?))).await
    }

    /// Returns an approval of exactly these names from the scope or one that it covers: a wildcard for all
    /// environments of a tenant. It reads every approval of those scopes until it has found one, and renews nothing.
    pub async fn get_below(&self, identity: &str, resource: &str, action: &str) -> Result<Option<Granted>> {
        if let Some(here) = self.get(identity, resource, action).await? {
            return Ok(Some(here));
        }
        let names = [identity, resource, action].map(|name| Some(name.to_owned()));
        let [identity, resource, action] = names;
        let filter = ApprovalFilter::new(identity, resource, action).below(true);
        let mut after = None;
        loop {
            let page = self.find(&filter, after.as_ref(), 100).await?;
            if let Some(found) = page.items.into_iter().next() {
                return Ok(Some(found));
            }
            after = page.next;
            if after.is_none() {
                return Ok(None);
            }
        }
    }

    /// Deletes every approval of the scope, and of those that it covers if `below`, and appends to the audit log.
    pub async fn delete_all(&self, below: bool, context: &AuditContext) -> Result<u64> {
        let scope = self.scope.clone();
        let reach = if below { Reach::Below(scope) } else { Reach::Exact(scope) };
        let scopes = self.stores.scopes(&self.scope);
        let removed = scopes.delete_kinds(vec![Kind::Approval], &reach, context).await?.finish().await?;
        Ok(removed.total())
    }

    /// Leaves out the approvals of identities that are being deleted.
    async fn unless_deleted(&self, items: Vec<Granted>) -> Result<Vec<Granted>> {
        let (now, mut left) = (self.stores.now()?, Vec::with_capacity(items.len()));
        let mut last: Option<(Scope, String, bool)> = None;
        for granted in items {
            let known = last
                .as_ref()
                .filter(|(scope, identity, _)| *scope == granted.scope && *identity == granted.identity);
            let is_deleted = if let Some((_, _, is_deleted)) = known {
                *is_deleted
            } else {
                let identity = [Principal::Owner(&granted.identity)];
                self.stores.is_deleted(&granted.scope, &identity, now).await?
            };
            last = Some((granted.scope.clone(), granted.identity.clone(), is_deleted));
            if !is_deleted {
                left.push(granted);
            }
        }
        Ok(left)
    }
}
