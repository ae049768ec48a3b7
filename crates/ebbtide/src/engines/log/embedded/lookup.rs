//! Finding the record at a key: in the log, then in the cold store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Core, Embedded};
use crate::engines::log::cold::ColdStore;
use crate::engines::log::faults::PlantedFault;
use crate::engines::log::frame::Frame;
use crate::engines::log::index::{IndexEntry, Shard};
use crate::engines::log::position::Position;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Results of reads from the disk for one key.
#[derive(Default)]
pub(super) struct Known {
    /// Frames never change, so that these always count.
    frames: Vec<(Position, Vec<u8>)>,
    /// Epoch of the shard before the read of the cold store, and its result. It counts only while the epoch is the same.
    cold: Option<(u64, Option<Record>)>,
}

/// Reads from the disk that one key needs.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) slot: usize,
    frames: Vec<Position>,
    /// Epoch of the shard, if the cold store must be read.
    cold: Option<u64>,
}

/// State of a key.
pub(super) enum RecordLocation {
    /// The newest frame is in the log: a record, live or not, or a delete. Its checksum was compared.
    Log { entry: IndexEntry, frame: Vec<u8> },
    /// The cold store has a record, live or not.
    Cold(Record),
    /// The log has nothing, and the cold store was not asked.
    Unread,
    /// Neither has anything.
    Absent { may_be_cold: bool },
}

impl RecordLocation {
    /// Frame that an answer rests on.
    pub(super) fn position(&self) -> Option<Position> {
        if let Self::Log { entry, .. } = self { Some(entry.position()) } else { None }
    }

    pub(super) fn entry(&self) -> Option<IndexEntry> {
        if let Self::Log { entry, .. } = self { Some(*entry) } else { None }
    }

    /// The record, expired or not.
    pub(super) fn record(&self) -> Result<Option<Record>> {
        match self {
            Self::Log { entry, frame } if !entry.is_deleted() => match Frame::read_again(frame)? {
                Frame::Store(stored) => Ok(Some(stored.record())),
                _ => Ok(None),
            },
            Self::Cold(record) => Ok(Some(record.clone())),
            Self::Log { .. } | Self::Unread | Self::Absent { .. } => Ok(None),
        }
    }

    /// Returns true if a record is live at `now`.
    pub(super) fn is_live(&self, now: Timestamp) -> Result<bool> {
        Ok(self.head()?.is_some_and(|(_, expires_at)| now < expires_at))
    }

    /// Version and expiry of the record, expired or not.
    pub(super) fn head(&self) -> Result<Option<(Version, Timestamp)>> {
        match self {
            Self::Log { entry, frame } if !entry.is_deleted() => match Frame::read_again(frame)? {
                Frame::Store(stored) => Ok(Some((stored.version, stored.expires_at))),
                _ => Ok(None),
            },
            Self::Cold(record) => Ok(Some((record.version, record.expires_at))),
            Self::Log { .. } | Self::Unread | Self::Absent { .. } => Ok(None),
        }
    }
}

impl<C: ColdStore> Core<C> {
    /// Judges what stands at a key, under the lock of its shard. Reads nothing from the disk: what must be read comes as a
    /// need, and the caller asks again once it is known. A write without a condition needs no record.
    pub(super) fn examine(
        &self,
        shard: &Shard,
        hash: u64,
        key: &Key,
        known: &Known,
        slot: usize,
        needs_record: bool,
    ) -> Result<Result<RecordLocation, Need>> {
        let mut need = Need { slot, frames: Vec::new(), cold: None };
        for entry in shard.with_hash(hash) {
            let at = entry.position();
            let read =
                known.frames.iter().find(|(position, _)| *position == at).map(|(_, frame)| frame.clone());
            match read.or_else(|| self.log.in_memory(at)) {
                Some(frame) if Frame::read(&frame)?.0.key() == Some((key.kind(), key.as_bytes())) => {
                    return Ok(Ok(RecordLocation::Log { entry, frame }));
                }
                Some(_) => {}
                None => need.frames.push(at),
            }
        }
        if !need.frames.is_empty() {
            return Ok(Err(need));
        }
        if !self.has_cold(key.kind()) {
            return Ok(Ok(RecordLocation::Absent { may_be_cold: false }));
        }
        if !needs_record {
            return Ok(Ok(RecordLocation::Unread));
        }
        let is_current =
            |epoch: u64| epoch == shard.epoch || self.faults().has(PlantedFault::EpochNotCompared);
        match &known.cold {
            Some((epoch, found)) if is_current(*epoch) => Ok(Ok(match found {
                Some(record) if self.is_swept(key.kind(), record.expires_at) => {
                    RecordLocation::Absent { may_be_cold: true }
                }
                Some(record) => RecordLocation::Cold(record.clone()),
                None => RecordLocation::Absent { may_be_cold: false },
            })),
            _ => {
                need.cold = Some(shard.epoch);
                Ok(Err(need))
            }
        }
    }

    /// Returns true if a key in this state may have a copy in the cold store, which the next frame must then mask. Read it under
    /// the lock of the shard.
    pub(super) fn may_be_cold(&self, standing: &RecordLocation) -> bool {
        match standing {
            RecordLocation::Log { entry, .. } => {
                entry.may_be_cold() || entry.position().segment() <= self.retiring.load(Ordering::SeqCst)
            }
            RecordLocation::Cold(_) | RecordLocation::Unread => true,
            RecordLocation::Absent { may_be_cold } => *may_be_cold,
        }
    }

    /// Reads from the disk what is needed for one key.
    pub(super) fn fetch(&self, need: &Need, key: &Key, known: &mut Known) -> Result<()> {
        for at in &need.frames {
            // A segment that is gone was retired: the next look finds no entry in it.
            if let Some(frame) = self.log.read(*at)? {
                known.frames.push((*at, frame));
            }
        }
        if let Some(epoch) = need.cold {
            known.cold = Some((epoch, self.cold.get(key.kind(), key.as_bytes())?));
        }
        Ok(())
    }

    /// Reads the frames that are needed for one key if the operating system has all of them in memory, and answers whether
    /// it had.
    fn fetch_cached(&self, need: &Need, known: &mut Known) -> bool {
        let found: Option<Vec<_>> =
            need.frames.iter().map(|at| self.log.read_cached(*at).map(|frame| (*at, frame))).collect();
        let Some(found) = found.filter(|_| need.cold.is_none()) else { return false };
        known.frames.extend(found);
        true
    }

    pub(super) fn look(
        &self,
        hash: u64,
        key: &Key,
        known: &Known,
        slot: usize,
    ) -> Result<Result<RecordLocation, Need>> {
        self.examine(&self.index.shard_of(hash), hash, key, known, slot, true)
    }

    pub(super) fn hash(&self, key: &Key) -> u64 {
        self.index.hash(key.kind(), key.as_bytes())
    }
}

impl<C: ColdStore> Embedded<C> {
    /// Reads what is needed: at once what the operating system has in memory, since a read that waits for nothing costs
    /// less than a change of threads, and the rest from the disk, on the pool.
    pub(super) async fn fetch(&self, needs: Vec<Need>, keys: Vec<Key>, known: &mut [Known]) -> Result<()> {
        let mut needs: Vec<(Need, Key)> = needs.into_iter().zip(keys).collect();
        needs.retain(|(need, _)| !self.core.fetch_cached(need, &mut known[need.slot]));
        if needs.is_empty() {
            return Ok(());
        }
        let core = Arc::clone(&self.core);
        let slots: Vec<usize> = needs.iter().map(|(need, _)| need.slot).collect();
        let mut own: Vec<Known> = slots.iter().map(|slot| std::mem::take(&mut known[*slot])).collect();
        let fetched = self.reads.run(move || {
            for ((need, key), known) in needs.iter().zip(&mut own) {
                core.fetch(need, key, known)?;
            }
            Ok::<_, Error>(own)
        });
        for (slot, found) in slots.into_iter().zip(fetched.await??) {
            known[slot] = found;
        }
        Ok(())
    }

    /// The record at a key, expired or not, once what the answer rests on is durable.
    pub(super) async fn find(&self, key: &Key) -> Result<Option<Record>> {
        let hash = self.core.hash(key);
        let mut known = [Known::default()];
        let standing = loop {
            self.core.log.check()?;
            match self.core.look(hash, key, &known[0], 0)? {
                Ok(standing) => break standing,
                Err(need) => self.fetch(vec![need], vec![key.clone()], &mut known).await?,
            }
        };
        if let Some(at) = standing.position() {
            self.core.log.durable(at).await?;
        }
        standing.record()
    }

    /// The records at several keys, each as [`find`](Self::find) gives it. They share a read and a wait.
    pub(super) async fn find_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        let mut found: Vec<Option<RecordLocation>> = keys.iter().map(|_| None).collect();
        let mut known: Vec<Known> = keys.iter().map(|_| Known::default()).collect();
        loop {
            self.core.log.check()?;
            let (mut needs, mut unread) = (Vec::new(), Vec::new());
            for (slot, (key, found)) in keys.iter().zip(&mut found).enumerate() {
                if found.is_some() {
                    continue;
                }
                match self.core.look(self.core.hash(key), key, &known[slot], slot)? {
                    Ok(standing) => *found = Some(standing),
                    Err(need) => {
                        needs.push(need);
                        unread.push(key.clone());
                    }
                }
            }
            if needs.is_empty() {
                break;
            }
            self.fetch(needs, unread, &mut known).await?;
        }
        if let Some(at) = found.iter().flatten().filter_map(RecordLocation::position).max() {
            self.core.log.durable(at).await?;
        }
        found.iter().map(|standing| standing.as_ref().map_or(Ok(None), RecordLocation::record)).collect()
    }
}
