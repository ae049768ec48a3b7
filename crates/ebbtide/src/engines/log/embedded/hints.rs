//! Hints of full segments: written in the background, loaded on opening, and verified afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::Core;
use crate::engines::log::cold::ColdStore;
use crate::engines::log::hint;
use crate::engines::log::segment::Segment;
use crate::model::error::{Error, ErrorKind, Result};

/// Hints of an open store.
#[derive(Default)]
pub(super) struct Hints {
    /// Segments whose hint was written or tried.
    pub(super) tried: BTreeSet<u32>,
    /// Segments that opening has not read, with first and last sequence and the end.
    pub(super) unread: Vec<(u32, (u64, u64, u32))>,
}

impl<C: ColdStore> Core<C> {
    pub(super) fn hints(&self) -> MutexGuard<'_, Hints> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the hints of segments that have been filled since. Reads each of them, so that damage shows early.
    ///
    /// None is written while all segments are small. Behind a large one those before it get theirs too: opening uses
    /// hints only up to the first segment without one.
    pub(super) fn write_hints(&self) {
        let full = self.log.full();
        let largest = full.iter().rposition(|(segment, _)| segment.len >= self.options.hint_from);
        let upto = largest.map_or(0, |largest| largest + 1);
        for (segment, last) in full.into_iter().take(upto) {
            if self.log.is_short() || self.is_closing.load(Ordering::Relaxed) || self.log.is_poisoned() {
                return;
            }
            if !self.hints().tried.insert(segment.id) {
                continue;
            }
            let written =
                hint::write(self.disk.as_ref(), &self.index, self.options.is_listed, &segment, last);
            match written {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    return self.found_damage(&segment, &error);
                }
                Err(error) => {
                    tracing::warn!(%error, segment = segment.id, "a hint was not written; opening takes longer");
                }
                Ok(()) => {}
            }
        }
    }

    /// Reads the segments that opening has not read. Damage closes the store, and the next opening names it.
    pub(super) fn read_hinted(&self) {
        let unread = std::mem::take(&mut self.hints().unread);
        for (id, expected) in unread {
            if self.is_closing.load(Ordering::Relaxed) {
                return;
            }
            // One that is gone was read when it retired.
            let Some(segment) = self.log.segment(id) else { continue };
            if let Err(error) = read(&segment, expected)
                && self.log.segment(id).is_some()
            {
                return self.found_damage(&segment, &error);
            }
        }
    }

    pub(super) fn found_damage(&self, segment: &Segment, error: &Error) {
        // Without its hint the segment is read by the next opening, which refuses it.
        let _ = self.disk.unlink(&hint::name(segment.id));
        self.log.poison(error.message());
    }

    /// Removes the hint of a segment that has retired.
    pub(super) fn forget_hint(&self, segment: &Segment) {
        if self.hints().tried.remove(&segment.id) {
            let _ = self.disk.unlink(&hint::name(segment.id));
        }
    }
}

fn read(segment: &Segment, (first, last, end): (u64, u64, u32)) -> Result<()> {
    if hint::each_group(segment, last, &mut |_, _| Ok(()))? == (first, end) {
        return Ok(());
    }
    let name = Segment::name(segment.id);
    Err(Error::corrupt(format!("segment {name} of the log does not have the groups of its hint")))
}
