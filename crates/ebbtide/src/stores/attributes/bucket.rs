//! One bucket of one owner.

use futures_util::future::try_join;
use serde_json::Value;

use super::draft::{Attribute, Draft, Stamp, StoredAttribute};
use super::{Attributes, names_of};
use crate::admin::AdminExt as _;
use crate::admin::Erased;
use crate::backend::{BackendExt, Cursor};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Commit, Write};
use crate::stores::Stores;
use crate::stores::shared::paging::{Listing, check_limit};
use crate::stores::shared::tombstones::Principal;

/// How often a change by value is judged anew because another was faster.
const MAX_ATTEMPTS: usize = 200;

/// One bucket of one owner. Nothing is kept between calls: every answer is the store's.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(super) attributes: Attributes,
    owner: String,
    name: String,
    default_ttl: Option<Ttl>,
}

/// The answer to a write with a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a refused change has written nothing"]
pub enum Change {
    /// It is written.
    Applied(Stamp),
    /// The condition did not hold, and nothing was written.
    Refused,
}

/// The answer to a change by value.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a conflict has written nothing"]
pub enum SwapOutcome {
    /// The old value stood there, and the new one does now.
    Swapped(Stamp),
    /// Something else stands there, or nothing; nothing was written.
    Conflict {
        /// What stands there.
        current: Option<Box<Attribute>>,
    },
}

impl Bucket {
    pub(super) fn new(attributes: Attributes, owner: String, name: String) -> Result<Self> {
        // The bounds are the key's own.
        Prefix::partition(
            Kind::Attribute,
            &attributes.scope,
            &[owner.as_str().into()],
            &[name.as_str().into()],
        )?;
        Ok(Self { attributes, owner, name, default_ttl: None })
    }

    /// Ends after that long what is set here without a TTL.
    #[must_use]
    pub fn with_default_ttl(mut self, ttl: Option<Ttl>) -> Self {
        self.default_ttl = ttl;
        self
    }

    /// The owner.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The bucket's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stores a value, whatever is there. Without a TTL it has the bucket's or the policy's default; where there is
    /// none either it does not end, whatever stood there before.
    pub async fn set(&self, name: &str, value: impl Into<Draft>) -> Result<Stamp> {
        let (key, now) = (self.key(name)?, self.stores().now());
        let record = self.record(&value.into(), now)?;
        let stamp = stamp(&record);
        // A put has no condition of its own that could be refused.
        let _ = self.commit(Write::Put { key, record }, now).await?;
        Ok(stamp)
    }

    /// Stores a value if there is none.
    pub async fn insert(&self, name: &str, value: impl Into<Draft>) -> Result<Change> {
        let (key, now) = (self.key(name)?, self.stores().now());
        let record = self.record(&value.into(), now)?;
        let stamp = stamp(&record);
        let commit = self.commit(Write::Insert { key, record }, now).await?;
        Ok(if commit.is_applied() { Change::Applied(stamp) } else { Change::Refused })
    }

    /// Stores a value if that version stands there. Its life begins anew, as with [`set`](Self::set).
    pub async fn replace(&self, name: &str, expected: Version, value: impl Into<Draft>) -> Result<Change> {
        let (key, now) = (self.key(name)?, self.stores().now());
        let record = self.record(&value.into(), now)?;
        let stamp = stamp(&record);
        let commit = self.stores().backend().replace(key, expected, record, now).await?;
        Ok(if commit.is_applied() { Change::Applied(stamp) } else { Change::Refused })
    }

    /// Stores `new` if the value that stands there is `old`. Of any number of callers with one old value, as many
    /// swap as there are times at which it stood there.
    ///
    /// Values are compared as JSON: the order of an object's names is no difference. Numbers are equal if both are
    /// integers, or both have a fraction or exponent, of one value: `1` is not `1.0`, and `1.0` is `1e0`.
    ///
    /// A `new` without a TTL keeps the life that stands: its end, its cap, and whether reads renew it. With one, its
    /// life begins anew. The timestamp is that of `new`.
    pub async fn compare_and_swap(
        &self,
        name: &str,
        old: &Value,
        new: impl Into<Draft>,
    ) -> Result<SwapOutcome> {
        let (key, new) = (self.key(name)?, new.into());
        for _ in 0..MAX_ATTEMPTS {
            let now = self.stores().now();
            let get = self.stores().backend().get(&key, now);
            let (standing, is_deleted) = try_join(get, self.is_deleted(now)).await?;
            let Some(standing) = standing.filter(|_| !is_deleted) else {
                return Ok(SwapOutcome::Conflict { current: None });
            };
            let stored = StoredAttribute::decode(&standing)?;
            let current = stored.attribute(name.to_owned(), &standing)?;
            if current.data != *old {
                return Ok(SwapOutcome::Conflict { current: Some(Box::new(current)) });
            }
            let record = if new.span.is_unsaid() {
                let kept = StoredAttribute::new(&new, stored.lifetime())?;
                self.stores().record(kept.encode(), standing.expires_at)
            } else {
                self.record(&new, now)?
            };
            let stamp = stamp(&record);
            let commit = self.stores().backend().replace(key.clone(), standing.version, record, now).await?;
            if commit.is_applied() {
                return Ok(SwapOutcome::Swapped(stamp));
            }
            // Something was faster. Whether that changed the value is for the next reading to say.
        }
        Err(Error::unavailable("other changes kept being faster: nothing was written"))
    }

    /// A page of the bucket, by name. It renews nothing.
    pub async fn list(&self, after: Option<&Cursor>, limit: usize) -> Result<Listing<Attribute>> {
        check_limit(limit)?;
        let limit = limit.min(Attributes::PAGE);
        if self.is_deleted(self.stores().now()).await? {
            return Ok(Listing { items: Vec::new(), next: None });
        }
        let page = self.stores().backend().scan(&self.prefix()?, after, limit, self.stores().now()).await?;
        Listing::read(page, |key, record| {
            StoredAttribute::decode(&record)?.attribute(names_of(&key)?.1, &record)
        })
    }

    /// Deletes an attribute. True only for the caller that removed it, and false where there was none.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        let taken = self.stores().backend().take(&self.key(name)?, self.stores().now()).await?;
        Ok(taken.is_some())
    }

    /// Deletes an attribute if that version stands there. True only for the caller that removed it.
    pub async fn remove_if(&self, name: &str, expected: Version) -> Result<bool> {
        let commit = self.stores().backend().remove(self.key(name)?, expected, self.stores().now()).await?;
        Ok(commit.is_applied())
    }

    /// Removes an attribute and returns it. Of any number of callers, at most one gets it.
    pub async fn take(&self, name: &str) -> Result<Option<Attribute>> {
        if self.is_deleted(self.stores().now()).await? {
            return Ok(None);
        }
        let taken = self.stores().backend().take(&self.key(name)?, self.stores().now()).await?;
        taken.map(|record| StoredAttribute::decode(&record)?.attribute(name.to_owned(), &record)).transpose()
    }

    /// Deletes every attribute of this bucket alone, and says how many there were. What is set meanwhile may stay.
    /// After an error, call it again: it goes on with what is left.
    pub async fn delete_bucket(&self) -> Result<u64> {
        self.stores().admin().erase_all(&self.prefix()?, self.stores().now()).await
    }

    /// One step of [`delete_bucket`](Self::delete_bucket), for showing how far it is or stopping in between.
    pub async fn delete_bucket_step(&self) -> Result<Erased> {
        self.stores().admin().erase(&self.prefix()?, self.stores().now()).await
    }

    /// Commits a write that may make an attribute; for an owner who is being deleted it is invalid.
    async fn commit(&self, write: Write, now: Timestamp) -> Result<Commit> {
        let owner = [Principal::Owner(&self.owner)];
        self.stores().commit_for(self.scope(), &owner, vec![write], now).await?.unless_deleted()
    }

    /// Whether the owner is being deleted: then nothing is there.
    async fn is_deleted(&self, now: Timestamp) -> Result<bool> {
        self.stores().is_deleted(self.scope(), &[Principal::Owner(&self.owner)], now).await
    }

    pub(super) fn stores(&self) -> &Stores {
        &self.attributes.stores
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.attributes.scope
    }

    pub(super) fn key(&self, name: &str) -> Result<Key> {
        let sort = [self.name.as_str().into(), name.into()];
        Key::new(Kind::Attribute, self.scope(), &[self.owner.as_str().into()], &sort)
    }

    fn prefix(&self) -> Result<Prefix> {
        let bucket = [self.name.as_str().into()];
        Prefix::partition(Kind::Attribute, self.scope(), &[self.owner.as_str().into()], &bucket)
    }

    /// The record of a draft whose life begins now.
    pub(super) fn record(&self, draft: &Draft, now: Timestamp) -> Result<Record> {
        let (lifetime, expires_at) =
            draft.span.begin(self.stores(), Kind::Attribute, self.scope(), self.default_ttl, now)?;
        Ok(self.stores().record(StoredAttribute::new(draft, lifetime)?.encode(), expires_at))
    }
}

pub(super) fn stamp(record: &Record) -> Stamp {
    Stamp { version: record.version, expires_at: record.expires_at }
}
