//! Writes and removals of attributes, with the links to what they belong to.

use super::bucket::{Bucket, ChangeOutcome, stamp};
use super::draft::{Draft, StoredAttribute};
use crate::model::error::Result;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::write::{Commit, Write};
use crate::stores::shared::parents::{Parent, ParentName};
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;
use crate::timekeeping::Now;

/// Condition of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    /// None.
    Any,
    /// There is no attribute.
    Absent,
    /// The present version is this one.
    Is(Version),
}

impl Bucket {
    /// Stores a value if the condition holds. One commit, unless the value belongs to something or may replace one that
    /// does.
    pub(super) async fn store(
        &self,
        name: &str,
        draft: &Draft,
        condition: Condition,
    ) -> Result<ChangeOutcome> {
        if draft.belongs_to.is_some() || !self.may_lengthen() {
            return self.store_linked(name, draft, condition).await;
        }
        let (key, now) = (self.key(name)?, self.stores().now()?);
        let record = self.record(draft, ParentName::default(), now)?;
        let stamp = stamp(&record);
        let writes = match condition {
            Condition::Any => vec![Write::Put { key, record }],
            Condition::Absent => vec![Write::Insert { key, record }],
            Condition::Is(expected) => {
                // An attribute without a link has nothing that it could have ended with.
                let up = self.stores().belongings(self.scope()).up(&key)?;
                vec![Write::Replace { key, expected, record }, Write::Absent { key: up }]
            }
        };
        let owner = [Principal::Owner(self.owner())];
        let commit = self.stores().commit_for(self.scope(), &owner, writes, now).await?.unless_deleted()?;
        match (commit, condition) {
            (Commit::Applied, _) => Ok(ChangeOutcome::Applied(stamp)),
            (Commit::Refused { index: 0 }, Condition::Is(_)) => Ok(ChangeOutcome::Refused),
            // One that has ended with what it belongs to is in the way and yet absent.
            (Commit::Refused { .. }, _) => self.store_linked(name, draft, condition).await,
        }
    }

    /// Stores a value after a look at what is there.
    async fn store_linked(&self, name: &str, draft: &Draft, condition: Condition) -> Result<ChangeOutcome> {
        let key = &self.key(name)?;
        let belongings = &self.stores().belongings(self.scope());
        let mut owners = vec![Principal::Owner(self.owner())];
        owners.extend(draft.belongs_to.as_ref().and_then(Parent::owner));
        let owners = &owners;
        let update = self.stores().retry(|now| async move {
            let present = self.stores().backend().get(key, now).await?;
            let stored = present.as_ref().map(StoredAttribute::decode).transpose()?;
            let is_live = match &stored {
                Some(stored) => !self.has_ended(stored, now).await?,
                None => false,
            };
            let version = present.as_ref().map(|present| present.version);
            let holds = match condition {
                Condition::Any => true,
                Condition::Absent => !is_live,
                Condition::Is(expected) => is_live && version == Some(expected),
            };
            if !holds {
                return Ok(Step::answer((ChangeOutcome::Refused, None)));
            }
            let parent = match &draft.belongs_to {
                Some(parent) => belongings.name_of(parent, now).await?,
                None => ParentName::default(),
            };
            let record = self.record(draft, parent.clone(), now)?;
            if let (Some(stored), Some(present), true) = (&stored, &present, is_live)
                && let Some(expires_at) = self.lengthened(stored, present, &record)?
            {
                return Ok(Step::answer((ChangeOutcome::Longer { expires_at }, None)));
            }
            let earlier = stored.as_ref().and_then(StoredAttribute::parent);
            let mut writes = belongings.relinks(earlier, &parent, key)?;
            let (key, stamp) = (key.clone(), stamp(&record));
            let answer = (ChangeOutcome::Applied(stamp), Some((parent, stamp.version)));
            writes.push(match version {
                Some(expected) => Write::Replace { key, expected, record },
                None => Write::Insert { key, record },
            });
            Step::write(writes, answer).unless_deleted(self.scope(), owners)
        });
        let (outcome, written) = update.await?;
        if let Some((parent, version)) = written {
            belongings.keep_or_take_back(&parent, std::slice::from_ref(key), version).await?;
        }
        Ok(outcome)
    }

    /// End of the live attribute, if `record` would lengthen its life and the caller may not.
    pub(super) fn lengthened(
        &self,
        stored: &StoredAttribute,
        present: &Record,
        record: &Record,
    ) -> Result<Option<Timestamp>> {
        if self.may_lengthen() {
            return Ok(None);
        }
        let reach = StoredAttribute::decode(record)?.lifetime().reach(record.expires_at)?;
        let longest = stored.lifetime().reach(present.expires_at)?;
        Ok((reach > longest).then_some(present.expires_at))
    }

    /// Removes an attribute with its links, and returns it; none if it has ended with what it belongs to.
    pub(super) async fn remove(&self, name: &str) -> Result<Option<(StoredAttribute, Record)>> {
        let (key, now) = (self.key(name)?, self.stores().now()?);
        let Some(record) = self.stores().backend().take(&key, now).await? else { return Ok(None) };
        let stored = StoredAttribute::decode(&record)?;
        let Some(parent) = stored.parent().filter(|parent| !parent.is_none()) else {
            return Ok(Some((stored, record)));
        };
        let belongings = self.stores().belongings(self.scope());
        let has_ended = belongings.has_ended(parent, now).await?;
        belongings.unlink(parent, &key, now).await?;
        Ok((!has_ended).then_some((stored, record)))
    }

    /// Removes an attribute of this version that has a link.
    pub(super) async fn remove_linked(&self, name: &str, expected: Version) -> Result<bool> {
        let key = &self.key(name)?;
        let belongings = &self.stores().belongings(self.scope());
        let update = self.stores().retry(|now| async move {
            let present = self.stores().backend().get(key, now).await?;
            let Some(present) = present.filter(|present| present.version == expected) else {
                return Ok(Step::answer(false));
            };
            let stored = StoredAttribute::decode(&present)?;
            if self.has_ended(&stored, now).await? {
                return Ok(Step::answer(false));
            }
            let mut writes = belongings.relinks(stored.parent(), &ParentName::default(), key)?;
            writes.push(Write::Remove { key: key.clone(), expected });
            Ok(Step::write(writes, true))
        });
        update.await
    }

    /// Returns whether an attribute has ended with what it belongs to.
    pub(super) async fn has_ended(&self, stored: &StoredAttribute, now: Now) -> Result<bool> {
        match stored.parent() {
            Some(parent) => self.stores().belongings(self.scope()).has_ended(parent, now).await,
            None => Ok(false),
        }
    }
}
