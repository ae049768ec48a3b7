//! Writing to the log: callers append frames to the open group, one thread writes, syncs and wakes.
//!
//! The place of a frame is known when it is appended, so that an index can point to it before it is written. All
//! groups up to the position [`Log::durable_end`] are durable; whoever waits for a frame waits until that has passed
//! it. A failed write or sync is final: the log is poisoned, and the process must reopen it.

mod prepare;
mod queue;
mod space;
#[cfg(test)]
mod tests;
mod threads;
mod waiters;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};

use queue::Queue;
pub(crate) use threads::{ClosesOnPanic, Threads};
use waiters::{Crowd, Waiters};

use super::disk::Disk;
use super::faults::PlantedFault;
use super::frame::{Frame, HEAD};
use super::manifest::{Failure, Manifest, ManifestFile};
use super::position::Position;
use super::recovery::{Recovered, Settings};
use super::segment::{Segment, failed};
use crate::model::error::{Error, Result};

/// Bytes that one read of a frame fetches; most frames are smaller.
const READ: usize = 512;

/// Length of the largest frame that a thread of the runtime copies.
const CACHED: usize = 64 << 10;

/// Reason why nothing was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAppended {
    /// No segment has room yet: wait with [`Log::room`].
    NoRoom,
    /// No segment is large enough.
    TooLarge,
    /// A write failed before.
    Poisoned,
}

/// An open log.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    settings: Settings,
    queue: Mutex<Queue>,
    /// Wakes the thread that writes.
    work: Condvar,
    /// Wakes the thread that prepares segments.
    prepare: Condvar,
    /// End of the last durable group.
    durable: AtomicU64,
    /// Sequence of the last durable group.
    acknowledged: AtomicU64,
    poisoned: AtomicBool,
    /// Bytes of the disk that are kept for writes that end authority.
    reserve_bytes: AtomicU64,
    /// True while the disk has less free than that.
    is_short: AtomicBool,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    /// Last sequence of each segment that is no longer written to.
    lasts: Mutex<BTreeMap<u32, u64>>,
    manifest: Mutex<ManifestFile>,
}

impl Log {
    /// A log without threads: whoever has it calls [`write_next`](Self::write_next), [`seal`](Self::seal) and
    /// [`prepare_next`](Self::prepare_next).
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        settings: Settings,
        recovered: Recovered,
        keep_bytes: usize,
    ) -> Self {
        let Recovered { manifest, segments, current, tail, last_sequence } = recovered;
        let closed =
            manifest.current().segments.iter().filter_map(|entry| Some((entry.id, entry.closed?.last)));
        let lasts = closed.collect();
        let end = Position::new(current.id, tail);
        Self {
            disk,
            settings,
            queue: Mutex::new(Queue::new(current, tail, last_sequence + 1, keep_bytes)),
            work: Condvar::new(),
            prepare: Condvar::new(),
            durable: AtomicU64::new(end.bits()),
            acknowledged: AtomicU64::new(last_sequence),
            poisoned: AtomicBool::new(false),
            reserve_bytes: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            segments: RwLock::new(segments),
            lasts: Mutex::new(lasts),
            manifest: Mutex::new(manifest),
        }
    }

    /// Appends frames to the open group and returns the place of the first.
    pub(crate) fn append(&self, frames: &[u8]) -> Result<Position, NotAppended> {
        if self.is_poisoned() {
            return Err(NotAppended::Poisoned);
        }
        let mut queue = self.queue();
        let at = queue.append(frames)?;
        let is_waiting = std::mem::take(&mut queue.writer_waits);
        // On a full disk the thread tries again by itself, not with each commit.
        let is_short = queue.needs_segment() && queue.no_segment.is_none();
        drop(queue);
        if is_waiting {
            self.work.notify_one();
        }
        if is_short {
            self.prepare.notify_one();
        }
        Ok(at)
    }

    /// End of the last durable group: all frames before it are durable.
    pub(crate) fn durable_end(&self) -> Position {
        Position::from_bits(self.durable.load(Ordering::Acquire))
    }

    /// End of a durable group, and a sequence that is durable at that end.
    pub(crate) fn durable_point(&self) -> (Position, u64) {
        // In this order: the thread that writes moves the end first, so that this is the end of the group or of a later one.
        let sequence = self.acknowledged();
        (self.durable_end(), sequence)
    }

    /// End of all that has been appended.
    pub(crate) fn appended_end(&self) -> Position {
        self.queue().end()
    }

    /// Highest acknowledged sequence.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Fails if a write failed before.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_poisoned() { Err(poisoned()) } else { Ok(()) }
    }

    /// Waits until the frame at `at` is durable.
    pub(crate) async fn durable(&self, at: Position) -> Result<()> {
        let mut waiting = Waiting { log: self, at, joined: None };
        std::future::poll_fn(|context| waiting.poll(context)).await
    }

    /// Waits until a prepared segment is at hand; fails if none can be made.
    pub(crate) async fn room(&self) -> Result<()> {
        self.want_segment();
        std::future::poll_fn(|context| {
            let mut queue = self.queue();
            if self.is_poisoned() {
                return Poll::Ready(Err(poisoned()));
            }
            if !queue.ready.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Some(message) = &queue.no_segment {
                return Poll::Ready(Err(Error::unavailable(message.clone())));
            }
            queue.room.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Has the next segment prepared.
    pub(crate) fn want_segment(&self) {
        let mut queue = self.queue();
        queue.is_wanted = true;
        // On a full disk the thread tries again by itself.
        if queue.no_segment.is_none() {
            self.prepare.notify_one();
        }
    }

    /// A frame that is in memory: of an open group, of the one being written, or of a recent one.
    pub(crate) fn in_memory(&self, at: Position) -> Option<Vec<u8>> {
        self.queue().frame(at)
    }

    /// A frame from its segment; none if that has been retired. Reads from the disk.
    pub(crate) fn read(&self, at: Position) -> Result<Option<Vec<u8>>> {
        let Some(segment) = self.segment(at.segment()) else { return Ok(None) };
        read_frame(&segment, at.offset()).map(Some)
    }

    /// A frame that the operating system has in memory. Unlike a [`read`](Self::read) it never waits for the disk.
    pub(crate) fn read_cached(&self, at: Position) -> Option<Vec<u8>> {
        let segment = self.segment(at.segment())?;
        let mut bytes = segment.read_cached(at.offset(), READ);
        let len = Frame::length(bytes.first_chunk::<HEAD>()?);
        if bytes.len() < len && len <= CACHED {
            bytes = segment.read_cached(at.offset(), len);
        }
        bytes.truncate(len);
        (bytes.len() == len).then_some(bytes)
    }

    /// The open segment with this number.
    pub(crate) fn segment(&self, id: u32) -> Option<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// All segments up to this one, in order.
    pub(crate) fn segments_up_to(&self, id: u32) -> Vec<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.range(..=id).map(|(_, segment)| Arc::clone(segment)).collect()
    }

    /// Segments that are no longer written to and are durable, with their last sequences.
    pub(crate) fn full(&self) -> Vec<(Arc<Segment>, u64)> {
        let acknowledged = self.acknowledged();
        let lasts = self.lasts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let durable = lasts.into_iter().filter(|(_, last)| *last <= acknowledged);
        durable.filter_map(|(id, last)| Some((self.segment(id)?, last))).collect()
    }

    /// The oldest segment, if it is no longer written to, and its last sequence.
    pub(crate) fn oldest(&self) -> Option<(Arc<Segment>, u64)> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let oldest = Arc::clone(segments.values().next()?);
        drop(segments);
        let last = self.lasts.lock().unwrap_or_else(PoisonError::into_inner).get(&oldest.id).copied()?;
        // A later group is durable, and its header says that this segment is: recovery does not write it anew elsewhere.
        (last < self.acknowledged()).then_some((oldest, last))
    }

    /// Numbers of all segments that hold frames, the current one included.
    pub(crate) fn used(&self) -> Vec<u32> {
        let current = self.queue().used_segment();
        let lasts = self.lasts.lock().unwrap_or_else(PoisonError::into_inner);
        lasts.keys().copied().chain(current).collect()
    }

    /// Lets a segment be retired although nobody writes: goes on in the next one if it is the current one, and has a group
    /// written behind it. Without a prepared segment it only asks for one.
    pub(crate) fn leave(&self, id: u32) {
        let is_current = self.queue().used_segment() == Some(id);
        if is_current && !self.roll() {
            return self.want_segment();
        }
        self.queue().want_seal();
        self.work.notify_all();
    }

    /// Bytes of all segments that hold groups.
    pub(crate) fn bytes(&self) -> u64 {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().map(|segment| u64::from(segment.len)).sum()
    }

    /// Lets the next commit go on in a new segment, so that the current one can be retired.
    pub(crate) fn roll(&self) -> bool {
        let rolled = self.queue().roll();
        if let Some((id, last)) = rolled {
            self.lasts.lock().unwrap_or_else(PoisonError::into_inner).insert(id, last);
        }
        rolled.is_some()
    }

    /// Forgets a segment after its checkpoint. Handles that readers hold keep working.
    pub(crate) fn forget(&self, id: u32) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.lasts.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Changes the manifest durably. If it is not known which one stands, the log is poisoned.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut manifest = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        // The durable groups stay below the floor even if the last header is damaged later.
        let durable_to = self.acknowledged();
        let changed = manifest.change(|next| {
            change(next);
            next.durable_to = next.durable_to.max(durable_to);
        });
        changed.map_err(|failure| {
            if matches!(failure, Failure::Unknown(_)) {
                self.poison("the manifest could not be replaced");
            }
            failure.into_error()
        })
    }

    pub(crate) fn manifest(&self) -> Manifest {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner).current().clone()
    }

    /// Writes and syncs the oldest group that waits, and wakes its callers. Answers whether there was one.
    pub(crate) fn write_next(&self) -> Result<bool> {
        self.check()?;
        let mut queue = self.queue();
        let Some((segment, group)) = queue.take() else { return Ok(false) };
        let sequence = queue.next_sequence - 1;
        drop(queue);
        if group.start.offset() == 0 {
            self.note_roll(segment.id, sequence);
        }
        let faults = self.settings.faults;
        let end = Position::new(segment.id, group.end());
        let acknowledge = || {
            self.durable.store(end.bits(), Ordering::Release);
            self.acknowledged.store(sequence, Ordering::Release);
        };
        let mut written = segment.file.write_at(&group.bytes, group.start.offset().into());
        if faults.has(PlantedFault::AcknowledgedBeforeSync) && written.is_ok() {
            acknowledge();
            self.wake_written();
        }
        if written.is_ok() && !faults.has(PlantedFault::SyncSkipped) {
            written = segment.file.sync_data();
        }
        if let Err(error) = written {
            self.poison(&format!("group {sequence} could not be written: {error}"));
            return Err(failed("cannot write to the log", error));
        }
        acknowledge();
        if let Ok(waiting @ 1..) = u32::try_from(self.wake_written()) {
            metrics::histogram!("ebbtide_committer_group_size").record(waiting);
        }
        Ok(true)
    }

    /// Wakes the callers of the group that was written, and returns their number.
    fn wake_written(&self) -> usize {
        let waiters = self.queue().written();
        let count = waiters.wake_first();
        let before = self.queue().woken(waiters);
        before.wake_all();
        count
    }

    /// Writes an empty group behind the last one, whose header says that the last one is durable. Answers whether it did:
    /// not behind a seal, and not where no segment has room.
    pub(crate) fn seal(&self) -> Result<bool> {
        self.check()?;
        if !self.queue().open_seal() {
            return Ok(false);
        }
        self.write_next()
    }

    fn note_roll(&self, segment: u32, sequence: u64) {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let before = segments.range(..segment).next_back().map(|(id, _)| *id);
        drop(segments);
        if let Some(before) = before {
            let mut lasts = self.lasts.lock().unwrap_or_else(PoisonError::into_inner);
            lasts.entry(before).or_insert(sequence - 1);
        }
    }

    /// Makes every later call fail.
    pub(crate) fn poison(&self, reason: &str) {
        tracing::error!(reason, "the log is closed until it is reopened");
        self.poisoned.store(true, Ordering::Release);
        let mut queue = self.queue();
        let (waiters, room) = queue.all_waiters();
        drop(queue);
        // The thread that writes ends.
        self.work.notify_all();
        waiters.iter().for_each(Waiters::wake_all);
        room.into_iter().for_each(Waker::wake);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every change is made after all that could panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Caller that waits for a frame.
struct Waiting<'a> {
    log: &'a Log,
    at: Position,
    joined: Option<(Waker, Arc<Crowd>)>,
}

impl Waiting<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        if self.at < self.log.durable_end() {
            return Poll::Ready(Ok(()));
        }
        let is_joined = self.joined.as_ref().is_some_and(|(waker, _)| waker.will_wake(context.waker()));
        if is_joined && !self.log.is_poisoned() {
            return Poll::Pending;
        }
        let mut queue = self.log.queue();
        // The thread that writes moves the end before it takes the callers under this lock.
        if self.at < self.log.durable_end() {
            return Poll::Ready(Ok(()));
        }
        if self.log.is_poisoned() {
            return Poll::Ready(Err(poisoned()));
        }
        let Some(waiters) = queue.waiters(self.at) else { return Poll::Ready(Err(poisoned())) };
        let crowd = waiters.join(context.waker());
        drop(queue);
        if let Some((waker, crowd)) = self.joined.replace((context.waker().clone(), crowd)) {
            crowd.leave(&waker);
        }
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    /// Wakes the other callers of the thread, if the group is durable.
    fn drop(&mut self) {
        if let Some((waker, crowd)) = self.joined.take() {
            if self.at < self.log.durable_end() || self.log.is_poisoned() {
                crowd.wake_all();
            } else {
                crowd.leave(&waker);
            }
        }
    }
}

/// Reads the frame at `offset` of a segment.
pub(crate) fn read_frame(segment: &Segment, offset: u32) -> Result<Vec<u8>> {
    let mut bytes = segment.read(offset, READ)?;
    let cut = || Error::corrupt("a frame of the log is cut short");
    let len = Frame::length(bytes.first_chunk::<HEAD>().ok_or_else(cut)?);
    if bytes.len() < len {
        bytes = segment.read(offset, len)?;
    }
    bytes.truncate(len);
    if bytes.len() == len { Ok(bytes) } else { Err(cut()) }
}

pub(crate) fn poisoned() -> Error {
    Error::unavailable("a write to the log failed; reopen the store")
}
