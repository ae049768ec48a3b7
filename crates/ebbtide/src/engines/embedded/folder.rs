//! The folder of an embedded store: who may use it, and what is in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::control::SOCKET;
use crate::model::error::{Error, Result};

/// The format that this build writes, and the newest that it reads.
const FORMAT: u32 = 1;

const FORMAT_FILE: &str = "FORMAT";
const LOCK_FILE: &str = "LOCK";
const DATA: &str = "data";

/// A folder that this process has to itself for as long as this lives.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes the folder, and makes it if it is not there. One that another process has, that another engine made,
    /// that a newer build made, or that is no store is refused.
    pub(super) fn take(path: &Path, engine: &str) -> Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(Error::invalid(format!("the URL of a {engine} store must be {engine}:PATH")));
        }
        fs::create_dir_all(path)
            .map_err(|error| unusable("cannot create the directory of the store", error))?;
        let format = read_format(path)?;
        if format.is_none() && holds_something_else(path)? {
            return Err(Error::invalid("the directory is not empty and holds no Ebbtide store"));
        }
        let lock = lock(path)?;
        match format {
            None => write_format(path, engine)?,
            Some(line) => check_format(&line, engine)?,
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where the engine keeps its files.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    /// Lays out `target` as a folder of the same format, with what stands beside the data, and returns where the
    /// copy of the data goes. The format is written by [`Folder::finish_copy`], so that an unfinished copy is not
    /// taken for a store.
    pub(super) fn begin_copy(&self, target: &Path) -> Result<PathBuf> {
        let unwritable = |error| unusable("cannot write the backup", error);
        fs::create_dir_all(target).map_err(unwritable)?;
        if fs::read_dir(target).map_err(unwritable)?.next().is_some() {
            return Err(Error::invalid("the directory of a backup must be empty"));
        }
        for entry in fs::read_dir(&self.path).map_err(unwritable)? {
            let entry = entry.map_err(unwritable)?;
            let name = entry.file_name();
            let ours = [FORMAT_FILE, LOCK_FILE, DATA].iter().any(|own| name == *own);
            if !ours && entry.file_type().map_err(unwritable)?.is_file() {
                // Keys stand beside the data; a copy keeps their mode.
                fs::copy(entry.path(), target.join(name)).map_err(unwritable)?;
            }
        }
        Ok(target.join(DATA))
    }

    /// Makes the copy a store.
    pub(super) fn finish_copy(target: &Path, engine: &str) -> Result<()> {
        write_format(target, engine)
    }
}

/// Returns true if the folder holds a store.
pub(in crate::engines) fn is_store(path: &Path) -> bool {
    path.join(FORMAT_FILE).is_file()
}

fn read_format(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(line) => Ok(Some(line)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable("cannot read the file FORMAT of the store", error)),
    }
}

fn check_format(line: &str, engine: &str) -> Result<()> {
    let unreadable = || Error::corrupt("the file FORMAT of the store is malformed");
    let mut words = line.split_ascii_whitespace();
    let (Some("ebbtide"), Some(made_by), Some(format)) = (words.next(), words.next(), words.next()) else {
        return Err(unreadable());
    };
    let format: u32 = format.parse().map_err(|_| unreadable())?;
    if made_by != engine {
        return Err(Error::invalid(format!("the directory holds a {made_by} store, not a {engine} store")));
    }
    if format > FORMAT {
        return Err(Error::invalid(format!(
            "the store has format {format}; this build supports up to {FORMAT}; use a newer build"
        )));
    }
    Ok(())
}

/// Written whole and durable, or not at all.
fn write_format(path: &Path, engine: &str) -> Result<()> {
    let write = || {
        let temporary = path.join("FORMAT.new");
        let mut file = File::create(&temporary)?;
        writeln!(file, "ebbtide {engine} {FORMAT}")?;
        file.sync_all()?;
        fs::rename(&temporary, path.join(FORMAT_FILE))?;
        File::open(path)?.sync_all()
    };
    write().map_err(|error| unusable("cannot write the file FORMAT of the store", error))
}

/// A folder without a format may hold what a first start left: the lock, the keys, the engine's files.
fn holds_something_else(path: &Path) -> Result<bool> {
    let list =
        fs::read_dir(path).map_err(|error| unusable("cannot read the directory of the store", error))?;
    let names = list.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    let expected = [LOCK_FILE, SOCKET, DATA, "FORMAT.new", "keyring.json", "root.key"];
    Ok(names.into_iter().any(|name| !expected.iter().any(|known| name == *known)))
}

fn lock(path: &Path) -> Result<File> {
    let cannot = |error| unusable("cannot lock the directory of the store", error);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK_FILE));
    let file = file.map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::unavailable(
            "another process has this store open; an embedded store serves one process at a time",
        )),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

fn unusable(message: &str, error: std::io::Error) -> Error {
    Error::unavailable(message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_and_another_engine_are_refused_by_name() {
        check_format("ebbtide fjall 1\n", "fjall").unwrap();
        let newer = check_format("ebbtide fjall 2\n", "fjall").unwrap_err();
        assert!(newer.message().contains("format 2"), "{newer}");
        let other = check_format("ebbtide rocksdb 1\n", "fjall").unwrap_err();
        assert!(other.message().contains("rocksdb"), "{other}");
        for line in ["", "ebbtide", "ebbtide fjall x", "fjall 1"] {
            assert!(check_format(line, "fjall").is_err(), "{line}");
        }
    }

    #[test]
    fn a_folder_is_taken_once_and_is_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let first = Folder::take(&path, "fjall").unwrap();
        let second = Folder::take(&path, "fjall").unwrap_err();
        assert!(second.message().contains("another process"), "{second}");
        drop(first);
        Folder::take(&path, "fjall").unwrap();
    }

    #[test]
    fn a_folder_with_something_else_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "words").unwrap();
        assert!(Folder::take(dir.path(), "fjall").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was put beside it");
    }
}
