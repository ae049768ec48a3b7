//! File system calls of the log, behind a trait so that tests can crash the disk.
//!
//! A disk is one flat directory. Nothing is durable until it is synced: a file's bytes and length by
//! [`File::sync_data`], its name, renames and removals by [`Disk::sync_dir`].

pub mod real;
#[cfg(test)]
pub(crate) mod sim;

use std::io;
use std::sync::Arc;

/// Unit of a write that may tear: no write of the log touches a page that holds acknowledged bytes.
pub(crate) const PAGE: usize = 4_096;

/// Bytes written by one call of [`File::zero_fill`].
const ZEROS: usize = 1 << 20;

/// One directory.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file, replacing one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing one of the new name atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Open handles keep working.
    fn unlink(&self, name: &str) -> io::Result<()>;

    /// Names of all files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes names, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Bytes that can still be written.
    fn free(&self) -> io::Result<u64>;

    /// Bytes of the whole disk, used or not.
    fn size(&self) -> io::Result<u64>;
}

/// One open file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait File: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`, extending the file if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` from `offset`; a shorter file is an error of kind `UnexpectedEof`.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` from `offset` as far as the memory of the operating system has them, and returns how far that is:
    /// never waits for the disk.
    fn read_cached(&self, _bytes: &mut [u8], _offset: u64) -> usize {
        0
    }

    /// Makes the bytes and the length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file at `len`, or adds zeros up to it. A crash may keep what was cut off.
    fn resize(&self, len: u64) -> io::Result<()>;

    /// Writes zeros up to `len`. Blocks that were written need no metadata on the commit path, which
    /// preallocated extents do.
    fn zero_fill(&self, len: u64) -> io::Result<()> {
        fill_cached(self, 0, len)
    }

    /// Reads the whole file.
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// Writes zeros from `at` up to `len`.
fn fill_cached<F: File + ?Sized>(file: &F, mut at: u64, len: u64) -> io::Result<()> {
    let zeros = vec![0; usize::try_from(len - at).unwrap_or(ZEROS).min(ZEROS)];
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(ZEROS);
        file.write_at(&zeros[..part], at)?;
        at += part as u64;
    }
    Ok(())
}
