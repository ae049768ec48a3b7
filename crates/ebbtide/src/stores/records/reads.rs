//! Reads.

use std::time::Duration;

use super::naming::Naming;
use super::request::{By, RecordAddress};
use super::state::OpenedRecord;
use super::types::{FoundRecord, GetOutcome};
use super::{ATTEMPTS, Records, contended};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::write::{Batch, Write};
use crate::stores::shared::lifetime::WORTH_WRITING;
use crate::stores::shared::parents::MetParents;
use crate::timekeeping::Now;

impl Records {
    /// Most records of one [`get_many`](Self::get_many).
    pub const MAX_MANY: usize = 1_000;

    /// Most bytes of the values of one [`get_many`](Self::get_many).
    pub const MAX_MANY_BYTES: usize = 32 << 20;

    /// Records that are read at a time, so that the values beyond the bound are not all in memory.
    const MANY_AT_ONCE: usize = 64;

    /// Reads a record, and renews one that slides. One round trip, with a group or by second key two.
    pub async fn get(&self, address: &RecordAddress) -> Result<GetOutcome> {
        address.check()?;
        let naming = self.naming().await?;
        let now = self.stores.now()?;
        let Some(standing) = self.locate(&naming, address, now).await? else {
            return Ok(GetOutcome::Unknown);
        };
        if self.is_revoked(&naming, &address.collection, &standing, now).await? {
            return Ok(GetOutcome::Unknown);
        }
        let outcome = judge(&standing, now)?;
        if let (GetOutcome::Found(_), Some(slide)) = (&outcome, standing.state.slide())
            && let Some(renewed) = self.renew(&naming, &address.collection, &standing, slide, now).await?
        {
            return Ok(GetOutcome::Found(renewed));
        }
        Ok(outcome)
    }

    /// Renews the lifetime of a record that was read, if that is worth a write. None if it is not, or another writer was
    /// faster.
    async fn renew(
        &self,
        naming: &Naming<'_>,
        collection: &str,
        standing: &OpenedRecord,
        slide: Duration,
        now: Now,
    ) -> Result<Option<FoundRecord>> {
        // Renewal by reading is skipped while the clock is in doubt.
        let Ok(full) = now.end_after(slide) else { return Ok(None) };
        let (ends_at, current) = (Self::within_cap(&standing.state, full, now)?, standing.ends_at()?);
        if ends_at <= current || full.since(current) < slide / WORTH_WRITING {
            return Ok(None);
        }
        let (mut writes, written) = self.rewrite(naming, collection, standing, &standing.state, ends_at)?;
        if let Some(group) = &standing.state.group {
            writes.push(Write::Absent { key: naming.group(collection, group)? });
        }
        let renewed = self.stores.backend().commit(Batch::new(writes)?, now).await?.is_applied();
        if renewed { written.found().map(Some) } else { Ok(None) }
    }

    /// Reads records, in the order of their names; none for one that is not live. They are no snapshot. Returns `Invalid`
    /// if their values are larger than [`MAX_MANY_BYTES`](Self::MAX_MANY_BYTES) together. One round trip for each 64
    /// records, with a group or by second key more.
    pub async fn get_many(&self, addresses: &[RecordAddress]) -> Result<Vec<Option<FoundRecord>>> {
        if addresses.len() > Self::MAX_MANY {
            return Err(
                Error::invalid(format!("at most {} records are read at once", Self::MAX_MANY)).about("items")
            );
        }
        addresses.iter().try_for_each(RecordAddress::check)?;
        let naming = self.naming().await?;
        let (mut found, mut bytes) = (Vec::with_capacity(addresses.len()), 0_usize);
        for part in addresses.chunks(Self::MANY_AT_ONCE) {
            for record in self.get_part(&naming, part).await? {
                bytes += record.as_ref().map_or(0, |record| record.value.as_bytes().len());
                if bytes > Self::MAX_MANY_BYTES {
                    let most = Self::MAX_MANY_BYTES;
                    return Err(Error::invalid(format!(
                        "the values have more than {most} bytes together; read fewer records at once"
                    )));
                }
                found.push(record);
            }
            if part.len() == Self::MANY_AT_ONCE {
                // Other callers of the thread go on, also where every record is at hand.
                tokio::task::yield_now().await;
            }
        }
        Ok(found)
    }

    async fn get_part(
        &self,
        naming: &Naming<'_>,
        addresses: &[RecordAddress],
    ) -> Result<Vec<Option<FoundRecord>>> {
        let now = self.stores.now()?;
        let mut found = self.locate_many(naming, addresses, now).await?;
        let groups = addresses.iter().zip(&found).filter_map(|(address, standing)| {
            let group = standing.as_ref()?.state.group.as_deref()?;
            Some(naming.group(&address.collection, group))
        });
        let mut markers = groups.collect::<Result<Vec<_>>>()?;
        if !markers.is_empty() {
            let revoked = self.stores.backend().get_many(&markers, now).await?;
            let mut keep = revoked.iter().map(Option::is_some);
            markers.retain(|_| keep.next() == Some(true));
            for (address, standing) in addresses.iter().zip(&mut found) {
                let Some(group) = standing.as_ref().and_then(|standing| standing.state.group.as_deref())
                else {
                    continue;
                };
                if markers.contains(&naming.group(&address.collection, group)?) {
                    *standing = None;
                }
            }
        }
        let mut parents = MetParents::new(&self.stores, now);
        for standing in &mut found {
            let name = standing.as_ref().and_then(|standing| standing.state.parent_name());
            if parents.ended(&self.scope, name.as_ref()).await? {
                *standing = None;
            }
        }
        let read = |standing: Option<OpenedRecord>| {
            standing.map_or(Ok(None), |standing| judge(&standing, now).map(GetOutcome::found))
        };
        found.into_iter().map(read).collect()
    }

    /// Record that the engine holds under an id or a second key. Its group may be revoked.
    pub(super) async fn locate(
        &self,
        naming: &Naming<'_>,
        address: &RecordAddress,
        now: Now,
    ) -> Result<Option<OpenedRecord>> {
        let collection = &address.collection;
        let name = match &address.by {
            By::Id(id) => return self.read(&naming.record(collection, id.as_bytes())?, now).await,
            By::Key(name) => name,
        };
        let key = naming.second_key(collection, name)?;
        let mut looked_at = None;
        for _ in 0..ATTEMPTS {
            let Some(entry) = self.stores.backend().get(&key, now).await? else { return Ok(None) };
            // An entry that has not changed leads to nothing: its record is gone, or does not list the key.
            if looked_at == Some(entry.version) {
                return Ok(None);
            }
            let id = self.stores.open_entry(&key, &entry)?.id;
            let standing = self.read(&naming.record(collection, &id)?, now).await?;
            if let Some(standing) = standing.filter(|standing| leads(&entry, name, standing)) {
                return Ok(Some(standing));
            }
            // The record may have been written, and the entry with it, after the entry was read.
            looked_at = Some(entry.version);
        }
        Err(contended())
    }

    async fn locate_many(
        &self,
        naming: &Naming<'_>,
        addresses: &[RecordAddress],
        now: Now,
    ) -> Result<Vec<Option<OpenedRecord>>> {
        let backend = self.stores.backend();
        let mut entry_keys = Vec::new();
        for address in addresses {
            if let By::Key(name) = &address.by {
                entry_keys.push(naming.second_key(&address.collection, name)?);
            }
        }
        let entries =
            if entry_keys.is_empty() { Vec::new() } else { backend.get_many(&entry_keys, now).await? };
        let mut entries = entry_keys.iter().zip(entries);
        let mut keys: Vec<Key> = Vec::with_capacity(addresses.len());
        // Position of each address's record in `keys`, with the version that its second key's entry names.
        let mut places = Vec::with_capacity(addresses.len());
        for address in addresses {
            let (key, version) = match &address.by {
                By::Id(id) => (naming.record(&address.collection, id.as_bytes())?, None),
                By::Key(_) => {
                    let Some((key, Some(entry))) = entries.next() else {
                        places.push(None);
                        continue;
                    };
                    let id = self.stores.open_entry(key, &entry)?.id;
                    (naming.record(&address.collection, &id)?, Some(entry.version))
                }
            };
            places.push(Some((keys.len(), version)));
            keys.push(key);
        }
        let records = if keys.is_empty() { Vec::new() } else { backend.get_many(&keys, now).await? };
        let mut found = Vec::with_capacity(addresses.len());
        for (address, place) in addresses.iter().zip(places) {
            let Some((place, version)) = place else {
                found.push(None);
                continue;
            };
            let record = records.get(place).cloned().flatten();
            let standing = record.map(|record| self.stores.open_record(&keys[place], record)).transpose()?;
            let leads = |standing: &OpenedRecord| match &address.by {
                By::Id(_) => true,
                By::Key(name) => {
                    version == Some(standing.record.version) && standing.state.keys.contains(name)
                }
            };
            found.push(match standing.filter(leads) {
                // The record may have been written after the entry was read.
                None if version.is_some() => self.locate(naming, address, now).await?,
                standing => standing,
            });
        }
        Ok(found)
    }

    pub(super) async fn read(&self, key: &Key, now: Now) -> Result<Option<OpenedRecord>> {
        let record = self.stores.backend().get(key, now).await?;
        record.map(|record| self.stores.open_record(key, record)).transpose()
    }

    /// Returns whether the group of a record is revoked, or what it belongs to has ended.
    pub(super) async fn is_revoked(
        &self,
        naming: &Naming<'_>,
        collection: &str,
        standing: &OpenedRecord,
        now: Now,
    ) -> Result<bool> {
        if self.has_ended(standing, now).await? {
            return Ok(true);
        }
        let Some(group) = &standing.state.group else { return Ok(false) };
        let marker = naming.group(collection, group)?;
        Ok(self.stores.backend().get(&marker, now).await?.is_some())
    }
}

/// Returns true if the entry of a second key is of this write of the record, which lists the key.
fn leads(entry: &Record, name: &String, standing: &OpenedRecord) -> bool {
    standing.record.version == entry.version && standing.state.keys.contains(name)
}

/// Answers with a record whose group is not revoked.
fn judge(standing: &OpenedRecord, now: Now) -> Result<GetOutcome> {
    let found = standing.found()?;
    Ok(if now.before(found.expires_at)? { GetOutcome::Found(found) } else { GetOutcome::Expired(found) })
}
