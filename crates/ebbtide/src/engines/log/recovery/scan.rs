//! Reading a log: its groups, its floor, and where it ends. Nothing is written.

use std::sync::Arc;

use super::{Visit, has_files};
use crate::engines::log::disk::{Disk, PAGE};
use crate::engines::log::faults::{Faults, PlantedFault};
use crate::engines::log::frame::Frame;
use crate::engines::log::group::{HEADER, Header};
use crate::engines::log::hint::Hint;
use crate::engines::log::manifest::Manifest;
use crate::engines::log::position::Position;
use crate::engines::log::segment::Segment;
use crate::model::error::{Error, Result};

/// A valid group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupAt {
    pub(crate) place: Position,
    pub(crate) sequence: u64,
    /// Offset of its end, on a page boundary.
    pub(crate) end: u32,
}

/// Bytes behind the last valid group that are not zero.
pub(crate) struct Torn {
    pub(crate) place: Position,
    pub(crate) bytes: Vec<u8>,
}

/// A log as it was found.
pub(crate) struct Scan {
    pub(crate) manifest: Manifest,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Highest sequence that was durable before the log was last written to.
    pub(crate) floor: u64,
    /// Last group at or below the floor, of each segment that has one.
    pub(crate) ends: Vec<GroupAt>,
    /// Valid groups above the floor.
    pub(crate) above: Vec<GroupAt>,
    pub(crate) torn: Vec<Torn>,
}

impl Scan {
    pub(super) fn empty(manifest: Manifest) -> Self {
        let floor = manifest.durable_to;
        Self { manifest, segments: Vec::new(), floor, ends: Vec::new(), above: Vec::new(), torn: Vec::new() }
    }

    /// Sequence of the last valid group.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.above.last().map_or(self.floor, |group| group.sequence)
    }
}

/// Reads the log on `disk`, but not the segments that have one of `hints`; none if there has never been one.
pub(crate) fn scan(
    disk: &dyn Disk,
    faults: Faults,
    hints: &[Hint],
    visit: Visit<'_>,
) -> Result<Option<Scan>> {
    let Some(manifest) = Manifest::read(disk)? else {
        return if has_files(disk)? {
            Err(Error::corrupt("the manifest of the log is missing"))
        } else {
            Ok(None)
        };
    };
    let mut walk = RecoveryWalk {
        next: manifest.first_sequence,
        floor: manifest.durable_to,
        stop: None,
        ends: Vec::new(),
        recent: Vec::new(),
        torn: Vec::new(),
        faults,
    };
    let mut segments = Vec::with_capacity(manifest.segments.len());
    // One buffer for all: new memory costs as much as reading into it.
    let mut bytes = Vec::new();
    for (number, entry) in manifest.segments.iter().enumerate() {
        let segment = Arc::new(Segment::open(disk, entry)?);
        if let Some(hint) = hints.get(number) {
            walk.hinted(&segment, hint);
            segments.push(segment);
            continue;
        }
        let end = entry.closed.map_or(segment.len, |closed| closed.end);
        segment.read_into(&mut bytes, 0, end as usize)?;
        walk.segment(&segment, &bytes, visit)?;
        if let Some(closed) = entry.closed
            && walk.stop.is_none_or(|stop| stop.segment() == segment.id)
            && walk.next != closed.last + 1
        {
            return Err(damaged(segment.id, walk.next, closed.last));
        }
        segments.push(segment);
    }
    if walk.floor >= walk.next {
        let segment = walk.stop.map_or(manifest.checkpoint, Position::segment);
        return Err(damaged(segment, walk.next, walk.floor));
    }
    let (floor, torn) = (walk.floor, walk.torn);
    let (below, above): (Vec<_>, Vec<_>) = walk.recent.into_iter().partition(|group| group.sequence <= floor);
    let mut ends = walk.ends;
    for group in below {
        note_end(&mut ends, group);
    }
    Ok(Some(Scan { manifest, segments, floor, ends, above, torn }))
}

fn note_end(ends: &mut Vec<GroupAt>, group: GroupAt) {
    match ends.last_mut() {
        Some(last) if last.place.segment() == group.place.segment() => *last = group,
        _ => ends.push(group),
    }
}

fn damaged(segment: u32, sequence: u64, durable: u64) -> Error {
    Error::corrupt(format!(
        "segment {} of the log is damaged at group {sequence}; groups up to {durable} were durable",
        Segment::name(segment)
    ))
}

struct RecoveryWalk {
    /// Sequence that the next group must have.
    next: u64,
    floor: u64,
    /// Place at which the next group was looked for and not found.
    stop: Option<Position>,
    /// Last group of each segment, of those known to be at or below the floor.
    ends: Vec<GroupAt>,
    /// Groups that may be above the floor.
    recent: Vec<GroupAt>,
    torn: Vec<Torn>,
    faults: Faults,
}

impl RecoveryWalk {
    /// Passes over a segment with a hint: that was written when all its groups were durable.
    fn hinted(&mut self, segment: &Segment, hint: &Hint) {
        note_end(&mut self.ends, GroupAt { place: place(segment, 0), sequence: hint.last, end: hint.end });
        self.next = hint.last + 1;
        self.floor = self.floor.max(hint.last);
        self.stop = Some(place(segment, hint.end as usize));
    }

    /// Walks the groups of one segment, and looks for headers behind the last of them.
    fn segment(&mut self, segment: &Arc<Segment>, bytes: &[u8], visit: Visit<'_>) -> Result<()> {
        let mut at = 0;
        let first = Header::read(bytes, &segment.epoch);
        let goes_on = self.stop.is_none() || first.is_some_and(|header| header.sequence == self.next);
        if goes_on {
            if let Some(stop) = self.stop.take()
                && !self.torn.is_empty()
            {
                // The log went on in the next segment, so the rest of this one was never written to.
                let written = self.torn.iter().any(|torn| torn.place.segment() == stop.segment());
                if written {
                    return Err(damaged(stop.segment(), self.next, self.next));
                }
            }
            at = self.chain(segment, bytes, visit)?;
            self.stop = Some(place(segment, at));
        }
        self.headers_behind(segment, &bytes[at..]);
        let used = used(&bytes[at..]);
        if !goes_on && first.is_none() && used > 0 && self.torn.is_empty() {
            // The segment before ends in zeros, and this one does not begin with a group.
            self.stop = Some(place(segment, 0));
        }
        if used > 0 {
            self.torn.push(Torn { place: place(segment, at), bytes: bytes[at..at + used].to_vec() });
        }
        Ok(())
    }

    /// Follows the groups from the start of the segment, and returns the offset at which they end.
    fn chain(&mut self, segment: &Arc<Segment>, bytes: &[u8], visit: Visit<'_>) -> Result<usize> {
        let mut at = 0;
        while let Some(header) = Header::read(&bytes[at..], &segment.epoch) {
            let Some(body) = header.body(&bytes[at..]) else { break };
            if header.sequence != self.next {
                return Err(damaged(segment.id, self.next, header.sequence));
            }
            self.saw(header);
            Frame::each(body, |offset, frame| visit(segment, place(segment, at + HEADER + offset), frame))?;
            let end = at + header.size();
            let group = GroupAt {
                place: place(segment, at),
                sequence: header.sequence,
                end: place(segment, end).offset(),
            };
            self.recent.push(group);
            self.next += 1;
            at = end;
            if at >= bytes.len() {
                break;
            }
        }
        Ok(at)
    }

    fn saw(&mut self, header: Header) {
        self.floor = self.floor.max(header.durable_to);
        let floor = self.floor;
        // Most groups are below the floor as soon as the next one is seen: keep only the last of each segment.
        while self.recent.first().is_some_and(|group| group.sequence <= floor) {
            note_end(&mut self.ends, self.recent.remove(0));
        }
    }

    /// Raises the floor by headers behind the end of the chain: they prove what was durable when they were written, even
    /// where a body or a group before them is damaged.
    fn headers_behind(&mut self, segment: &Segment, bytes: &[u8]) {
        for at in (0..bytes.len()).step_by(PAGE) {
            let Some(header) = Header::read(&bytes[at..], &segment.epoch) else { continue };
            if self.faults.has(PlantedFault::FloorFromWholeGroups) && header.body(&bytes[at..]).is_none() {
                continue;
            }
            self.floor = self.floor.max(header.durable_to);
        }
    }
}

/// Length without the pages of zeros at the end.
fn used(bytes: &[u8]) -> usize {
    const ZEROS: [u8; PAGE] = [0; PAGE];
    let last = bytes.chunks(PAGE).rposition(|page| *page != ZEROS[..page.len()]);
    last.map_or(0, |last| bytes.len().min((last + 1) * PAGE))
}

fn place(segment: &Segment, offset: usize) -> Position {
    Position::new(segment.id, u32::try_from(offset).expect("a segment is smaller than 4 GiB"))
}
