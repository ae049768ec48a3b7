//! Bucket of one owner.

use futures_util::future::try_join;
use serde_json::Value;

use super::draft::{Attribute, Draft, Stamp, StoredAttribute};
use super::{Attributes, names_of};
use crate::admin::{AdminExt as _, Erased};
use crate::backend::Cursor;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Commit, Write};
use crate::stores::Stores;
use crate::stores::shared::lifetime::{Lifetime, Restored, restore};
use crate::stores::shared::paging::{Listing, bounded, check_limit};
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;
use crate::timekeeping::Now;

/// Bucket of one owner.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(super) attributes: Attributes,
    owner: String,
    name: String,
    default_ttl: Option<Ttl>,
}

/// Answer to a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a refused change has written nothing"]
pub enum ChangeOutcome {
    /// It is written.
    Applied(Stamp),
    /// The condition did not hold, and nothing was written.
    Refused,
}

/// Answer to a change by value.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a conflict has written nothing"]
pub enum SwapOutcome {
    /// The value was the old one, and is the new one now.
    Swapped(Stamp),
    /// The value is another, or there is none; nothing was written.
    Conflict {
        /// Present attribute.
        current: Option<Box<Attribute>>,
    },
}

/// Refuses `.` and `..`: in a path they mean another path, and the name could not be reached, or deletes more.
fn check_name(name: &str) -> Result<()> {
    if name == "." || name == ".." {
        return Err(Error::invalid(
            "`.` and `..` are not allowed as the name of an owner, a bucket or an attribute",
        ));
    }
    Ok(())
}

impl Bucket {
    pub(super) fn new(attributes: Attributes, owner: String, name: String) -> Result<Self> {
        check_name(&owner)?;
        check_name(&name)?;
        // The key checks the lengths of the names.
        Prefix::partition(
            Kind::Attribute,
            &attributes.scope,
            &[owner.as_str().into()],
            &[name.as_str().into()],
        )?;
        let default_ttl = attributes.stores.bucket_ttl(&owner, &name);
        Ok(Self { attributes, owner, name, default_ttl })
    }

    /// Sets the lifetime of attributes that are set without one.
    #[must_use]
    pub fn with_default_ttl(mut self, ttl: Option<Ttl>) -> Self {
        self.default_ttl = ttl;
        self
    }

    /// Lifetime of attributes that are set without one.
    #[must_use]
    pub fn default_ttl(&self) -> Option<Ttl> {
        self.default_ttl
    }

    /// Owner.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Name of the bucket.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stores a value, whether or not there is one. Without a TTL it has the default of the bucket or of the policy;
    /// without those it does not expire.
    pub async fn set(&self, name: &str, value: impl Into<Draft>) -> Result<Stamp> {
        // A put has no condition that could be refused.
        let (stamp, _) = self.store(name, &value.into(), |key, record| Write::Put { key, record }).await?;
        Ok(stamp)
    }

    /// Stores a value if there is none.
    pub async fn insert(&self, name: &str, value: impl Into<Draft>) -> Result<ChangeOutcome> {
        let write = |key, record| Write::Insert { key, record };
        let (stamp, commit) = self.store(name, &value.into(), write).await?;
        Ok(if commit.is_applied() { ChangeOutcome::Applied(stamp) } else { ChangeOutcome::Refused })
    }

    /// Stores a value if the present version is `expected`. Its lifetime begins anew, as with [`set`](Self::set).
    pub async fn replace(
        &self,
        name: &str,
        expected: Version,
        value: impl Into<Draft>,
    ) -> Result<ChangeOutcome> {
        let write = |key, record| Write::Replace { key, expected, record };
        let (stamp, commit) = self.store(name, &value.into(), write).await?;
        Ok(if commit.is_applied() { ChangeOutcome::Applied(stamp) } else { ChangeOutcome::Refused })
    }

    /// Stores a value, linked to what it belongs to.
    async fn store(
        &self,
        name: &str,
        draft: &Draft,
        write: impl FnOnce(Key, Record) -> Write,
    ) -> Result<(Stamp, Commit)> {
        let key = self.key(name)?;
        let belongings = self.stores().belongings(self.scope());
        if let Some(parent) = &draft.belongs_to {
            belongings.link(parent, &key).await?;
        }
        let now = self.stores().now()?;
        let record = self.record(draft, now)?;
        let stamp = stamp(&record);
        let commit = self.commit(write(key.clone(), record), now).await?;
        if let Some(parent) = &draft.belongs_to
            && commit.is_applied()
        {
            belongings.keep_or_take_back(parent, &[key]).await?;
        }
        Ok((stamp, commit))
    }

    /// Stores `new` if the present value is `old`. For one occurrence of the old value, exactly one of any number of
    /// callers succeeds.
    ///
    /// Values are compared as JSON, without regard to the order of an object's names. Numbers are equal if both are
    /// integers, or both have a fraction or exponent, of one value: `1` is not `1.0`, and `1.0` is `1e0`.
    ///
    /// A `new` without a TTL keeps the lifetime: expiry, cap, and renewal by reads. With one, the lifetime begins
    /// anew. The timestamp is that of `new`.
    pub async fn compare_and_swap(
        &self,
        name: &str,
        old: &Value,
        new: impl Into<Draft>,
    ) -> Result<SwapOutcome> {
        let (key, new) = (&self.key(name)?, &new.into());
        let update = self.stores().retry(|now| async move {
            let get = self.stores().backend().get(key, now);
            let (present, is_deleted) = try_join(get, self.is_deleted(now)).await?;
            let Some(present) = present.filter(|_| !is_deleted) else {
                return Ok(Step::answer(SwapOutcome::Conflict { current: None }));
            };
            let stored = StoredAttribute::decode(&present)?;
            let current = stored.attribute(name.to_owned(), &present)?;
            if current.data != *old {
                return Ok(Step::answer(SwapOutcome::Conflict { current: Some(Box::new(current)) }));
            }
            let record = if new.lifetime().is_unset() {
                let kept = StoredAttribute::new(new, stored.lifetime())?;
                self.stores().record(kept.encode(), present.expires_at)
            } else {
                self.record(new, now)?
            };
            let answer = SwapOutcome::Swapped(stamp(&record));
            let write = Write::Replace { key: key.clone(), expected: present.version, record };
            Ok(Step::write(vec![write], answer))
        });
        update.await
    }

    /// Lists the bucket by name. It renews nothing.
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Listing<Attribute>> {
        check_limit(limit)?;
        let limit = limit.min(Attributes::PAGE);
        if self.is_deleted(self.stores().now()?).await? {
            return Ok(Listing { items: Vec::new(), next: None });
        }
        let page = bounded(self.stores(), &self.prefix()?, after, limit, self.stores().now()?).await?;
        Listing::read(page, |key, record| {
            StoredAttribute::decode(&record)?.attribute(names_of(&key)?.1, &record)
        })
    }

    /// Deletes an attribute. True only for the caller that removed it.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        let taken = self.stores().backend().take(&self.key(name)?, self.stores().now()?).await?;
        Ok(taken.is_some())
    }

    /// Deletes an attribute if the present version is `expected`. True only for the caller that removed it.
    pub async fn remove_if(&self, name: &str, expected: Version) -> Result<bool> {
        let commit = self.stores().backend().remove(self.key(name)?, expected, self.stores().now()?).await?;
        Ok(commit.is_applied())
    }

    /// Removes an attribute and returns it. Of any number of callers, at most one gets it.
    pub async fn take(&self, name: &str) -> Result<Option<Attribute>> {
        if self.is_deleted(self.stores().now()?).await? {
            return Ok(None);
        }
        let taken = self.stores().backend().take(&self.key(name)?, self.stores().now()?).await?;
        taken.map(|record| StoredAttribute::decode(&record)?.attribute(name.to_owned(), &record)).transpose()
    }

    /// Deletes every attribute of this bucket, and returns their number. One that is set meanwhile may be left. After
    /// an error, call it again to delete the rest.
    pub async fn delete_bucket(&self) -> Result<u64> {
        self.stores().admin().erase_all(&self.prefix()?, self.stores().now()?.earliest()).await
    }

    /// One step of [`delete_bucket`](Self::delete_bucket), for showing progress or stopping in between.
    pub async fn delete_bucket_step(&self) -> Result<Erased> {
        self.stores().admin().erase(&self.prefix()?, self.stores().now()?.earliest()).await
    }

    /// Commits a write that may create an attribute. Returns `Invalid` if the owner is being deleted.
    async fn commit(&self, write: Write, now: Now) -> Result<Commit> {
        let owner = [Principal::Owner(&self.owner)];
        self.stores().commit_for(self.scope(), &owner, vec![write], now).await?.unless_deleted()
    }

    /// Returns whether the owner is being deleted. Their attributes are absent then.
    async fn is_deleted(&self, now: Now) -> Result<bool> {
        self.stores().is_deleted(self.scope(), &[Principal::Owner(&self.owner)], now).await
    }

    pub(super) fn stores(&self) -> &Stores {
        &self.attributes.stores
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.attributes.scope
    }

    pub(super) fn key(&self, name: &str) -> Result<Key> {
        check_name(name)?;
        let sort = [self.name.as_str().into(), name.into()];
        Key::new(Kind::Attribute, self.scope(), &[self.owner.as_str().into()], &sort)
    }

    fn prefix(&self) -> Result<Prefix> {
        let bucket = [self.name.as_str().into()];
        Prefix::partition(Kind::Attribute, self.scope(), &[self.owner.as_str().into()], &bucket)
    }

    /// Writes an imported attribute if there is none. In a dry run, returns the result without a write.
    pub(crate) async fn restore(
        &self,
        name: &str,
        draft: &Draft,
        lifetime: Lifetime,
        expires_at: Timestamp,
        dry_run: bool,
    ) -> Result<Restored> {
        let key = self.key(name)?;
        let record = self.stores().record(StoredAttribute::new(draft, lifetime)?.encode(), expires_at);
        let owner = [Principal::Owner(&self.owner)];
        restore(self.stores(), vec![key], &owner, record, dry_run, |there| {
            Ok(StoredAttribute::decode(there)?.attribute(name.to_owned(), there)?.data == draft.data)
        })
        .await
    }

    /// Record of a draft whose lifetime begins now.
    pub(super) fn record(&self, draft: &Draft, now: Now) -> Result<Record> {
        let (lifetime, expires_at) =
            draft.lifetime().begin(self.stores(), Kind::Attribute, self.scope(), self.default_ttl, now)?;
        Ok(self.stores().record(StoredAttribute::new(draft, lifetime)?.encode(), expires_at))
    }
}

pub(super) fn stamp(record: &Record) -> Stamp {
    Stamp { version: record.version, expires_at: record.expires_at }
}
