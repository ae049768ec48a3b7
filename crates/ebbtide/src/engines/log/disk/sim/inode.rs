//! One file of the simulated disk.

use std::collections::BTreeSet;

use super::{Dice, Fired};
use crate::engines::log::disk::PAGE;

/// Unit that a disk writes whole.
pub(super) const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// Bytes that reads see.
    cached: Vec<u8>,
    /// Bytes that are on the disk.
    durable: Vec<u8>,
    /// Pages that the next sync writes.
    dirty: BTreeSet<usize>,
    /// Pages whose sync failed: reads see them, and no later sync writes them.
    lost: BTreeSet<usize>,
}

impl Inode {
    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if self.cached.len() < end {
            self.cached.resize(end, 0);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        for page in offset / PAGE..=(end - 1) / PAGE {
            self.dirty.insert(page);
            self.lost.remove(&page);
        }
    }

    /// Cuts the file; a crash may keep the bytes that were cut off.
    pub(super) fn shorten(&mut self, len: usize, is_durable: bool) {
        assert!(len <= self.cached.len(), "the log only cuts files");
        self.cached.truncate(len);
        let pages = len.div_ceil(PAGE);
        self.dirty.retain(|page| *page < pages);
        self.lost.retain(|page| *page < pages);
        if is_durable {
            self.durable.truncate(len);
        }
    }

    pub(super) fn read(&self, bytes: &mut [u8], offset: usize) -> Option<()> {
        bytes.copy_from_slice(self.cached.get(offset..offset.checked_add(bytes.len())?)?);
        Some(())
    }

    pub(super) fn sync(&mut self) {
        if self.durable.len() < self.cached.len() {
            self.durable.resize(self.cached.len(), 0);
        }
        for page in std::mem::take(&mut self.dirty) {
            let range = page * PAGE..((page + 1) * PAGE).min(self.cached.len());
            self.durable[range.clone()].copy_from_slice(&self.cached[range]);
        }
    }

    pub(super) fn fail_sync(&mut self) {
        self.lost.append(&mut self.dirty);
    }

    /// Leaves what a power loss leaves.
    pub(super) fn crash(&mut self, dice: &mut Dice, fired: &mut Fired) {
        let unsynced: BTreeSet<usize> = self.dirty.union(&self.lost).copied().collect();
        let (old_len, new_len) = (self.durable.len(), self.cached.len());
        self.durable.resize(new_len.max(old_len), 0);
        for page in unsynced {
            let range = page * PAGE..((page + 1) * PAGE).min(new_len);
            let (old, new) = (&mut self.durable[range.clone()], &self.cached[range]);
            match dice.below(4) {
                0 => fired.dropped_pages += 1,
                1 => {
                    fired.kept_pages += 1;
                    old.copy_from_slice(new);
                }
                2 => {
                    fired.torn_pages += 1;
                    for (old, new) in old.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                        if dice.below(2) == 0 {
                            old.copy_from_slice(new);
                        }
                    }
                }
                _ => {
                    fired.damaged_pages += 1;
                    for (old, new) in old.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                        match dice.below(3) {
                            0 => {}
                            1 => old.copy_from_slice(new),
                            _ => old.fill_with(|| dice.next().to_le_bytes()[0]),
                        }
                    }
                }
            }
        }
        if new_len > old_len && dice.below(2) == 0 {
            let between = old_len + usize::try_from(dice.below((new_len - old_len) as u64 + 1)).unwrap_or(0);
            self.durable.truncate(between);
        }
        self.cached.clone_from(&self.durable);
        self.dirty.clear();
        self.lost.clear();
    }

    /// Changes bytes that are on the disk.
    pub(super) fn damage(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.durable);
        self.cached.clone_from(&self.durable);
    }
}
