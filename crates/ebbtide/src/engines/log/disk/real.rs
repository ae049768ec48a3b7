//! The disk of the operating system.

use std::fs::{File as StdFile, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_os = "linux")]
use super::PAGE;
use super::{Disk, File};

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    /// Kept open, so that [`Disk::sync_dir`] costs one call.
    directory: StdFile,
    /// False if files are opened for reading alone.
    is_writable: bool,
}

impl RealDisk {
    /// Opens the directory, creating it and syncing its parent if it does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                StdFile::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { path: path.to_owned(), directory: StdFile::open(path)?, is_writable: true })
    }

    /// Opens a directory whose files are only read: it may be on a file system that nobody can write to.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), directory: StdFile::open(path)?, is_writable: false })
    }
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Arc::new(options.open(self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(self.is_writable).open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn size(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.directory)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }
}

impl File for StdFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn read_cached(&self, bytes: &mut [u8], offset: u64) -> usize {
        use rustix::io::{ReadWriteFlags, preadv2};

        // A file system that cannot do so answers with an error, as for bytes that are not in memory.
        preadv2(self, &mut [io::IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT).unwrap_or(0)
    }

    fn sync_data(&self) -> io::Result<()> {
        StdFile::sync_data(self)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn zero_fill(&self, len: u64) -> io::Result<()> {
        let done = fill_past_cache(self, len)?;
        super::fill_cached(self, done, len)
    }
}

/// Writes zeros past the page cache, and returns how far it came: nobody reads them, and copying them into the cache
/// costs a tenth of a commit. File systems without such writes are left to the usual way.
#[cfg(target_os = "linux")]
fn fill_past_cache(file: &StdFile, len: u64) -> io::Result<u64> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::Errno;

    let Ok(flags) = fcntl_getfl(file) else { return Ok(0) };
    if fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(0);
    }
    // The memory must begin on a page.
    let buffer = vec![0; super::ZEROS + PAGE];
    let aligned = &buffer[buffer.as_ptr().align_offset(PAGE)..][..super::ZEROS];
    let mut done = 0;
    let outcome = loop {
        let left = usize::try_from(len - done).unwrap_or(usize::MAX).min(aligned.len());
        let whole = left - left % PAGE;
        if whole == 0 {
            break Ok(done);
        }
        match FileExt::write_at(file, &aligned[..whole], done) {
            Ok(written) if written % PAGE == 0 && written > 0 => done += written as u64,
            // The caller continues after a short write.
            Ok(_) => break Ok(done),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => break Ok(done),
            Err(error) => break Err(error),
        }
    };
    fcntl_setfl(file, flags)?;
    outcome
}

#[cfg(not(target_os = "linux"))]
fn fill_past_cache(_: &StdFile, _: u64) -> io::Result<u64> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_read_renamed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(&folder.path().join("new")).unwrap();
        let file = disk.create("a").unwrap();
        file.zero_fill(10_000).unwrap();
        file.write_at(b"xyz", 5_000).unwrap();
        file.sync_data().unwrap();
        disk.rename("a", "b").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        let file = disk.open("b").unwrap();
        let mut bytes = [1; 5];
        file.read_at(&mut bytes, 4_999).unwrap();
        assert_eq!(&bytes, b"\0xyz\0");
        assert_eq!(file.len().unwrap(), 10_000);
        let mut all = vec![1; 10_000];
        file.read_at(&mut all, 0).unwrap();
        assert_eq!(all.iter().filter(|byte| **byte != 0).count(), 3);
        assert_eq!(file.read_at(&mut bytes, 9_999).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut cached = [1; 5];
        let found = file.read_cached(&mut cached, 4_999);
        assert_eq!(cached[..found], b"\0xyz\0"[..found], "as much as is in memory");
        assert!(file.read_cached(&mut cached, 9_999) <= 1 && file.read_cached(&mut cached, 10_000) == 0);
        let reader = RealDisk::open_to_read(&folder.path().join("new")).unwrap();
        let read = reader.open("b").unwrap();
        read.read_at(&mut bytes, 4_999).unwrap();
        assert!(&bytes == b"\0xyz\0" && read.write_at(b"x", 0).is_err());
        assert!(RealDisk::open_to_read(&folder.path().join("missing")).is_err());
        assert!(!folder.path().join("missing").exists());
        disk.unlink("b").unwrap();
        assert!(disk.open("b").is_err());
    }
}
