//! Preparing segments ahead of use, so that no commit waits for zeros to be written.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Log;
use crate::engines::log::disk::PAGE;
use crate::engines::log::segment::{Segment, failed};
use crate::model::error::Result;

/// Segments that are kept ready.
const AHEAD: usize = 1;

/// Least length of a segment that is prepared ahead, if segments may have that length: the largest batch fits.
const LEAST: u32 = 8 << 20;

/// Time between two attempts to prepare a segment on a disk that is full or failing.
const RETRY: Duration = Duration::from_secs(1);

impl Log {
    /// Prepares a segment if fewer than [`AHEAD`] are ready, and answers whether it did. The file is durable before the
    /// manifest names it, and the manifest is durable before the segment is used.
    pub(crate) fn prepare_next(&self) -> Result<bool> {
        self.check()?;
        if self.queue().ready.len() >= AHEAD {
            return Ok(false);
        }
        let prepared = self.prepare_segment();
        let mut queue = self.queue();
        let wakers = std::mem::take(&mut queue.room);
        let outcome = match prepared {
            Ok(segment) => {
                queue.no_segment = None;
                queue.ready.push_back(segment);
                Ok(true)
            }
            Err(error) => {
                // Callers that need the segment are refused. Nothing of the log is damaged, so it goes on when it can.
                queue.no_segment = Some("the log cannot grow: the disk is full or failing".to_owned());
                Err(error)
            }
        };
        drop(queue);
        wakers.into_iter().for_each(std::task::Waker::wake);
        outcome
    }

    fn prepare_segment(&self) -> Result<Arc<Segment>> {
        let id = self.manifest.lock().unwrap_or_else(PoisonError::into_inner).current().next_segment;
        let settings = &self.settings;
        let epoch = settings.rng.bytes();
        let disk = self.disk.as_ref();
        // Segments grow with their use, so that none is waited for long: at half of one, the next has four times its length.
        // On a small disk they stay small, so that what is left is not lost to one that does not fit.
        let share = u32::try_from(disk.size().unwrap_or(u64::MAX) / 64).unwrap_or(u32::MAX);
        let share = share - share % u32::try_from(PAGE).expect("a page is small");
        let wanted = self.queue().end().offset().saturating_mul(8).min(share);
        let len = wanted.max(LEAST).min(settings.segment_len);
        // Before the segment is there to be filled: a fast writer would pass the reserve between two looks.
        self.measure_space(len.into());
        let created = Segment::create(disk, id, epoch, len, settings.faults)
            .map_err(|error| failed("cannot prepare a segment of the log", error));
        let named = created.and_then(|segment| {
            self.change_manifest(|manifest| {
                manifest.segments.push(segment.entry());
                manifest.next_segment = id + 1;
            })?;
            Ok(Arc::new(segment))
        });
        match named {
            Ok(segment) => {
                let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
                segments.insert(id, Arc::clone(&segment));
                Ok(segment)
            }
            Err(error) => {
                // The manifest does not name it, and if it does after all, the log is poisoned.
                if !self.is_poisoned() {
                    let _ = disk.unlink(&Segment::name(id));
                }
                Err(error)
            }
        }
    }

    pub(super) fn prepare_until_stopped(&self) {
        let mut told = None;
        loop {
            let queue = self.queue();
            if queue.stopping {
                return;
            }
            if !queue.needs_segment() {
                drop(self.prepare.wait(queue));
                continue;
            }
            drop(queue);
            let Err(error) = self.prepare_next() else {
                told = None;
                continue;
            };
            if self.is_poisoned() {
                return;
            }
            // A disk that stays full fails each time: it is said once.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let failed = Some((error.to_string(), cause));
            if let Some((error, cause)) = failed.as_ref().filter(|_| failed != told) {
                tracing::error!(%error, cause, "the log cannot prepare its next segment; trying again each second");
            }
            told = failed;
            let queue = self.queue();
            if !queue.stopping {
                drop(self.prepare.wait_timeout(queue, RETRY));
            }
        }
    }
}
