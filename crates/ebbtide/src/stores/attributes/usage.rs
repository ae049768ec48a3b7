//! Counts and bytes of buckets.

use std::collections::BTreeMap;

use super::{Attributes, names_of};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::stores::Stores;
use crate::stores::shared::bonds::first_name;
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

impl Stores {
    /// Counts the attributes of system owners, by scope, owner and bucket. It reads every attribute of every scope.
    pub async fn usage_of_system_owners(&self) -> Result<BTreeMap<(Scope, String, String), Usage>> {
        let prefix = Prefix::reach(Kind::Attribute, &Reach::Below(Scope::Global))?;
        let mut buckets: BTreeMap<_, Usage> = BTreeMap::new();
        let mut pages = Pages::new(self, &prefix, Attributes::PAGE);
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let owner = first_name(key)?;
                if Attributes::is_system_owner(&owner) {
                    let usage = buckets.entry((key.scope(), owner, names_of(key)?.0)).or_default();
                    usage.add(key, record);
                }
            }
        }
        Ok(buckets)
    }
}

impl Usage {
    fn add(&mut self, key: &Key, record: &Record) {
        self.count += 1;
        self.bytes += (key.as_bytes().len() + record.value.len()) as u64;
    }
}

impl Attributes {
    /// Returns whether an owner stands for a whole scope, such as `_oauth`: its name begins with an underscore.
    #[must_use]
    pub fn is_system_owner(owner: &str) -> bool {
        owner.starts_with('_')
    }

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
                buckets.entry(names_of(key)?.0).or_default().add(key, record);
            }
        }
        Ok(buckets)
    }
}
