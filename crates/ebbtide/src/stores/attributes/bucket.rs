//! Bucket of one owner.

use futures_util::future::try_join;
use serde_json::Value;

use super::draft::{Attribute, Draft, Stamp, StoredAttribute};
use super::stored::Condition;
use super::{Attributes, BucketExtend, names_of, parent_of};
use crate::admin::{AdminExt as _, Erased};
use crate::backend::Cursor;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Commit, Write};
use crate::stores::shared::lifetime::{Lifetime, RestoreTerms, Restored, restore};
use crate::stores::shared::paging::{Listing, bounded, check_limit};
use crate::stores::shared::parents::{MetParents, Parent, ParentName};
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;
use crate::stores::{Stores, name_member};
use crate::timekeeping::Now;

/// Bucket of one owner.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(super) attributes: Attributes,
    owner: String,
    name: String,
    default_ttl: Option<Ttl>,
    /// False if the caller may not lengthen the life of a live attribute.
    may_lengthen: bool,
}

/// Answer to a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a refused change has written nothing"]
#[non_exhaustive]
pub enum ChangeOutcome {
    /// It is written.
    Applied(Stamp),
    /// The condition did not hold, and nothing was written.
    Refused,
    /// It would lengthen the life of the attribute that is there, which the caller may not: extend that instead.
    Longer {
        /// Time at which the present one expires.
        expires_at: Timestamp,
    },
}

/// Answer to a change by value.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a conflict has written nothing"]
#[non_exhaustive]
pub enum SwapOutcome {
    /// The value was the old one, and is the new one now.
    Swapped(Stamp),
    /// The value is another, or there is none; nothing was written.
    Conflict {
        /// Present attribute.
        current: Option<Box<Attribute>>,
    },
    /// It would lengthen the life of the attribute, which the caller may not; nothing was written.
    Longer {
        /// Time at which it expires.
        expires_at: Timestamp,
    },
}

/// Refuses `.` and `..`: in a path they mean another path, and the name could not be reached, or deletes more.
fn check_name(member: &'static str, name: &str) -> Result<()> {
    if name == "." || name == ".." {
        return Err(Error::invalid(
            "`.` and `..` are not allowed as the name of an owner, a bucket or an attribute",
        )
        .about(member));
    }
    Ok(())
}

impl Bucket {
    pub(super) fn new(attributes: Attributes, owner: String, name: String) -> Result<Self> {
        check_name("owner", &owner)?;
        check_name("bucket", &name)?;
        // The key checks the lengths of the names.
        let (partition, sort) = ([owner.as_str().into()], [name.as_str().into()]);
        let prefix = Prefix::partition(Kind::Attribute, &attributes.scope, &partition, &sort);
        name_member(prefix, &[("owner", &owner), ("bucket", &name)])?;
        let default_ttl = attributes.stores.bucket_ttl(&owner, &name);
        Ok(Self { attributes, owner, name, default_ttl, may_lengthen: true })
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

    /// Returns the bucket for a caller that may not extend: where the configuration makes that a privilege, its writes
    /// never lengthen the life of a live attribute.
    #[must_use]
    pub fn for_writer(mut self) -> Self {
        self.may_lengthen = self.stores().bucket_extend(&self.owner, &self.name) == BucketExtend::Free;
        self
    }

    pub(super) fn may_lengthen(&self) -> bool {
        self.may_lengthen
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
        match self.put(name, value).await? {
            ChangeOutcome::Applied(stamp) => Ok(stamp),
            ChangeOutcome::Longer { .. } => {
                Err(Error::invalid("the attribute would live longer than the one that exists"))
            }
            ChangeOutcome::Refused => Err(Error::corrupt("a write without a condition was refused")),
        }
    }

    /// Stores a value as [`set`](Self::set) does, for a caller that may not extend.
    pub async fn put(&self, name: &str, value: impl Into<Draft>) -> Result<ChangeOutcome> {
        self.store(name, &value.into(), Condition::Any).await
    }

    /// Stores a value if there is none.
    pub async fn insert(&self, name: &str, value: impl Into<Draft>) -> Result<ChangeOutcome> {
        self.store(name, &value.into(), Condition::Absent).await
    }

    /// Stores a value if the present version is `expected`. Its lifetime begins anew, as with [`set`](Self::set).
    pub async fn replace(
        &self,
        name: &str,
        expected: Version,
        value: impl Into<Draft>,
    ) -> Result<ChangeOutcome> {
        self.store(name, &value.into(), Condition::Is(expected)).await
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
        if new.belongs_to.is_some() {
            return Err(
                Error::invalid("a comparison keeps what the attribute belongs to").about("belongs_to")
            );
        }
        let update = self.stores().retry(|now| async move {
            let get = self.stores().backend().get(key, now);
            let (present, is_deleted) = try_join(get, self.is_deleted(now)).await?;
            let Some(present) = present.filter(|_| !is_deleted) else {
                return Ok(Step::answer(SwapOutcome::Conflict { current: None }));
            };
            let stored = StoredAttribute::decode(&present)?;
            if self.has_ended(&stored, now).await? {
                return Ok(Step::answer(SwapOutcome::Conflict { current: None }));
            }
            let current = stored.attribute(name.to_owned(), &present)?;
            if current.data != *old {
                return Ok(Step::answer(SwapOutcome::Conflict { current: Some(Box::new(current)) }));
            }
            let parent = stored.parent().cloned().unwrap_or_default();
            let record = if new.lifetime().is_unset() {
                let kept = StoredAttribute::new(new, stored.lifetime(), parent)?;
                self.stores().record(kept.encode(), present.expires_at)
            } else {
                self.record(new, parent, now)?
            };
            if let Some(expires_at) = self.lengthened(&stored, &present, &record)? {
                return Ok(Step::answer(SwapOutcome::Longer { expires_at }));
            }
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
        let now = self.stores().now()?;
        let mut page = bounded(self.stores(), &self.prefix()?, after, limit, now).await?;
        let (mut parents, mut ended) = (MetParents::new(self.stores(), now), Vec::new());
        for (_, record) in &page.items {
            ended.push(parents.ended(self.scope(), parent_of(record)?.as_ref()).await?);
        }
        let mut ended = ended.into_iter();
        page.items.retain(|_| ended.next() == Some(false));
        Listing::read(page, |key, record| {
            StoredAttribute::decode(&record)?.attribute(names_of(&key)?.1, &record)
        })
    }

    /// Deletes an attribute. True only for the caller that removed it.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        Ok(self.remove(name).await?.is_some())
    }

    /// Deletes an attribute if the present version is `expected`. True only for the caller that removed it.
    pub async fn remove_if(&self, name: &str, expected: Version) -> Result<bool> {
        let key = self.key(name)?;
        let up = self.stores().belongings(self.scope()).up(&key)?;
        let writes = vec![Write::Remove { key, expected }, Write::Absent { key: up }];
        match self.stores().backend().commit(Batch::new(writes)?, self.stores().now()?).await? {
            Commit::Applied => Ok(true),
            Commit::Refused { index: 0 } => Ok(false),
            Commit::Refused { .. } => self.remove_linked(name, expected).await,
        }
    }

    /// Removes an attribute and returns it. Of any number of callers, at most one gets it.
    pub async fn take(&self, name: &str) -> Result<Option<Attribute>> {
        if self.is_deleted(self.stores().now()?).await? {
            return Ok(None);
        }
        let taken = self.remove(name).await?;
        taken.map(|(stored, record)| stored.attribute(name.to_owned(), &record)).transpose()
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
        check_name("name", name)?;
        let sort = [self.name.as_str().into(), name.into()];
        let key = Key::new(Kind::Attribute, self.scope(), &[self.owner.as_str().into()], &sort);
        name_member(key, &[("owner", &self.owner), ("bucket", &self.name), ("name", name)])
    }

    fn prefix(&self) -> Result<Prefix> {
        let bucket = [self.name.as_str().into()];
        Prefix::partition(Kind::Attribute, self.scope(), &[self.owner.as_str().into()], &bucket)
    }

    /// Writes an imported attribute with its link, if there is none. In a dry run, returns the result without a write.
    pub(crate) async fn restore(
        &self,
        name: &str,
        draft: &Draft,
        lifetime: Lifetime,
        expires_at: Timestamp,
        dry_run: bool,
    ) -> Result<Restored> {
        let key = self.key(name)?;
        let belongings = self.stores().belongings(self.scope());
        let parent = belongings.name_of_imported(draft.belongs_to.as_ref(), dry_run).await?;
        let stored = StoredAttribute::new(draft, lifetime, parent.clone())?;
        let record = self.stores().record(stored.encode(), expires_at);
        let (keys, version) = (vec![key], record.version);
        let mut owners = vec![Principal::Owner(&self.owner)];
        owners.extend(draft.belongs_to.as_ref().and_then(Parent::owner));
        let terms = RestoreTerms { dry_run, note: None, links: belongings.links(&parent, &keys[0])? };
        let same = |there: &Record| {
            Ok(StoredAttribute::decode(there)?.attribute(name.to_owned(), there)?.data == draft.data)
        };
        let restored = restore(self.stores(), keys.clone(), &owners, record, terms, same).await?;
        if restored == Restored::Written && !dry_run {
            belongings.keep_or_take_back(&parent, &keys, version).await?;
        }
        Ok(restored)
    }

    /// Record of a draft whose lifetime begins now.
    pub(super) fn record(&self, draft: &Draft, parent: ParentName, now: Now) -> Result<Record> {
        let (lifetime, expires_at) =
            draft.lifetime().begin(self.stores(), Kind::Attribute, self.scope(), self.default_ttl, now)?;
        Ok(self.stores().record(StoredAttribute::new(draft, lifetime, parent)?.encode(), expires_at))
    }
}

pub(super) fn stamp(record: &Record) -> Stamp {
    Stamp { version: record.version, expires_at: record.expires_at }
}
