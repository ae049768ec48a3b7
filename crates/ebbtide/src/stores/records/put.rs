//! Writes of one record.

use std::time::Duration;

use super::naming::Naming;
use super::request::{Modification, PutRecord, RecordAddress, RecordCondition, RecordWrite};
use super::state::{OpenedRecord, RecordContent, has_plain_shape, is_plain};
use super::turn::Turn;
use super::types::{DeleteOutcome, FoundRecord, PutOutcome, Refusal};
use super::{ATTEMPTS, Records, contended};
use crate::model::alteration::Alteration;
use crate::model::error::{Error, Result};
use crate::model::write::{Batch, Write};
use crate::stores::shared::life::RecordTtl;
use crate::stores::shared::parents::ParentName;
use crate::timekeeping::Now;

impl Records {
    /// Writes a record if its condition holds. One round trip; with second keys, a group, a retention or what it belongs
    /// to, and where the present record decides, two.
    pub async fn put(&self, put: &PutRecord) -> Result<PutOutcome> {
        self.put_in_turn(put, &mut Turn::default()).await
    }

    /// The same for a caller that may have a turn already.
    async fn put_in_turn(&self, put: &PutRecord, turn: &mut Turn) -> Result<PutOutcome> {
        put.check()?;
        if put.is_plain() && !put.needs_read() {
            match put.condition {
                RecordCondition::Any if !put.inherits => return self.swap(put).await,
                RecordCondition::Version(expected) if is_plain(expected) => {
                    return self.put_plain(put, Some(expected)).await;
                }
                RecordCondition::Absent => match self.put_plain(put, None).await? {
                    // One that is retained, or whose group is revoked, is in the way and yet absent.
                    PutOutcome::Conflict => {}
                    outcome => return Ok(outcome),
                },
                RecordCondition::Version(_) | RecordCondition::Present | RecordCondition::Any => {}
            }
        }
        self.put_linked_in_turn(put, turn).await
    }

    /// Writes a record whose condition, or whose links, need a look at what is there.
    pub(super) async fn put_linked(&self, put: &PutRecord) -> Result<PutOutcome> {
        self.put_linked_in_turn(put, &mut Turn::default()).await
    }

    async fn put_linked_in_turn(&self, put: &PutRecord, turn: &mut Turn) -> Result<PutOutcome> {
        let writes = [RecordWrite::Put(put.clone())];
        match self.commit_records(&writes, turn).await? {
            Ok(mut written) => written
                .pop()
                .and_then(|written| written.stored)
                .ok_or_else(|| Error::corrupt("a put was answered as another write")),
            Err((_, Refusal::Conflict)) => Ok(PutOutcome::Conflict),
            Err((_, Refusal::Revoked)) => Ok(PutOutcome::Revoked),
            Err((_, Refusal::Expired)) => Ok(PutOutcome::Expired),
        }
    }

    /// Changes the record at `id` by a function of the live record. Of concurrent changes none is lost. The function
    /// may be called again, if another writer was faster.
    pub async fn modify(
        &self,
        collection: &str,
        id: &super::RecordId,
        mut change: impl FnMut(Option<&FoundRecord>) -> Result<Modification> + Send,
    ) -> Result<Option<FoundRecord>> {
        let address = RecordAddress::id(collection, id.clone());
        let mut turn = Turn::default();
        for _ in 0..ATTEMPTS {
            let found = self.get(&address).await?.found();
            let condition = match &found {
                Some(found) => RecordCondition::Version(found.version),
                None => RecordCondition::Absent,
            };
            match change(found.as_ref())? {
                Modification::Keep => return Ok(found),
                Modification::Delete if found.is_none() => return Ok(None),
                Modification::Delete => {
                    let deleted = self.delete_in_turn(&address, condition, &mut turn).await?;
                    if deleted == DeleteOutcome::Deleted {
                        return Ok(found);
                    }
                }
                Modification::Put { value, life } => {
                    let mut put = PutRecord::new(collection, id.clone(), value).life(life).only_if(condition);
                    match &found {
                        Some(found) if life == RecordTtl::Keep => {
                            put.inherits = true;
                            // The mark of a consumed record is inherited too, by a read.
                            put.kept_end = found.consumed_at.is_none().then_some(found.expires_at);
                        }
                        None if life == RecordTtl::Keep => put.life = RecordTtl::Default,
                        _ => {}
                    }
                    let inherits = put.inherits;
                    match self.put_in_turn(&put, &mut turn).await? {
                        PutOutcome::Stored { .. } => return Ok(found),
                        PutOutcome::Expired if inherits => {}
                        PutOutcome::Expired => {
                            return Err(
                                Error::invalid("the end that was asked for has passed").about("expires_at")
                            );
                        }
                        PutOutcome::Conflict | PutOutcome::Revoked => {}
                    }
                }
            }
            self.wait_turn(&address, &mut turn).await;
        }
        Err(contended())
    }

    /// Inserts a record that stands by itself, or replaces one of this version.
    async fn put_plain(
        &self,
        put: &PutRecord,
        expected: Option<crate::model::record::Version>,
    ) -> Result<PutOutcome> {
        let key = self.naming().await?.record(&put.collection, put.id.as_bytes())?;
        let now = self.stores.now()?;
        let end = match put.kept_end {
            Some(kept) => Some(kept).filter(|kept| now.may_write(*kept)),
            None => self.end_of(&put.collection, put.life, None, now)?,
        };
        let Some(expires_at) = end else { return Ok(PutOutcome::Expired) };
        let record = self.stores.seal_record(&key, RecordContent::new(&put.id, &put.value), expires_at)?;
        let version = record.version;
        let write = match expected {
            Some(expected) => Write::Replace { key, expected, record },
            None => Write::Insert { key, record },
        };
        let commit = self.stores.backend().commit(Batch::try_from(write)?, now).await?;
        let created = expected.is_none();
        Ok(if commit.is_applied() {
            PutOutcome::Stored { version, expires_at, created, previous: None }
        } else {
            PutOutcome::Conflict
        })
    }

    /// Writes a record that stands by itself, whatever is there.
    async fn swap(&self, put: &PutRecord) -> Result<PutOutcome> {
        let naming = self.naming().await?;
        let key = naming.record(&put.collection, put.id.as_bytes())?;
        let now = self.stores.now()?;
        let Some(expires_at) = self.end_of(&put.collection, put.life, None, now)? else {
            return Ok(PutOutcome::Expired);
        };
        let record = self.stores.seal_record(&key, RecordContent::new(&put.id, &put.value), expires_at)?;
        let version = record.version;
        let before = self.stores.backend().alter(&key, &Alteration::Swap { record }, now).await?.record;
        let mut previous = None;
        if let Some(before) = before {
            let linked = !has_plain_shape(&before);
            let standing = self.stores.open_record(&key, before)?;
            let live = now.before(standing.ends_at()?)?
                && !self.is_revoked(&naming, &put.collection, &standing, now).await?;
            if linked {
                self.remove_entries(&naming, &put.collection, &standing, now).await?;
                let mut unlink = self.unlinks_of(&key, &standing)?;
                if !unlink.is_empty() {
                    // Unless another writer has linked it anew.
                    unlink.push(Write::Check { key: key.clone(), expected: version });
                    let _ = self.stores.backend().commit(Batch::new(unlink)?, now).await?;
                }
            }
            previous = if live { Some(standing.found()?) } else { None };
        }
        Ok(PutOutcome::Stored { version, expires_at, created: previous.is_none(), previous })
    }

    /// Removes the entries of a record that is replaced. They lead to nothing, and would stay until its end.
    async fn remove_entries(
        &self,
        naming: &Naming<'_>,
        collection: &str,
        standing: &OpenedRecord,
        now: Now,
    ) -> Result<()> {
        let mut removals = Vec::new();
        for name in &standing.state.keys {
            let key = naming.second_key(collection, name)?;
            removals.push(Batch::try_from(Write::Remove { key, expected: standing.record.version })?);
        }
        if !removals.is_empty() {
            let _ = self.stores.backend().commit_each(removals, now).await?;
        }
        Ok(())
    }

    /// State of a record that is to be written, without its end.
    pub(super) fn state_of(put: &PutRecord, parent: Option<&ParentName>) -> RecordContent {
        let mut state = RecordContent::new(&put.id, &put.value);
        state.group.clone_from(&put.group);
        state.keys.clone_from(&put.keys);
        let born = parent.and_then(ParentName::born);
        if let Some(parent) = &put.belongs_to {
            state.belong_to(parent, born);
        }
        let millis = |retain: Duration| u64::try_from(retain.as_millis()).unwrap_or(u64::MAX);
        state.retain_millis = put.retain.map(|retain| millis(retain.duration()));
        state
    }
}
