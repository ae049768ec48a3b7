//! Requests.

use super::types::{RecordId, RecordValue};
use crate::model::error::{Error, Result};
use crate::model::record::Version;
use crate::model::time::Timestamp;
use crate::model::ttl::{Ttl, check_collection};
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::life::RecordTtl;

/// Name of one record: its collection, and its id or one of its second keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordAddress {
    pub(super) collection: String,
    pub(super) by: By,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    Id(RecordId),
    Key(String),
}

impl RecordAddress {
    /// Names a record by its id.
    pub fn id(collection: impl Into<String>, id: impl Into<RecordId>) -> Self {
        Self { collection: collection.into(), by: By::Id(id.into()) }
    }

    /// Names a record by one of its second keys. Use by second key costs one round trip more.
    pub fn key(collection: impl Into<String>, key: impl Into<String>) -> Self {
        Self { collection: collection.into(), by: By::Key(key.into()) }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_collection(&self.collection)?;
        match &self.by {
            By::Id(id) => id.check("an id"),
            By::Key(key) => check_name("key", key),
        }
    }
}

/// Condition on the live record. One that has expired, or whose group is revoked, is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecordCondition {
    /// Always holds.
    #[default]
    Any,
    /// Holds if there is no live record.
    Absent,
    /// Holds if there is a live record.
    Present,
    /// Holds if the live record has this version.
    Version(Version),
}

/// Record to write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct PutRecord {
    pub(super) collection: String,
    pub(super) id: RecordId,
    pub(super) value: RecordValue,
    pub(super) life: RecordTtl,
    pub(super) condition: RecordCondition,
    pub(super) keys: Vec<String>,
    pub(super) group: Option<String>,
    pub(super) retain: Option<Ttl>,
    pub(super) cap: Option<Ttl>,
    pub(super) slides: bool,
    pub(super) belongs_to: Option<Box<Parent>>,
    pub(super) inherits: bool,
    /// End of the live record that stands by itself, where this write inherits from it and the caller has read it.
    pub(super) kept_end: Option<Timestamp>,
}

impl PutRecord {
    /// Most second keys of one record.
    pub const MAX_KEYS: usize = 16;

    /// Writes `value` at `id`, whatever is there.
    pub fn new(
        collection: impl Into<String>,
        id: impl Into<RecordId>,
        value: impl Into<RecordValue>,
    ) -> Self {
        Self {
            collection: collection.into(),
            id: id.into(),
            value: value.into(),
            life: RecordTtl::Default,
            condition: RecordCondition::Any,
            keys: Vec::new(),
            group: None,
            retain: None,
            cap: None,
            slides: false,
            belongs_to: None,
            inherits: false,
            kept_end: None,
        }
    }

    /// Sets the lifetime.
    pub fn life(mut self, life: impl Into<RecordTtl>) -> Self {
        self.life = life.into();
        self
    }

    /// Writes only if the condition holds.
    pub fn only_if(mut self, condition: RecordCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Sets the second keys, each unique in the collection.
    pub fn keys<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys = keys.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the group, with which the record is revoked.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Keeps the record for reading for so long after its end.
    pub fn retain(mut self, retain: Ttl) -> Self {
        self.retain = Some(retain);
        self
    }

    /// Ends the record after `cap` at the latest: no touch reaches further.
    pub fn cap(mut self, cap: Ttl) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Lets each read renew the lifetime, which is a TTL, up to `cap`.
    pub fn sliding(mut self, cap: Ttl) -> Self {
        (self.cap, self.slides) = (Some(cap), true);
        self
    }

    /// Names what the record belongs to, and is removed with. A later put without it ends that.
    pub fn belongs_to(mut self, parent: Parent) -> Self {
        self.belongs_to = Some(Box::new(parent));
        self
    }

    /// Changes the value alone: the second keys, the group, what it belongs to, the retention and the cap of the live
    /// record stay. Without a live record it is as without this. [`RecordTtl::Keep`] keeps the end too.
    pub fn inheriting(mut self) -> Self {
        self.inherits = true;
        self
    }

    /// Returns true if what is written depends on the live record, and the caller has not read it.
    pub(super) fn needs_read(&self) -> bool {
        (self.inherits || self.life == RecordTtl::Keep) && self.kept_end.is_none()
    }

    /// Returns true if the record stands by itself: no second keys, no group, no cap, nothing that it belongs to, and
    /// gone at its end.
    pub(super) fn is_plain(&self) -> bool {
        let has_names = !self.keys.is_empty() || self.group.is_some() || self.belongs_to.is_some();
        !has_names && self.retain.is_none() && self.cap.is_none()
    }

    /// Returns true for a record that stands by itself and is to be new.
    pub(super) fn is_insert(&self) -> bool {
        self.condition == RecordCondition::Absent && self.is_plain() && !self.needs_read()
    }

    fn check_lifetime(&self) -> Result<()> {
        match (self.life, self.cap) {
            (RecordTtl::For(ttl), Some(cap)) if ttl > cap => {
                Err(Error::invalid(format!("a TTL of {ttl} is longer than its cap of {cap}"))
                    .about("ttl_seconds"))
            }
            (RecordTtl::For(_), Some(_)) => Ok(()),
            _ if self.slides => {
                Err(Error::invalid("a life that use renews needs a TTL and a longest TTL").about("sliding"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_collection(&self.collection)?;
        self.id.check("an id")?;
        self.value.check()?;
        self.check_lifetime()?;
        if self.inherits && !self.is_plain() {
            return Err(Error::invalid(
                "a write that inherits from the record has no keys, group or cap of its own",
            ));
        }
        if let Some(parent) = &self.belongs_to {
            parent.check()?;
        }
        if self.keys.len() > Self::MAX_KEYS {
            return Err(
                Error::invalid(format!("a record has at most {} second keys", Self::MAX_KEYS)).about("keys")
            );
        }
        for (index, key) in self.keys.iter().enumerate() {
            check_name("key", key)?;
            if self.keys[..index].contains(key) {
                return Err(Error::invalid("a record has each of its second keys once").about("keys"));
            }
        }
        self.group.as_ref().map_or(Ok(()), |group| check_name("group", group))
    }
}

/// New end of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct TouchRecord {
    pub(super) address: RecordAddress,
    pub(super) life: RecordTtl,
    pub(super) only_if: Option<TouchCondition>,
}

/// Condition on the present end of a record. No end is later than every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TouchCondition {
    /// The record has no end.
    Endless,
    /// The record has an end.
    Ends,
    /// The new end is later.
    Later,
    /// The new end is sooner.
    Sooner,
    /// The record has an end, and the new one is sooner.
    Shortens,
}

impl TouchRecord {
    /// Gives the record this lifetime from now on.
    pub fn new(address: RecordAddress, life: impl Into<RecordTtl>) -> Self {
        Self { address, life: life.into(), only_if: None }
    }

    /// Changes the end only if the condition holds.
    pub fn only_if(mut self, condition: TouchCondition) -> Self {
        self.only_if = Some(condition);
        self
    }
}

/// Addition to a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Increment {
    pub(super) collection: String,
    pub(super) id: RecordId,
    pub(super) by: i64,
    pub(super) life: RecordTtl,
    pub(super) limit: Option<i64>,
}

impl Increment {
    /// Adds one.
    pub fn new(collection: impl Into<String>, id: impl Into<RecordId>) -> Self {
        Self { collection: collection.into(), id: id.into(), by: 1, life: RecordTtl::Default, limit: None }
    }

    /// Adds this number.
    pub fn by(mut self, by: i64) -> Self {
        self.by = by;
        self
    }

    /// Sets the lifetime of the counter, counted from its creation.
    pub fn life(mut self, life: impl Into<RecordTtl>) -> Self {
        self.life = life.into();
        self
    }

    /// Refuses a sum above the limit.
    pub fn limit(mut self, limit: i64) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// Lease to acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Acquire {
    pub(super) collection: String,
    pub(super) id: RecordId,
    pub(super) life: RecordTtl,
}

impl Acquire {
    /// Acquires the lease for this time.
    pub fn new(collection: impl Into<String>, id: impl Into<RecordId>, life: impl Into<RecordTtl>) -> Self {
        Self { collection: collection.into(), id: id.into(), life: life.into() }
    }
}

/// One write of a batch. A batch names each id, and each second key, once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordWrite {
    /// Writes a record.
    Put(PutRecord),
    /// Deletes a record.
    Delete {
        /// Collection of the record.
        collection: String,
        /// Id of the record.
        id: RecordId,
        /// Condition of the delete.
        condition: RecordCondition,
    },
    /// Writes nothing, and refuses the batch unless the condition holds.
    Check {
        /// Collection of the record.
        collection: String,
        /// Id of the record.
        id: RecordId,
        /// Condition on the record.
        condition: RecordCondition,
    },
}

/// Change that [`modify`](super::Records::modify) makes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Modification {
    /// Writes this value.
    Put {
        /// Value to write.
        value: RecordValue,
        /// Lifetime of the record.
        life: RecordTtl,
    },
    /// Deletes the record.
    Delete,
    /// Leaves the record unchanged.
    Keep,
}

/// Longest second key or group, in bytes.
const MAX_NAME_BYTES: usize = 1_024;

pub(super) fn check_name(member: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let message = format!("a {member} has 1 to {MAX_NAME_BYTES} bytes; this one has {}", name.len());
        return Err(Error::invalid(message).about(member));
    }
    Ok(())
}
