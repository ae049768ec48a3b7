//! Directories whose names are durable before anything is put into them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Creates a folder for its owner alone, and those above it, unless they exist. The name of each new folder is durable
/// before anything is put into it.
pub(in crate::engines::embedded) fn create_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = above(path) {
        create_dir(above)?;
        // An earlier attempt may have ended between its creation and the sync of its name.
        sync_name(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created?,
    }
    sync_name(path)
}

/// Folder above a path; none above the root, and none above a relative path of one name.
fn above(path: &Path) -> Option<&Path> {
    path.parent().filter(|above| !above.as_os_str().is_empty())
}

/// Makes the name of a folder durable. A folder above it that this process may not read was made by somebody else, who also
/// made the folder in it.
pub(in crate::engines::embedded) fn sync_name(path: &Path) -> io::Result<()> {
    let parent = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    match parent.map_or(Ok(()), sync_dir) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

pub(in crate::engines::embedded) fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

pub(in crate::engines::embedded) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    thread_local! {
        /// Folders that this thread has synced.
        pub(super) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    /// Folders that this thread has synced since the last call.
    pub(in super::super) fn synced() -> Vec<PathBuf> {
        SYNCED.take()
    }
}
