//! Segment files: filled with zeros before use, written by groups, never written again once closed.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, File, PAGE};
use super::faults::{Faults, PlantedFault};
use super::group::Epoch;
use super::manifest::SegmentEntry;
use super::position::Position;
use crate::model::error::{Error, Result};

/// Ending of the names of segment files.
const ENDING: &str = ".log";

/// An open segment.
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) epoch: Epoch,
    /// Length of the file.
    pub(crate) len: u32,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    /// Name of the file of segment `id`.
    pub(crate) fn name(id: u32) -> String {
        format!("{id:08}{ENDING}")
    }

    /// Number of the segment whose file has this name.
    pub(crate) fn number(name: &str) -> Option<u32> {
        let id = name.strip_suffix(ENDING)?.parse().ok()?;
        (Self::name(id) == name).then_some(id)
    }

    /// Creates a file of zeros and makes its bytes and its name durable. The manifest does not name it yet.
    pub(crate) fn create(
        disk: &dyn Disk,
        id: u32,
        epoch: Epoch,
        len: u32,
        faults: Faults,
    ) -> io::Result<Self> {
        if id > Position::MAX_SEGMENT {
            return Err(io::Error::other("the log has used all numbers of segments"));
        }
        let file = disk.create(&Self::name(id))?;
        file.zero_fill(len.into())?;
        file.sync_data()?;
        if !faults.has(PlantedFault::DirectoryNotSynced) {
            disk.sync_dir()?;
        }
        Ok(Self { id, epoch, len, file })
    }

    /// Opens the file that the manifest names. A missing or shortened file is corrupt.
    pub(crate) fn open(disk: &dyn Disk, entry: &SegmentEntry) -> Result<Self> {
        let name = Self::name(entry.id);
        let file = disk.open(&name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::corrupt(format!("segment {name} of the log is missing")).caused_by(error)
            }
            _ => failed("cannot open a segment of the log", error),
        })?;
        let len = file.len().map_err(|error| failed("cannot open a segment of the log", error))?;
        // Closing cuts off what is behind the last group, after the manifest says so.
        let least = entry.closed.map_or(entry.len, |closed| closed.end);
        match u32::try_from(len) {
            Ok(len) if (least..=entry.len).contains(&len) => {
                Ok(Self { id: entry.id, epoch: entry.epoch, len, file })
            }
            _ => Err(Error::corrupt(format!("segment {name} of the log has {len} bytes instead of {least}"))),
        }
    }

    /// Entry for the manifest.
    pub(crate) fn entry(&self) -> SegmentEntry {
        SegmentEntry { id: self.id, epoch: self.epoch, len: self.len, closed: None }
    }

    /// Reads `len` bytes at `offset`, fewer at the end of the file.
    pub(crate) fn read(&self, offset: u32, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(&mut bytes, offset, len)?;
        Ok(bytes)
    }

    /// Reads `len` bytes at `offset` without a wait for the disk: fewer at the end of the file, and where the rest is not
    /// in memory.
    pub(crate) fn read_cached(&self, offset: u32, len: usize) -> Vec<u8> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(left)];
        let found = self.file.read_cached(&mut bytes, offset.into());
        bytes.truncate(found);
        bytes
    }

    /// Reads into a buffer, which then has `len` bytes, fewer at the end of the file.
    pub(crate) fn read_into(&self, bytes: &mut Vec<u8>, offset: u32, len: usize) -> Result<()> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        bytes.resize(len.min(left), 0);
        self.file
            .read_at(bytes, offset.into())
            .map_err(|error| failed("cannot read a segment of the log", error))
    }
}

/// Checks a length of segments: whole pages, at least two.
pub(crate) fn check_len(len: u32) -> Result<()> {
    if !(len as usize).is_multiple_of(PAGE) || (len as usize) < 2 * PAGE {
        return Err(Error::invalid("the length of a segment is a multiple of 4096, and at least 8192"));
    }
    Ok(())
}

/// An I/O error as an error of the library.
pub(crate) fn failed(message: &str, error: io::Error) -> Error {
    Error::unavailable(message).caused_by(error)
}
