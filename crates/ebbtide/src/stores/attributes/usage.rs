//! Counts and bytes of buckets.

use std::collections::BTreeMap;

use super::{Attributes, names_of};
use crate::model::error::Result;
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::scope::Reach;
use crate::stores::shared::paging::Pages;

/// Live attributes of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Number of attributes.
    pub count: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Attributes {
    /// Counts an owner's attributes by bucket. It reads them all.
    pub async fn usage(&self, owner: &str) -> Result<BTreeMap<String, Usage>> {
        self.usage_under(&self.owner_prefix(owner)?).await
    }

    /// Counts the attributes of every owner by bucket, in the scope, or also in those that it covers. It reads them
    /// all.
    pub async fn usage_of_scope(&self, below: bool) -> Result<BTreeMap<String, Usage>> {
        let scope = self.scope.clone();
        let reach = if below { Reach::Below(scope) } else { Reach::Exact(scope) };
        self.usage_under(&Prefix::reach(Kind::Attribute, &reach)?).await
    }

    async fn usage_under(&self, prefix: &Prefix) -> Result<BTreeMap<String, Usage>> {
        let mut buckets: BTreeMap<String, Usage> = BTreeMap::new();
        let mut pages = Pages::new(&self.stores, prefix, Self::PAGE);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let usage = buckets.entry(names_of(key)?.0).or_default();
                usage.count += 1;
                usage.bytes += (key.as_bytes().len() + record.value.len()) as u64;
            }
        }
        Ok(buckets)
    }
}
