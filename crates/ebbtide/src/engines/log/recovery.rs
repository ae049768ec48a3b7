//! Opening a log: what counts, what is damage, and what is a torn tail.
//!
//! The *floor* is the highest `durable_to` in any valid header, its body valid or not, and in the manifest. Groups
//! up to the floor were durable before a later one was written: damage there is `Corrupt`, and the log does not
//! open. Above the floor no group was known to be durable when the log was last written to: what is not whole there
//! is a torn tail. It is copied aside and cut.
//!
//! Valid groups above the floor are written anew into a new segment with a new epoch, and synced before the first
//! answer: after a killed process, or a failed sync, they may be in the page cache and not on the disk. The segment
//! that was cut is closed in the manifest and is never written to again.
//!
//! Recovery changes nothing that a second recovery depends on before the new manifest stands, and that replaces the
//! old one atomically. So a crash at any of its writes, any number of times, changes nothing.

mod mend;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use scan::{Scan, scan};

use super::disk::Disk;
use super::faults::{Faults, PlantedFault};
use super::frame::Frame;
use super::hint::Hint;
use super::manifest::{self, Manifest, ManifestFile};
use super::position::Position;
use super::segment::{Segment, check_len, failed};
use crate::model::error::{Error, Result};
use crate::model::rng::Rng;

/// Settings of a log.
#[derive(Clone)]
pub struct Settings {
    /// Length of the segments that are prepared ahead.
    pub segment_len: u32,
    /// Length of the segment that opening creates, so that a large one delays no opening.
    pub first_len: u32,
    /// Identifiers of the keyrings at hand.
    pub keyrings: Vec<String>,
    /// Source of epochs and of the seed of the index.
    pub rng: Arc<dyn Rng>,
    pub faults: Faults,
}

/// Sees each frame that is replayed, in the order of the log, with the segment that it is in. A frame above the floor is
/// seen again at its new place.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&Arc<Segment>, Position, Frame<'_>) -> Result<()>;

/// A log that has been recovered and can be written to.
pub(crate) struct Recovered {
    pub(crate) manifest: ManifestFile,
    /// Segments by number, the current one included.
    pub(crate) segments: BTreeMap<u32, Arc<Segment>>,
    /// Segment that is written to.
    pub(crate) current: Arc<Segment>,
    /// Offset of its first free page.
    pub(crate) tail: u32,
    /// Sequence of the last group, which is durable.
    pub(crate) last_sequence: u64,
}

/// Opens the log on `disk`, or creates one on an empty disk.
///
/// Segments with a hint, the oldest ones, are not read: the caller has their entries.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    hints: &[Hint],
    visit: Visit<'_>,
) -> Result<Recovered> {
    check_len(settings.segment_len)?;
    check_len(settings.first_len)?;
    let scan = match scan(disk.as_ref(), settings.faults, hints, visit)? {
        Some(scan) => {
            sync_names(disk.as_ref(), settings)?;
            scan
        }
        None => create(disk, settings)?,
    };
    check_keyrings(&scan.manifest, settings)?;
    mend::mend(disk, settings, scan, visit)
}

/// Writes the manifest of an empty log, before there is a segment: a manifest that is missing beside other files is damage.
fn create(disk: &Arc<dyn Disk>, settings: &Settings) -> Result<Scan> {
    let manifest = Manifest::new(settings.rng.bytes(), settings.keyrings.clone());
    let mut file = ManifestFile::new(Arc::clone(disk), manifest.clone(), settings.faults);
    file.change(|_| {}).map_err(manifest::Failure::into_error)?;
    Ok(Scan::empty(manifest))
}

/// Makes the names durable that were read. A process that was killed may have left a manifest whose name is not: if a file
/// were created or removed before it is, a crash could keep that and not the manifest.
fn sync_names(disk: &dyn Disk, settings: &Settings) -> Result<()> {
    if settings.faults.has(PlantedFault::DirectoryNotSynced) {
        return Ok(());
    }
    disk.sync_dir().map_err(|error| failed("cannot sync the folder of the log", error))
}

fn check_keyrings(manifest: &Manifest, settings: &Settings) -> Result<()> {
    match manifest.keyrings.iter().find(|ring| !settings.keyrings.contains(ring)) {
        Some(ring) => Err(Error::corrupt(format!("keyring {ring} of this store is missing"))),
        None => Ok(()),
    }
}

/// Returns true if the disk holds files of a store; a manifest that was never finished is none.
fn has_files(disk: &dyn Disk) -> Result<bool> {
    let names = disk.list().map_err(|error| failed("cannot list the files of the log", error))?;
    Ok(names.iter().any(|name| name != manifest::NEW))
}
