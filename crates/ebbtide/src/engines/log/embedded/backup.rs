//! Copies of a store while it serves.

use std::path::Path;
use std::sync::Arc;

use super::{Core, Embedded};
use crate::engines::embedded::{Control, Folder};
use crate::engines::log::cold::ColdStore;
use crate::engines::log::disk::Disk;
use crate::engines::log::disk::real::RealDisk;
use crate::engines::log::manifest::{self, Manifest, ManifestFile};
use crate::engines::log::segment::{Segment, failed};
use crate::model::error::{Error, Result};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

impl<C: ColdStore> Embedded<C> {
    /// Keeps the lock of the folder, and answers other processes that ask for a backup.
    pub(crate) fn in_folder(mut self, folder: Folder) -> Result<Self> {
        let folder = Arc::new(folder);
        let (core, shared) = (Arc::clone(&self.core), Arc::clone(&folder));
        let path = folder.path().to_owned();
        self.control = Control::listen(&path, move |target| core.copy_into(&shared, target))?;
        self.folder = Some(folder);
        Ok(self)
    }
}

impl<C: ColdStore> Core<C> {
    /// Copies all that is durable into `target`, which is empty or missing. Commits go on meanwhile; segments neither retire
    /// nor are swept.
    pub(super) fn copy_into(&self, folder: &Folder, target: &Path) -> Result<()> {
        let _alone = self.maintenance.blocking_lock();
        self.log.check()?;
        let (log, cold) = Folder::begin_copy(target)?;
        self.cold.copy(&cold)?;
        self.copy_log(&log)?;
        folder.finish_copy(target)
    }

    fn copy_log(&self, path: &Path) -> Result<()> {
        let unwritable = |error| failed("cannot write the backup", error);
        let disk = RealDisk::open(path).map_err(unwritable)?;
        // The end first: all groups up to it are in segments that the manifest names.
        let (end, durable_to) = self.log.durable_point();
        let mut manifest = self.log.manifest();
        manifest.segments.retain(|entry| entry.id <= end.segment());
        manifest.durable_to = durable_to;
        for entry in &manifest.segments {
            let segment = self.log.segment(entry.id);
            let segment = segment.ok_or_else(|| Error::unavailable("a segment of the log is gone"))?;
            let used = if entry.id == end.segment() { end.offset() } else { segment.len };
            let used = entry.closed.map_or(used, |closed| closed.end.min(used));
            let file = disk.create(&Segment::name(entry.id)).map_err(unwritable)?;
            let mut at = 0;
            while at < used {
                let bytes = segment.read(at, CHUNK.min((used - at) as usize))?;
                file.write_at(&bytes, at.into()).map_err(unwritable)?;
                at += u32::try_from(bytes.len()).expect("a chunk is smaller than 4 GiB");
            }
            if entry.closed.is_none() {
                file.resize(entry.len.into()).map_err(unwritable)?;
            }
            file.sync_data().map_err(unwritable)?;
        }
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let faults = self.faults();
        let write =
            |manifest: Manifest| ManifestFile::new(Arc::clone(&disk), manifest, faults).change(|_| {});
        write(manifest).map_err(manifest::Failure::into_error)
    }
}
