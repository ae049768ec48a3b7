//! Room in the journal before it is needed.
//!
//! The engine makes a journal as a file of some length with nothing in it. A commit that writes where nothing is has the
//! file system look for blocks, and its fsync then writes down where they are as well: it takes half as long again, or twice
//! as long. So what comes next is filled with zeros, some at a time. That changes nothing that can be read, since a hole
//! reads as zeros.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How much is filled at once.
const STEP: u64 = 256 << 10;

/// So much is written before anything is filled: a store that is hardly written to stays small.
const FIRST: u64 = 64 << 10;

/// What the engine adds to a change, and to a batch, at most.
const AROUND: u64 = 32;

/// The journals of a database.
pub(super) struct Journals {
    folder: PathBuf,
    writer: Mutex<Writer>,
}

impl Journals {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, writer: Mutex::new(Writer { filled: FIRST }) }
    }

    /// Makes room for a batch of changes with so many bytes. While it is held nobody else writes to a journal, so that
    /// no zeros come to lie on what somebody has just written.
    pub(super) fn room(&self, changes: usize, bytes: usize) -> MutexGuard<'_, Writer> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = bytes as u64 + AROUND * (changes as u64 + 1);
        if writer.filled < needed {
            // It is only for speed: where it fails, the commit tells what is wrong, or goes on without.
            let _ = self.fill(STEP.max(needed));
            writer.filled = STEP.max(needed);
        }
        writer.filled -= needed;
        writer
    }

    #[cfg(target_os = "linux")]
    fn fill(&self, bytes: u64) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;

        use rustix::fs::{SeekFrom, seek};

        let Some(path) = self.newest()? else { return Ok(()) };
        let journal = std::fs::OpenOptions::new().write(true).open(path)?;
        let hole = seek(&journal, SeekFrom::Hole(0))?;
        // Never beyond its end: a journal that was opened again is written to at its end.
        let end = journal.metadata()?.len().min(hole + bytes);
        let zeros = vec![0; usize::try_from(end.saturating_sub(hole)).unwrap_or(0)];
        journal.write_all_at(&zeros, hole)
    }

    #[cfg(not(target_os = "linux"))]
    fn fill(&self, _: u64) -> std::io::Result<()> {
        Ok(())
    }

    /// The one that is written to has the highest number.
    #[cfg(target_os = "linux")]
    fn newest(&self) -> std::io::Result<Option<PathBuf>> {
        let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok();
        let paths = self.folder.read_dir()?.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(paths.filter_map(|path| Some((number(&path)?, path))).max().map(|(_, path)| path))
    }
}

/// Whoever has it may write.
pub(super) struct Writer {
    /// How much of the journal is filled beyond what has been written, by an estimate that is rather too low.
    filled: u64,
}
