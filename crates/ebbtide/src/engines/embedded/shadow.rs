//! A view of a cold store that can be opened and mended without a change of its files.
//!
//! Engines mend on opening what a crash has left, and doctor and salvage must leave a damaged store as they found it. So they
//! open a folder for themselves among the temporary files: tables, which no engine changes once they are written, are links,
//! and the rest, which is small, is copied.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use super::folder;
use crate::engines::log::cold::ColdStore;
use crate::model::error::Result;
use crate::model::rng::{Rng, SystemRng};

/// A cold store in a folder of its own, which goes with it.
pub(super) struct Shadow<C> {
    // Closed before its folder is removed.
    pub(super) cold: C,
    _folder: Temporary,
}

struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl<C: ColdStore> Shadow<C> {
    /// Opens the cold store in `path`, whose files stay as they are.
    pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<Self> {
        let cannot = |error| folder::unusable("cannot copy the files of the cold store aside", error);
        let rng: &dyn Rng = &SystemRng;
        let name = format!("ebbtide-{:032x}", u128::from_le_bytes(rng.bytes()));
        let target = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&target).map_err(cannot)?;
        let temporary = Temporary(target);
        let source = path.canonicalize().map_err(cannot)?;
        mirror::<C>(&source, &temporary.0).map_err(cannot)?;
        Ok(Self { cold: C::open(&temporary.0, cache_bytes)?, _folder: temporary })
    }
}

fn mirror<C: ColdStore>(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            DirBuilder::new().mode(0o700).create(&target)?;
            mirror::<C>(&source, &target)?;
        } else if C::is_table(&source) {
            symlink(source, target)?;
        } else {
            fs::copy(source, target)?;
        }
    }
    Ok(())
}
