//! The writes of recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::scan::{Scan, Torn};
use super::{Recovered, Settings, Visit};
use crate::engines::log::disk::Disk;
use crate::engines::log::faults::PlantedFault;
use crate::engines::log::frame::Frame;
use crate::engines::log::group::{Builder, HEADER, Header};
use crate::engines::log::hint;
use crate::engines::log::manifest::{self, Closed, ManifestFile, kinds};
use crate::engines::log::position::Position;
use crate::engines::log::segment::{Segment, failed};
use crate::model::error::{Error, Result};

/// Copies the torn tail aside, writes the groups above the floor anew, and closes the segments before them.
pub(super) fn mend(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    scan: Scan,
    visit: Visit<'_>,
) -> Result<Recovered> {
    if settings.faults.has(PlantedFault::ContinueInCutSegment)
        && let Some(recovered) = continue_in_place(disk, settings, &scan)
    {
        return Ok(recovered);
    }
    for torn in &scan.torn {
        keep_aside(disk.as_ref(), torn)?;
    }
    let last_sequence = scan.last_sequence();
    let (current, tail) = rewrite(disk.as_ref(), settings, &scan, visit)?;
    let Scan { manifest, segments, ends, .. } = scan;
    let mut manifest = ManifestFile::new(Arc::clone(disk), manifest, settings.faults);
    manifest
        .change(|next| {
            next.segments.retain_mut(|entry| {
                let end = ends.iter().find(|group| group.place.segment() == entry.id);
                entry.closed = end.map(|group| Closed { last: group.sequence, end: group.end });
                end.is_some()
            });
            next.segments.push(current.entry());
            next.kinds = kinds();
            next.next_segment = current.id + 1;
            next.durable_to = last_sequence;
        })
        .map_err(manifest::Failure::into_error)?;
    let mut open = BTreeMap::new();
    for segment in segments {
        let entry = manifest.current().segments.iter().find(|entry| entry.id == segment.id);
        if let Some(closed) = entry.and_then(|entry| entry.closed) {
            open.insert(segment.id, shortened(&segment, closed.end));
        }
    }
    open.insert(current.id, Arc::clone(&current));
    remove_unnamed(disk.as_ref(), &open);
    Ok(Recovered { manifest, segments: open, current, tail, last_sequence })
}

/// Gives back the rest of a closed segment; the manifest says already that nothing there counts.
fn shortened(segment: &Arc<Segment>, end: u32) -> Arc<Segment> {
    if segment.len <= end || segment.file.resize(end.into()).is_err() {
        return Arc::clone(segment);
    }
    let Segment { id, epoch, .. } = **segment;
    Arc::new(Segment { id, epoch, len: end, file: Arc::clone(&segment.file) })
}

/// Copies torn bytes into a file of their own, for an operator to look at.
fn keep_aside(disk: &dyn Disk, torn: &Torn) -> Result<()> {
    let name = format!("{:08}-{}.torn", torn.place.segment(), torn.place.offset());
    let write = || {
        let file = disk.create(&name)?;
        file.write_at(&torn.bytes, 0)?;
        file.sync_data()?;
        disk.sync_dir()
    };
    write().map_err(|error| failed("cannot copy the torn tail of the log aside", error))?;
    tracing::warn!(
        segment = Segment::name(torn.place.segment()),
        offset = torn.place.offset(),
        bytes = torn.bytes.len(),
        file = name,
        "cut a torn tail off the log; its groups were never acknowledged"
    );
    Ok(())
}

/// Writes the valid groups above the floor into a new segment with a new epoch, and syncs it.
fn rewrite(
    disk: &dyn Disk,
    settings: &Settings,
    scan: &Scan,
    visit: Visit<'_>,
) -> Result<(Arc<Segment>, u32)> {
    let mut bytes = Vec::new();
    let epoch = settings.rng.bytes();
    let mut bodies = Vec::new();
    for group in &scan.above {
        let segment = scan.segments.iter().find(|segment| segment.id == group.place.segment());
        let segment = segment.ok_or_else(|| Error::corrupt("a group of the log has no segment"))?;
        let old = segment.read(group.place.offset(), (group.end - group.place.offset()) as usize)?;
        let body = Header::read(&old, &segment.epoch).and_then(|header| Some(header.body(&old)?.to_vec()));
        let body = body.ok_or_else(|| Error::unavailable("a group of the log changed while it was read"))?;
        let mut builder = Builder::new(Vec::new());
        builder.append(&body);
        bodies.push((bytes.len() + HEADER, body));
        bytes.extend(builder.finish(&epoch, group.sequence, scan.floor));
    }
    let tail = u32::try_from(bytes.len()).map_err(|_| Error::corrupt("the tail of the log is too long"))?;
    let len = settings.first_len.max(tail);
    let write = || {
        let segment = Segment::create(disk, scan.manifest.next_segment, epoch, len, settings.faults)?;
        if !bytes.is_empty() {
            segment.file.write_at(&bytes, 0)?;
            segment.file.sync_data()?;
        }
        Ok(Arc::new(segment))
    };
    let segment = write().map_err(|error| failed("cannot write a new segment of the log", error))?;
    for (at, body) in &bodies {
        Frame::each(body, |offset, frame| {
            let offset = u32::try_from(at + offset).expect("a segment is smaller than 4 GiB");
            visit(&segment, Position::new(segment.id, offset), frame)
        })?;
    }
    Ok((segment, tail))
}

/// Removes files that the manifest does not name. One that stays is removed the next time.
fn remove_unnamed(disk: &dyn Disk, open: &BTreeMap<u32, Arc<Segment>>) {
    for name in disk.list().unwrap_or_default() {
        let number = Segment::number(&name).or_else(|| hint::number(&name));
        let unnamed = number.is_some_and(|id| !open.contains_key(&id));
        if (unnamed || name == manifest::NEW)
            && let Err(error) = disk.unlink(&name)
        {
            tracing::warn!(%error, file = name, "cannot remove an unused file of the log");
        }
    }
}

/// The planted fault: neither a new segment nor a sync.
fn continue_in_place(disk: &Arc<dyn Disk>, settings: &Settings, scan: &Scan) -> Option<Recovered> {
    let last = scan.above.last().or(scan.ends.last())?;
    let current = scan.segments.iter().find(|segment| segment.id == last.place.segment())?;
    Some(Recovered {
        manifest: ManifestFile::new(Arc::clone(disk), scan.manifest.clone(), settings.faults),
        segments: scan.segments.iter().map(|segment| (segment.id, Arc::clone(segment))).collect(),
        current: Arc::clone(current),
        tail: last.end,
        last_sequence: last.sequence,
    })
}
