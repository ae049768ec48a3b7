//! Groups on their way to the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::NotAppended;
use super::waiters::Waiters;
use crate::engines::log::disk::PAGE;
use crate::engines::log::frame::{Frame, HEAD};
use crate::engines::log::group::{Builder, HEADER, pages};
use crate::engines::log::position::Position;
use crate::engines::log::segment::Segment;

/// Length at which a group takes no more frames, unless it is empty.
const GROUP: usize = 4 << 20;

/// Buffers that are kept for the next groups.
const SPARE: usize = 4;

/// Length up to which a buffer is used for a group of any length.
const SMALL: usize = 16 << 10;

/// A group that is or was written.
pub(super) struct Body {
    pub(super) start: Position,
    /// Header, frames and padding.
    pub(super) bytes: Vec<u8>,
}

impl Body {
    /// Offset of its end in the segment.
    pub(super) fn end(&self) -> u32 {
        self.start.offset() + u32::try_from(self.bytes.len()).expect("a group is smaller than a segment")
    }
}

/// A group that was not taken yet. Only the last of them takes frames.
struct OpenGroup {
    segment: Arc<Segment>,
    start: u32,
    builder: Builder,
    /// Most bytes that it may have, the header included.
    limit: usize,
    waiters: Waiters,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(super) struct Queue {
    open: VecDeque<OpenGroup>,
    writing: Option<(Arc<Body>, Waiters)>,
    /// Callers of the last durable group, until those that were woken have woken the others.
    woken: Waiters,
    /// Groups that were written lately, the oldest first.
    recent: VecDeque<Arc<Body>>,
    recent_bytes: usize,
    /// Buffers of groups that are no longer recent: new memory would cost as much as what is written to it.
    spare: Vec<Vec<u8>>,
    /// Length of the last group that was taken.
    last_len: usize,
    /// The same without padding.
    last_frames: usize,
    keep_bytes: usize,
    /// Segment and offset of the group that is opened next.
    segment: Arc<Segment>,
    tail: u32,
    /// True if that segment holds frames, and not only seals.
    has_frames: bool,
    /// Segments that were prepared ahead.
    pub(super) ready: VecDeque<Arc<Segment>>,
    /// Callers that wait for a segment.
    pub(super) room: Vec<Waker>,
    /// True if a caller waits for the next segment, or needs it soon.
    pub(super) is_wanted: bool,
    /// Reason why no segment could be prepared.
    pub(super) no_segment: Option<String>,
    pub(super) next_sequence: u64,
    /// True if the last group is a seal, or none is needed.
    pub(super) sealed: bool,
    pub(super) stopping: bool,
    /// True if the thread that writes must be woken.
    pub(super) writer_waits: bool,
}

impl Queue {
    pub(super) fn new(segment: Arc<Segment>, tail: u32, next_sequence: u64, keep_bytes: usize) -> Self {
        Self {
            open: VecDeque::new(),
            writing: None,
            woken: Waiters::default(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            spare: Vec::new(),
            last_len: 0,
            last_frames: 0,
            keep_bytes,
            segment,
            tail,
            has_frames: tail > 0,
            ready: VecDeque::new(),
            room: Vec::new(),
            is_wanted: false,
            no_segment: None,
            next_sequence,
            sealed: true,
            stopping: false,
            writer_waits: false,
        }
    }

    pub(super) fn append(&mut self, frames: &[u8]) -> Result<Position, NotAppended> {
        let fits = self.open.back().is_some_and(|open| open.builder.len() + frames.len() <= open.limit);
        if !fits {
            self.open_group(frames.len())?;
        }
        self.has_frames = true;
        let open = self.open.back_mut().expect("a group was opened");
        let at = open.start + offset(open.builder.append(frames));
        Ok(Position::new(open.segment.id, at))
    }

    /// Opens a group behind all others, in the next segment if it has no room in this one.
    fn open_group(&mut self, len: usize) -> Result<(), NotAppended> {
        let end = self.end();
        let mut start = end.offset();
        if HEADER + len > (self.segment.len - start) as usize {
            let largest = self.ready.front().map_or(self.segment.len, |next| next.len);
            if HEADER + len > largest as usize && !self.ready.is_empty() {
                return Err(NotAppended::TooLarge);
            }
            self.segment = self.ready.pop_front().ok_or(NotAppended::NoRoom)?;
            self.is_wanted = false;
            self.has_frames = false;
            start = 0;
        }
        let limit = ((self.segment.len - start) as usize).min(GROUP.max(HEADER + len));
        let segment = Arc::clone(&self.segment);
        let waiters = Waiters::default();
        // A large one would hold its memory for as long as the small group stays recent.
        let most = self.last_len.max(SMALL) * 4;
        let spare = self.spare.pop().filter(|buffer| buffer.capacity() <= most);
        let buffer = spare.unwrap_or_else(|| Vec::with_capacity(self.last_len));
        self.open.push_back(OpenGroup { segment, start, builder: Builder::new(buffer), limit, waiters });
        Ok(())
    }

    /// Opens an empty group; not behind a seal, where frames wait, or without room.
    pub(super) fn open_seal(&mut self) -> bool {
        !self.sealed && self.open.is_empty() && self.writing.is_none() && self.open_group(0).is_ok()
    }

    /// Goes on in the next segment, if one is ready and nothing waits. Returns the segment that is left and the sequence
    /// of its last group.
    pub(super) fn roll(&mut self) -> Option<(u32, u64)> {
        if !self.open.is_empty() || self.writing.is_some() || self.tail == 0 {
            return None;
        }
        let left = std::mem::replace(&mut self.segment, self.ready.pop_front()?);
        self.is_wanted = false;
        self.has_frames = false;
        self.tail = 0;
        Some((left.id, self.next_sequence - 1))
    }

    /// Number of the segment that is written to, if it holds frames.
    pub(super) fn used_segment(&self) -> Option<u32> {
        self.has_frames.then_some(self.segment.id)
    }

    /// Has a seal written into a segment without groups, behind the groups of the segments before it.
    pub(super) fn want_seal(&mut self) {
        self.sealed &= self.tail > 0;
    }

    /// End of all groups.
    pub(super) fn end(&self) -> Position {
        let end = self.open.back().map_or(self.tail, |last| last.start + offset(pages(last.builder.len())));
        Position::new(self.segment.id, end)
    }

    /// Returns true if the next segment is to be prepared: not before half of this one is used, so that a short command
    /// prepares none.
    pub(super) fn needs_segment(&self) -> bool {
        self.ready.is_empty() && (self.is_wanted || self.end().offset() >= self.segment.len / 2)
    }

    /// Returns true if the only group that waits has less than half of the bytes of the last one.
    pub(super) fn is_small(&self) -> bool {
        match (self.open.front(), self.open.len()) {
            (Some(open), 1) => open.builder.len() * 2 < self.last_frames,
            _ => false,
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes the oldest group, to be written.
    pub(super) fn take(&mut self) -> Option<(Arc<Segment>, Arc<Body>)> {
        let OpenGroup { segment, start, builder, waiters, .. } = self.open.pop_front()?;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.sealed = builder.len() == HEADER;
        self.last_frames = builder.len();
        // One group is written at a time, so the one before is durable.
        let bytes = builder.finish(&segment.epoch, sequence, sequence - 1);
        if self.open.is_empty() {
            self.tail = start + offset(bytes.len());
        }
        self.last_len = bytes.len();
        let body = Arc::new(Body { start: Position::new(segment.id, start), bytes });
        self.writing = Some((Arc::clone(&body), waiters));
        Some((segment, body))
    }

    /// The group that was taken is durable: its callers are to be woken with [`wake_first`](Waiters::wake_first). They
    /// are kept with [`woken`](Self::woken).
    pub(super) fn written(&mut self) -> Waiters {
        let Some((body, waiters)) = self.writing.take() else { return Waiters::default() };
        self.recent_bytes += body.bytes.capacity();
        self.recent.push_back(body);
        while self.recent_bytes > self.keep_bytes
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_bytes -= oldest.bytes.capacity();
            if let Some(body) = Arc::into_inner(oldest)
                && self.spare.len() < SPARE
            {
                self.spare.push(body.bytes);
            }
        }
        waiters
    }

    /// Keeps the callers of the last durable group, and returns those of the group before. All of them are to be woken:
    /// a caller that was woken and neither looked nor went away must not hold up the others.
    pub(super) fn woken(&mut self, waiters: Waiters) -> Waiters {
        std::mem::replace(&mut self.woken, waiters)
    }

    /// Callers that wait for the group with this place.
    pub(super) fn waiters(&mut self, at: Position) -> Option<&mut Waiters> {
        let open = self.open.iter_mut().rev().find(|open| Position::new(open.segment.id, open.start) <= at);
        match open {
            Some(open) => Some(&mut open.waiters),
            None => self.writing.as_mut().map(|(_, waiters)| waiters),
        }
    }

    /// All callers that wait for a group, and those that wait for a segment.
    pub(super) fn all_waiters(&mut self) -> (Vec<Waiters>, Vec<Waker>) {
        let mut waiters = vec![std::mem::take(&mut self.woken)];
        waiters.extend(self.open.iter_mut().map(|open| std::mem::take(&mut open.waiters)));
        waiters.extend(self.writing.as_mut().map(|(_, waiters)| std::mem::take(waiters)));
        (waiters, std::mem::take(&mut self.room))
    }

    /// Copy of a frame that is in memory.
    pub(super) fn frame(&self, at: Position) -> Option<Vec<u8>> {
        for open in self.open.iter().rev() {
            if Position::new(open.segment.id, open.start) <= at {
                return copy(open.builder.bytes(), at.offset() - open.start);
            }
        }
        if let Some((body, _)) = &self.writing
            && body.start <= at
        {
            return copy(&body.bytes, at.offset() - body.start.offset());
        }
        let behind = self.recent.partition_point(|body| body.start <= at);
        let body = self.recent.get(behind.checked_sub(1)?)?;
        let is_inside = body.start.segment() == at.segment() && at.offset() < body.end();
        if is_inside { copy(&body.bytes, at.offset() - body.start.offset()) } else { None }
    }
}

fn copy(bytes: &[u8], at: u32) -> Option<Vec<u8>> {
    let bytes = bytes.get(at as usize..)?;
    let len = Frame::length(bytes.first_chunk::<HEAD>()?);
    Some(bytes.get(..len)?.to_vec())
}

fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a segment is smaller than 4 GiB")
}

const _: () = assert!(HEADER < PAGE);
