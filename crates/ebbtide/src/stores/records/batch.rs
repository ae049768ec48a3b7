//! Several writes, all or nothing.

use std::collections::HashMap;

use super::naming::Naming;
use super::request::{PutRecord, RecordCondition, RecordWrite};
use super::state::{KeyEntry, OpenedRecord};
use super::turn::Turn;
use super::types::{BatchOutcome, PutOutcome, RecordId, Refusal, WriteAnswer};
use super::{ATTEMPTS, Records, contended};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::ttl::{PolicyTarget, check_collection};
use crate::model::write::{Batch, Write};
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::life::RecordTtl;
use crate::stores::shared::parents::{MetParents, ParentName};
use crate::timekeeping::Now;

/// Answer to one write that is committed.
pub(super) struct Written {
    pub(super) stored: Option<PutOutcome>,
    answer: WriteAnswer,
}

/// Writes that a batch commits, and the answers to them; or the first refusal.
type Judged = std::result::Result<(Vec<Write>, Vec<Written>), (usize, Refusal)>;

/// Records that a batch was judged by.
struct View {
    records: HashMap<Key, Record>,
    revoked: HashMap<Key, bool>,
    /// Names of what the records that are put belong to.
    named: Vec<(Parent, ParentName)>,
    /// Names of what records belonged to that has ended.
    ended: Vec<ParentName>,
}

impl View {
    fn name(&self, put: &PutRecord) -> Option<&ParentName> {
        let parent = put.belongs_to.as_deref()?;
        self.named.iter().find(|(named, _)| named == parent).map(|(_, name)| name)
    }
}

impl Records {
    /// Commits all of the writes if every condition holds, and none otherwise. Two round trips.
    pub async fn batch(&self, writes: &[RecordWrite]) -> Result<BatchOutcome> {
        self.batch_in_turn(writes, &mut Turn::default()).await
    }

    /// The same for a caller that tries again when the batch is refused, and keeps its turn from one try to the next.
    pub async fn batch_in_turn(&self, writes: &[RecordWrite], turn: &mut Turn) -> Result<BatchOutcome> {
        Ok(match self.commit_records(writes, turn).await? {
            Ok(written) => BatchOutcome::Applied(written.into_iter().map(|written| written.answer).collect()),
            Err((index, refusal)) => BatchOutcome::Refused { index, refusal },
        })
    }

    /// Reads what the writes depend on, judges, and commits on what was read.
    pub(super) async fn commit_records(
        &self,
        writes: &[RecordWrite],
        turn: &mut Turn,
    ) -> Result<std::result::Result<Vec<Written>, (usize, Refusal)>> {
        if writes.is_empty() || writes.len() > Batch::MAX_WRITES {
            let message = format!("a batch has 1 to {} writes", Batch::MAX_WRITES);
            return Err(Error::invalid(message).about("writes"));
        }
        writes.iter().try_for_each(check)?;
        let naming = self.naming().await?;
        let mut has_lost = false;
        for _ in 0..ATTEMPTS {
            let now = self.stores.now()?;
            let view = self.view(&naming, writes, now).await?;
            let (commit, written) = match self.judge(&naming, writes, &view, now)? {
                Ok(judged) => judged,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if commit.is_empty() {
                return Ok(Ok(written));
            }
            // A loser that is refused at its second look needs no turn.
            if has_lost && self.wait_first(writes, turn).await {
                continue;
            }
            let owners: Vec<_> = view.named.iter().filter_map(|(parent, _)| parent.owner()).collect();
            let commit = self.stores.commit_for(&self.scope, &owners, commit, now).await?;
            if commit.unless_deleted()?.is_applied() {
                self.keep_or_take_back(&naming, writes, &view).await?;
                return Ok(Ok(written));
            }
            has_lost = true;
        }
        Err(contended())
    }

    /// Waits for the turn of the first record in their order, so that batches of the same records have the same turn.
    async fn wait_first(&self, writes: &[RecordWrite], turn: &mut Turn) -> bool {
        let names = writes.iter().map(|write| {
            let (collection, id, _) = parts(write);
            (collection, id.as_bytes())
        });
        match names.min() {
            Some((collection, id)) => self.wait_turn_of(collection, id, turn).await,
            None => false,
        }
    }

    /// Looks again at what the records belong to that were put, and removes those whose parent is gone.
    async fn keep_or_take_back(
        &self,
        naming: &Naming<'_>,
        writes: &[RecordWrite],
        view: &View,
    ) -> Result<()> {
        for (parent, name) in &view.named {
            if !self.stores.belongings(&self.scope).has_ended(name, self.stores.now()?).await? {
                continue;
            }
            for write in writes {
                if let RecordWrite::Put(put) = write
                    && put.belongs_to.as_deref() == Some(parent)
                {
                    self.remove_if_of(&naming.record(&put.collection, put.id.as_bytes())?, parent).await?;
                }
            }
            let message = "what the record belongs to was deleted meanwhile";
            return Err(Error::invalid(message).about("belongs_to"));
        }
        Ok(())
    }

    async fn view(&self, naming: &Naming<'_>, writes: &[RecordWrite], now: Now) -> Result<View> {
        let mut keys = Vec::new();
        let mut markers = Vec::new();
        for write in writes {
            let (collection, id, _) = parts(write);
            keys.push(naming.record(collection, id.as_bytes())?);
            if let RecordWrite::Put(put) = write {
                for name in &put.keys {
                    keys.push(naming.second_key(collection, name)?);
                }
                if let Some(group) = &put.group {
                    markers.push(naming.group(collection, group)?);
                }
            }
        }
        let (records, revoked) = (HashMap::new(), HashMap::new());
        let mut view = View { records, revoked, named: Vec::new(), ended: Vec::new() };
        self.read_into(&mut view, keys, markers, now).await?;
        let belongings = self.stores.belongings(&self.scope);
        for write in writes {
            if let RecordWrite::Put(put) = write
                && let Some(parent) = put.belongs_to.as_deref()
                && view.name(put).is_none()
            {
                view.named.push((parent.clone(), belongings.name_of(parent, now).await?));
            }
        }
        // Owners of second keys that are taken, and groups of the records that were found: rarely any.
        let (mut owners, mut markers) = (Vec::new(), Vec::new());
        for write in writes {
            let (collection, id, _) = parts(write);
            let key = naming.record(collection, id.as_bytes())?;
            if let Some(standing) = self.standing(&view, &key)?
                && let Some(group) = &standing.state.group
            {
                markers.push(naming.group(collection, group)?);
            }
            let RecordWrite::Put(put) = write else { continue };
            for name in &put.keys {
                let key = naming.second_key(collection, name)?;
                if let Some(entry) = self.entry(&view, &key)?
                    && *entry.id != *id.as_bytes()
                {
                    owners.push(naming.record(collection, &entry.id)?);
                    if let Some(group) = &entry.group {
                        markers.push(naming.group(collection, group)?);
                    }
                }
            }
        }
        owners.retain(|key| !view.records.contains_key(key));
        markers.retain(|key| !view.revoked.contains_key(key));
        self.read_into(&mut view, owners, markers, now).await?;
        let mut parents = MetParents::new(&self.stores, now);
        for (key, record) in view.records.iter().filter(|(key, _)| key.kind() == Kind::Record) {
            let standing = self.stores.open_record(key, record.clone())?;
            let Some(name) = standing.state.parent_name() else { continue };
            if parents.ended(&self.scope, Some(&name)).await? {
                view.ended.push(name);
            }
        }
        Ok(view)
    }

    async fn read_into(
        &self,
        view: &mut View,
        mut keys: Vec<Key>,
        mut markers: Vec<Key>,
        now: Now,
    ) -> Result<()> {
        keys.sort_unstable();
        keys.dedup();
        markers.sort_unstable();
        markers.dedup();
        let split = keys.len();
        keys.append(&mut markers);
        if keys.is_empty() {
            return Ok(());
        }
        let found = self.stores.backend().get_many(&keys, now).await?;
        for (index, (key, record)) in keys.into_iter().zip(found).enumerate() {
            if index >= split {
                view.revoked.insert(key, record.is_some());
            } else if let Some(record) = record {
                view.records.insert(key, record);
            }
        }
        Ok(())
    }

    fn standing(&self, view: &View, key: &Key) -> Result<Option<OpenedRecord>> {
        let record = view.records.get(key).cloned();
        record.map(|record| self.stores.open_record(key, record)).transpose()
    }

    fn entry(&self, view: &View, key: &Key) -> Result<Option<KeyEntry>> {
        view.records.get(key).map(|entry| self.stores.open_entry(key, entry)).transpose()
    }

    fn judge(&self, naming: &Naming<'_>, writes: &[RecordWrite], view: &View, now: Now) -> Result<Judged> {
        let (mut commit, mut written) = (Vec::new(), Vec::with_capacity(writes.len()));
        let mut markers: Vec<Key> = Vec::new();
        for (index, write) in writes.iter().enumerate() {
            let (collection, id, condition) = parts(write);
            let key = naming.record(collection, id.as_bytes())?;
            let standing = self.standing(view, &key)?;
            let live = match &standing {
                Some(standing) => Self::is_live(naming, collection, standing, view, now)?,
                None => false,
            };
            let holds = match condition {
                RecordCondition::Any => true,
                RecordCondition::Absent => !live,
                RecordCondition::Present => live,
                RecordCondition::Version(version) => {
                    live && standing.as_ref().is_some_and(|standing| standing.record.version == version)
                }
            };
            if !holds {
                return Ok(Err((index, Refusal::Conflict)));
            }
            // A condition that rests on a live record rests on its group too.
            let inherits = matches!(write, RecordWrite::Put(put) if put.inherits);
            if let Some(group) = standing.as_ref().and_then(|standing| standing.state.group.as_ref())
                && live
                && (condition != RecordCondition::Any || inherits)
            {
                markers.push(naming.group(collection, group)?);
            }
            let expected = standing.as_ref().map(|standing| standing.record.version);
            match write {
                RecordWrite::Put(put) => {
                    if let Some(group) = &put.group {
                        let marker = naming.group(collection, group)?;
                        if view.revoked.get(&marker) == Some(&true) {
                            return Ok(Err((index, Refusal::Revoked)));
                        }
                        markers.push(marker);
                    }
                    let before = standing.as_ref().and_then(|standing| standing.state.parent_name());
                    let standing = standing.filter(|_| live);
                    match self.judge_put(naming, put, &key, standing.as_ref(), expected, view, now)? {
                        Ok((writes, answer)) => {
                            commit.extend(writes);
                            commit.extend(self.relinks(
                                put,
                                &key,
                                (before.as_ref(), view.name(put)),
                                live,
                            )?);
                            written.push(answer);
                        }
                        Err(refusal) => return Ok(Err((index, refusal))),
                    }
                }
                RecordWrite::Delete { .. } => {
                    match &standing {
                        Some(standing) if live => commit.extend(self.removal(naming, collection, standing)?),
                        _ if condition == RecordCondition::Any => {}
                        Some(standing) => {
                            commit.push(Write::Check { key, expected: standing.record.version });
                        }
                        None => commit.push(Write::Absent { key }),
                    }
                    written.push(Written { stored: None, answer: WriteAnswer::Deleted(live) });
                }
                RecordWrite::Check { .. } => {
                    match expected {
                        _ if condition == RecordCondition::Any => {}
                        Some(expected) => commit.push(Write::Check { key, expected }),
                        None => commit.push(Write::Absent { key }),
                    }
                    written.push(Written { stored: None, answer: WriteAnswer::Checked });
                }
            }
        }
        markers.sort_unstable();
        markers.dedup();
        commit.extend(markers.into_iter().map(|key| Write::Absent { key }));
        Ok(Ok((commit, written)))
    }

    /// Writes that link a record to what it belongs to. A live record whose value alone changes keeps its links.
    fn relinks(
        &self,
        put: &PutRecord,
        key: &Key,
        (before, after): (Option<&ParentName>, Option<&ParentName>),
        live: bool,
    ) -> Result<Vec<Write>> {
        if put.inherits && live { Ok(Vec::new()) } else { self.links(key, before, after) }
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the judgement above")]
    fn judge_put(
        &self,
        naming: &Naming<'_>,
        put: &PutRecord,
        key: &Key,
        live: Option<&OpenedRecord>,
        expected: Option<crate::model::record::Version>,
        view: &View,
        now: Now,
    ) -> Result<std::result::Result<(Vec<Write>, Written), Refusal>> {
        let current = live.map(OpenedRecord::ends_at).transpose()?;
        let Some(ends_at) = self.end_of(&put.collection, put.life, current, now)? else {
            return Ok(Err(Refusal::Expired));
        };
        let mut state = Self::state_of(put, view.name(put));
        let inherits = live.filter(|_| put.inherits);
        if let Some(cap) = put.cap {
            let target = PolicyTarget::new(Kind::Record, Some(&put.collection));
            let cap_at = self.stores.cap(target, &self.scope, now.latest(), Some(now.end(cap)?))?;
            let slide = match put.life {
                RecordTtl::For(ttl) if put.slides => Some(ttl.duration()),
                _ => None,
            };
            state.bound(cap_at, slide);
        }
        if let Some(live) = inherits {
            state = state.inheriting(&live.state);
        }
        let ends_at = Self::within_cap(&state, ends_at, now)?;
        let record = self.stores.seal_record(key, state.clone(), ends_at)?;
        let version = record.version;
        let mut writes = vec![match expected {
            Some(expected) => Write::Replace { key: key.clone(), expected, record: record.clone() },
            None => Write::Insert { key: key.clone(), record: record.clone() },
        }];
        for name in &state.keys {
            let entry_key = naming.second_key(&put.collection, name)?;
            let sealed = self.stores.seal_entry(&entry_key, &state, &record);
            if let Some(live) = inherits {
                let expected = live.record.version;
                writes.push(Write::Replace { key: entry_key, expected, record: sealed });
                continue;
            }
            let Some(entry) = view.records.get(&entry_key) else {
                writes.push(Write::Insert { key: entry_key, record: sealed });
                continue;
            };
            let id = self.stores.open_entry(&entry_key, entry)?.id;
            if *id != *put.id.as_bytes() {
                let owner = self.standing(view, &naming.record(&put.collection, &id)?)?;
                if let Some(owner) = owner
                    .filter(|owner| owner.record.version == entry.version && owner.state.keys.contains(name))
                    && Self::is_live(naming, &put.collection, &owner, view, now)?
                {
                    return Ok(Err(Refusal::Conflict));
                }
            }
            writes.push(Write::Replace { key: entry_key, expected: entry.version, record: sealed });
        }
        // Entries of keys that the record no longer has.
        if let Some(live) = live {
            for name in live.state.keys.iter().filter(|name| !state.keys.contains(name)) {
                let key = naming.second_key(&put.collection, name)?;
                writes.push(Write::Remove { key, expected: live.record.version });
            }
        }
        let created = live.is_none();
        let previous = live.map(OpenedRecord::found).transpose()?;
        let stored = Some(PutOutcome::Stored { version, expires_at: ends_at, created, previous });
        let answer = WriteAnswer::Stored { version, expires_at: ends_at, created };
        Ok(Ok((writes, Written { stored, answer })))
    }

    fn is_live(
        naming: &Naming<'_>,
        collection: &str,
        standing: &OpenedRecord,
        view: &View,
        now: Now,
    ) -> Result<bool> {
        let revoked = match &standing.state.group {
            Some(group) => view.revoked.get(&naming.group(collection, group)?) == Some(&true),
            None => false,
        };
        let ended = standing.state.parent_name().is_some_and(|name| view.ended.contains(&name));
        Ok(!revoked && !ended && now.before(standing.ends_at()?)?)
    }
}

fn parts(write: &RecordWrite) -> (&str, &RecordId, RecordCondition) {
    match write {
        RecordWrite::Put(put) => (&put.collection, &put.id, put.condition),
        RecordWrite::Delete { collection, id, condition }
        | RecordWrite::Check { collection, id, condition } => (collection, id, *condition),
    }
}

fn check(write: &RecordWrite) -> Result<()> {
    match write {
        RecordWrite::Put(put) => put.check(),
        RecordWrite::Delete { collection, id, .. } | RecordWrite::Check { collection, id, .. } => {
            check_collection(collection)?;
            id.check("an id")
        }
    }
}
