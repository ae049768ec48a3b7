//! Changes of one live record: take, consume, touch, delete.

use super::naming::Naming;
use super::request::{By, RecordAddress, RecordCondition, TouchCondition, TouchRecord};
use super::state::{OpenedRecord, PLAIN, RecordContent, is_plain};
use super::turn::Turn;
use super::types::{ConsumeOutcome, DeleteOutcome, FoundRecord, TouchOutcome};
use super::{ATTEMPTS, Records, contended};
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::shared::life::RecordTtl;
use crate::timekeeping::Now;

/// Verdict on a live record.
pub(super) enum ChangeDecision<T> {
    /// Answers without a write.
    Answer(T),
    /// Removes the record.
    Remove(T),
    /// Writes the state with this end.
    Rewrite(Box<RecordContent>, Timestamp, fn(FoundRecord) -> T),
}

impl Records {
    /// Removes a record and returns it. Of any number of callers at most one gets it. One round trip, with a group or
    /// second keys two.
    pub async fn take(&self, address: &RecordAddress) -> Result<Option<FoundRecord>> {
        address.check()?;
        let mut first = None;
        if let By::Id(id) = &address.by {
            let key = self.naming().await?.record(&address.collection, id.as_bytes())?;
            match self.alter(&key, &Alteration::Take { first: PLAIN }).await? {
                Altered { record: None, .. } => return Ok(None),
                Altered { applied: true, record: Some(record) } => {
                    return self.stores.open_record(&key, record)?.found().map(Some);
                }
                Altered { record: Some(record), .. } => first = Some(self.stores.open_record(&key, record)?),
            }
        }
        self.change(address, first, |standing, _| Ok(ChangeDecision::Remove(standing.found()?))).await
    }

    /// Marks a record as consumed. Of any number of callers exactly one consumes it; the record stays readable.
    pub async fn consume(&self, address: &RecordAddress) -> Result<ConsumeOutcome> {
        address.check()?;
        let consume = self.change(address, None, |standing, now| {
            if let Some(consumed_at) = standing.state.consumed_at()? {
                let group = standing.state.group.clone();
                let version = standing.record.version;
                return Ok(ChangeDecision::Answer(ConsumeOutcome::Used { consumed_at, version, group }));
            }
            let mut state = standing.state.clone();
            state.consume(now.latest());
            Ok(ChangeDecision::Rewrite(Box::new(state), standing.ends_at()?, ConsumeOutcome::Consumed))
        });
        Ok(consume.await?.unwrap_or(ConsumeOutcome::Unknown))
    }

    /// Gives a record a new end; its second keys move along. [`RecordTtl::Never`] removes the end. One round trip, with a
    /// group, second keys or a condition two.
    pub async fn touch(&self, touch: &TouchRecord) -> Result<TouchOutcome> {
        let TouchRecord { address, life, only_if } = touch;
        address.check()?;
        let mut first = None;
        if let By::Id(id) = &address.by
            && only_if.is_none()
            && *life != RecordTtl::Keep
        {
            let key = self.naming().await?.record(&address.collection, id.as_bytes())?;
            let Some(expires_at) = self.end_of(&address.collection, *life, None, self.stores.now()?)? else {
                return Ok(TouchOutcome::Expired);
            };
            let version = self.stores.mint_plain();
            match self.alter(&key, &Alteration::Touch { first: PLAIN, expires_at, version }).await? {
                Altered { record: None, .. } => return Ok(TouchOutcome::Unknown),
                Altered { applied: true, record: Some(record) } => {
                    return Ok(TouchOutcome::Touched(self.stores.open_record(&key, record)?.found()?));
                }
                Altered { record: Some(record), .. } => first = Some(self.stores.open_record(&key, record)?),
            }
        }
        let touched = self.change(address, first, |standing, now| {
            let current = standing.ends_at()?;
            let asked = match (life, standing.state.slide()) {
                (RecordTtl::Default, Some(slide)) => Some(now.end_after(slide)?),
                _ => self.end_of(&address.collection, *life, Some(current), now)?,
            };
            let Some(ends_at) = asked else {
                return Ok(ChangeDecision::Answer(TouchOutcome::Expired));
            };
            let holds = match only_if {
                None => true,
                Some(TouchCondition::Endless) => current.is_never(),
                Some(TouchCondition::Ends) => !current.is_never(),
                Some(TouchCondition::Later) => ends_at > current,
                Some(TouchCondition::Sooner) => ends_at < current,
                Some(TouchCondition::Shortens) => !current.is_never() && ends_at < current,
            };
            if !holds {
                return Ok(ChangeDecision::Answer(TouchOutcome::Kept(standing.found()?)));
            }
            let ends_at = Self::within_cap(&standing.state, ends_at, now)?;
            Ok(ChangeDecision::Rewrite(Box::new(standing.state.clone()), ends_at, TouchOutcome::Touched))
        });
        Ok(touched.await?.unwrap_or(TouchOutcome::Unknown))
    }

    /// Deletes a record if the condition holds. One round trip, with a group, second keys or a condition two.
    pub async fn delete(&self, address: &RecordAddress, condition: RecordCondition) -> Result<DeleteOutcome> {
        self.delete_in_turn(address, condition, &mut Turn::default()).await
    }

    pub(super) async fn delete_in_turn(
        &self,
        address: &RecordAddress,
        condition: RecordCondition,
        turn: &mut Turn,
    ) -> Result<DeleteOutcome> {
        address.check()?;
        let mut first = None;
        if let By::Id(id) = &address.by {
            let key = self.naming().await?.record(&address.collection, id.as_bytes())?;
            match condition {
                RecordCondition::Any | RecordCondition::Present => {
                    match self.alter(&key, &Alteration::Take { first: PLAIN }).await? {
                        Altered { applied: true, .. } => return Ok(DeleteOutcome::Deleted),
                        Altered { record: None, .. } => return Ok(none(condition)),
                        Altered { record: Some(record), .. } => {
                            first = Some(self.stores.open_record(&key, record)?);
                        }
                    }
                }
                RecordCondition::Version(expected) if is_plain(expected) => {
                    let remove = Batch::try_from(Write::Remove { key, expected })?;
                    let removed = self.stores.backend().commit(remove, self.stores.now()?).await?;
                    return Ok(if removed.is_applied() { DeleteOutcome::Deleted } else { none(condition) });
                }
                RecordCondition::Version(_) | RecordCondition::Absent => {}
            }
        }
        let deleted = self.change_in_turn(address, first, turn, |standing, _| {
            Ok(match condition {
                RecordCondition::Any | RecordCondition::Present => {
                    ChangeDecision::Remove(DeleteOutcome::Deleted)
                }
                RecordCondition::Version(version) if version == standing.record.version => {
                    ChangeDecision::Remove(DeleteOutcome::Deleted)
                }
                RecordCondition::Version(_) | RecordCondition::Absent => {
                    ChangeDecision::Answer(DeleteOutcome::Conflict)
                }
            })
        });
        Ok(deleted.await?.unwrap_or(none(condition)))
    }

    pub(super) async fn alter(&self, key: &Key, alteration: &Alteration) -> Result<Altered> {
        self.stores.backend().alter(key, alteration, self.stores.now()?).await
    }

    /// Changes the live record that `address` names; none if there is none. `first` is the record if it was read
    /// already.
    pub(super) async fn change<T>(
        &self,
        address: &RecordAddress,
        first: Option<OpenedRecord>,
        judge: impl FnMut(&OpenedRecord, Now) -> Result<ChangeDecision<T>>,
    ) -> Result<Option<T>> {
        self.change_in_turn(address, first, &mut Turn::default(), judge).await
    }

    /// The same for a caller that may have a turn already.
    async fn change_in_turn<T>(
        &self,
        address: &RecordAddress,
        mut first: Option<OpenedRecord>,
        turn: &mut Turn,
        mut judge: impl FnMut(&OpenedRecord, Now) -> Result<ChangeDecision<T>>,
    ) -> Result<Option<T>> {
        let naming = self.naming().await?;
        let collection = &address.collection;
        let mut has_lost = false;
        for _ in 0..ATTEMPTS {
            let now = self.stores.now()?;
            let standing = match first.take() {
                Some(standing) => Some(standing),
                None => self.locate(&naming, address, now).await?,
            };
            let Some(standing) = standing else { return Ok(None) };
            if !now.before(standing.ends_at()?)? || self.has_ended(&standing, now).await? {
                return Ok(None);
            }
            let (mut writes, answer) = match judge(&standing, now)? {
                ChangeDecision::Answer(answer) => {
                    let revoked = self.is_revoked(&naming, collection, &standing, now).await?;
                    return Ok((!revoked).then_some(answer));
                }
                ChangeDecision::Remove(answer) => (self.removal(&naming, collection, &standing)?, answer),
                ChangeDecision::Rewrite(state, ends_at, answer) => {
                    let (writes, written) = self.rewrite(&naming, collection, &standing, &state, ends_at)?;
                    (writes, answer(written.found()?))
                }
            };
            // A loser that has nothing to write at its second look needs no turn.
            if has_lost && self.wait_turn_of(collection, &standing.state.id, turn).await {
                continue;
            }
            // The commit checks that the group is not revoked.
            if let Some(group) = &standing.state.group {
                writes.push(Write::Absent { key: naming.group(collection, group)? });
            }
            if self.stores.backend().commit(Batch::new(writes)?, now).await?.is_applied() {
                return Ok(Some(answer));
            }
            if self.is_revoked(&naming, collection, &standing, now).await? {
                return Ok(None);
            }
            has_lost = true;
        }
        Err(contended())
    }

    /// Writes that remove a record with the entries of its second keys and its links.
    pub(super) fn removal(
        &self,
        naming: &Naming<'_>,
        collection: &str,
        standing: &OpenedRecord,
    ) -> Result<Vec<Write>> {
        let expected = standing.record.version;
        let key = naming.record(collection, &standing.state.id)?;
        let mut writes = self.unlinks_of(&key, standing)?;
        writes.push(Write::Remove { key, expected });
        for name in &standing.state.keys {
            writes.push(Write::Remove { key: naming.second_key(collection, name)?, expected });
        }
        Ok(writes)
    }

    /// Writes that replace a record, and the entries of its second keys with it.
    pub(super) fn rewrite(
        &self,
        naming: &Naming<'_>,
        collection: &str,
        standing: &OpenedRecord,
        state: &RecordContent,
        ends_at: Timestamp,
    ) -> Result<(Vec<Write>, OpenedRecord)> {
        let expected = standing.record.version;
        let key = naming.record(collection, &state.id)?;
        let record: Record = self.stores.seal_record(&key, state.clone(), ends_at)?;
        let mut writes = vec![Write::Replace { key: key.clone(), expected, record: record.clone() }];
        for name in &state.keys {
            let entry_key = naming.second_key(collection, name)?;
            let entry = self.stores.seal_entry(&entry_key, state, &record);
            writes.push(Write::Replace { key: entry_key, expected, record: entry });
        }
        let written = self.stores.open_record(&key, record)?;
        Ok((writes, written))
    }

    /// End of a record, within its cap and the longest life of one with a group.
    pub(super) fn within_cap(state: &RecordContent, ends_at: Timestamp, now: Now) -> Result<Timestamp> {
        let ends_at = state.cap_at()?.map_or(ends_at, |cap_at| ends_at.min(cap_at));
        if state.group.is_none() {
            return Ok(ends_at);
        }
        let retain = std::time::Duration::from_millis(state.retain_millis.unwrap_or(0));
        Ok(ends_at.min(now.end_after(Self::GROUP_CAP.saturating_sub(retain))?))
    }
}

fn none(condition: RecordCondition) -> DeleteOutcome {
    match condition {
        RecordCondition::Any | RecordCondition::Absent => DeleteOutcome::Absent,
        RecordCondition::Present | RecordCondition::Version(_) => DeleteOutcome::Conflict,
    }
}
