//! The disk of the operating system.

use std::fs::{File as StdFile, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, File};

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    /// Kept open, so that [`Disk::sync_dir`] costs one call.
    directory: StdFile,
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
        Ok(Self { path: path.to_owned(), directory: StdFile::open(path)? })
    }
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Arc::new(options.open(self.path.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(self.path.join(name))?))
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

    fn sync_data(&self) -> io::Result<()> {
        StdFile::sync_data(self)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
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
        assert_eq!(file.read_at(&mut bytes, 9_999).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        disk.unlink("b").unwrap();
        assert!(disk.open("b").is_err());
    }
}
