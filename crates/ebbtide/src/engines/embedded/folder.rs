//! Folder of an embedded store: its lock, its format, and the files in it.
//!
//! A folder holds a store from the moment at which `FORMAT` is in it, and that is written last: a log or a cold store
//! without it is damage, unless the file `CREATING` says that the first start did not end.

mod directories;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use self::directories::sync_name;
pub(super) use self::directories::{create_dir, new_file, sync_dir};
use super::control::SOCKET;
use crate::model::error::{Error, Result};

/// Format that this build writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 2;

/// Format of a store that is moved over when it is opened: one engine without a log of its own.
pub(super) const OLD_FORMAT: u32 = 1;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const LOCK_FILE: &str = "LOCK";
const CREATING: &str = "CREATING";
pub(super) const LOG: &str = "log";
pub(super) const COLD: &str = "cold";
/// Mark of a store that was salvaged from a damaged one, with what was lost.
pub(super) const SALVAGED: &str = "SALVAGED";
/// Folder of the engine's files in the old format.
const OLD_DATA: &str = "data";
/// Folder that keeps the files of the old format after the move.
const OLD: &str = "old";

/// Target of the log lines that tell the steps of a move.
pub(super) const STEPS: &str = "ebbtide::moving";

/// Logs a step of a move.
pub(super) fn step(done: &'static str) {
    tracing::debug!(target: STEPS, "{done}");
}

/// State of a folder that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderState {
    /// No store yet.
    New,
    /// A store in the old format.
    Old,
    /// A store.
    Store,
}

/// A folder that this process has to itself while this lives.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    engine: &'static str,
    _lock: Option<File>,
}

impl Folder {
    /// Takes the folder, creating it if it does not exist. Refuses a folder that another process has, that another engine or
    /// a newer build made, or that holds other files.
    pub(super) fn take(path: &Path, engine: &'static str) -> Result<(Self, FolderState)> {
        if path.as_os_str().is_empty() {
            return Err(Error::invalid(format!("the URL of a {engine} store must be {engine}:PATH")));
        }
        create_dir(path).map_err(|error| unusable("cannot create the directory of the store", error))?;
        let format = read_format(path)?;
        if format.is_none() && holds_something_else(path)? {
            return Err(Error::invalid("the directory is not empty and holds no Ebbtide store"));
        }
        let folder = Self { path: path.to_owned(), engine, _lock: Some(lock(path)?) };
        let state = match format {
            Some(line) if check_format(&line, engine)? == OLD_FORMAT => FolderState::Old,
            Some(_) => {
                folder.must_be_whole()?;
                FolderState::Store
            }
            None => {
                folder.begin()?;
                FolderState::New
            }
        };
        Ok((folder, state))
    }

    /// Takes the folder of a store that is only read. Nothing in it changes, whatever state it is in.
    pub(super) fn look(path: &Path, engine: &'static str) -> Result<(Self, FolderState)> {
        let format = read_format(path)?;
        let folder = Self { path: path.to_owned(), engine, _lock: lock_unchanged(path)? };
        match format {
            Some(line) if check_format(&line, engine)? == OLD_FORMAT => Ok((folder, FolderState::Old)),
            Some(_) => {
                folder.must_be_whole()?;
                Ok((folder, FolderState::Store))
            }
            None if folder.path.join(CREATING).is_file() => {
                Err(Error::invalid("the first start of the store did not end; the next one begins anew"))
            }
            None => Err(no_format()),
        }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub(super) fn cold(&self) -> PathBuf {
        self.path.join(COLD)
    }

    /// Files of the old format before they are moved.
    pub(super) fn old_data(&self) -> PathBuf {
        self.path.join(OLD_DATA)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says that a store is being created here, and removes the remains of an attempt before.
    fn begin(&self) -> Result<()> {
        let cannot = |error| unusable("cannot create the store", error);
        let creating = self.path.join(CREATING);
        if creating.is_file() {
            self.remove_new()?;
        } else if self.log().exists() || self.cold().exists() || self.old_data().exists() {
            return Err(no_format());
        }
        // The folder may be from an attempt that ended before its name was durable.
        sync_name(&self.path).map_err(cannot)?;
        new_file(&creating).and_then(|file| file.sync_all()).map_err(cannot)?;
        sync_dir(&self.path).map_err(cannot)
    }

    /// Removes log and cold store of a creation or a move that did not end.
    pub(super) fn remove_new(&self) -> Result<()> {
        for folder in [self.log(), self.cold()] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(unusable("cannot remove an unfinished store", error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the folder a store: log and cold store are there and durable.
    pub(super) fn finish(&self) -> Result<()> {
        write_format(&self.path, self.engine)?;
        let _ = fs::remove_file(self.path.join(CREATING));
        Ok(())
    }

    /// Fails if log or cold store are missing: they never begin anew in a folder that holds a store.
    fn must_be_whole(&self) -> Result<()> {
        let manifest = self.log().join("manifest");
        for (path, name) in [(self.log(), "log"), (manifest, "log/manifest"), (self.cold(), "cold")] {
            if !path
                .try_exists()
                .map_err(|error| unusable("cannot read the directory of the store", error))?
            {
                return Err(Error::corrupt(format!("{name} is missing from the directory of the store")));
            }
        }
        Ok(())
    }

    /// Moves the files of the old format into a folder of their own, where the build before can open them, and answers
    /// whether there were any. Its format is there before the files are, so that a crash between them changes nothing.
    pub(super) fn put_old_aside(&self) -> Result<bool> {
        let data = self.old_data();
        if !data.exists() {
            return Ok(false);
        }
        let old = self.path.join(OLD);
        let put = || {
            create_dir(&old)?;
            step("created the directory of the old files");
            write_line(&old, &format!("ebbtide {} {OLD_FORMAT}\n", self.engine))?;
            fs::rename(&data, old.join(OLD_DATA))?;
            step("moved the old files");
            sync_dir(&old)?;
            sync_dir(&self.path)
        };
        put().map_err(|error| unusable("cannot put the files of the old format aside", error))?;
        Ok(true)
    }

    /// Lays out `target` as a folder of the same format, and returns the folders of log and cold store. The format is written by [`finish_copy`](Self::finish_copy), so that an unfinished copy is no store.
    pub(crate) fn begin_copy(target: &Path) -> Result<(PathBuf, PathBuf)> {
        let unwritable = |error| unusable("cannot write the backup", error);
        create_dir(target).map_err(unwritable)?;
        if fs::read_dir(target).map_err(unwritable)?.next().is_some() {
            return Err(Error::invalid("the directory of a backup must be empty"));
        }
        sync_name(target).map_err(unwritable)?;
        Ok((target.join(LOG), target.join(COLD)))
    }

    /// Makes the copy a store. The keyring comes last: what was copied may be under a key that was added meanwhile, and
    /// more keys than it needs do no harm.
    pub(crate) fn finish_copy(&self, target: &Path) -> Result<()> {
        copy_beside(&self.path, target)?;
        write_format(target, self.engine)
    }
}

/// Returns true if the folder holds a store.
pub(in crate::engines) fn is_store(path: &Path) -> bool {
    path.join(FORMAT_FILE).is_file()
}

/// Name of the engine that made the store in a folder; none if there is no store.
pub(in crate::engines) fn engine_of(path: &Path) -> Option<String> {
    let line = read_format(path).ok()??;
    let mut words = line.split_ascii_whitespace();
    words.next().filter(|word| *word == "ebbtide")?;
    words.next().map(str::to_owned)
}

/// Removes the files of the old format, and returns true if there were any.
pub(super) fn forget_old(path: &Path) -> Result<bool> {
    match fs::remove_dir_all(path.join(OLD)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unusable("cannot remove the files of the old format", error)),
    }
}

/// Copies the files beside the data, durably. Keys stand there; a copy keeps their mode.
pub(super) fn copy_beside(from: &Path, target: &Path) -> Result<()> {
    let copy = || {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_own = [FORMAT_FILE, FORMAT_NEW, LOCK_FILE, CREATING].iter().any(|own| name == *own);
            if !is_own && entry.file_type()?.is_file() {
                fs::copy(entry.path(), target.join(&name))?;
                File::open(target.join(name))?.sync_all()?;
            }
        }
        Ok(())
    };
    copy().map_err(|error| unusable("cannot write the copy", error))
}

fn read_format(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(line) => Ok(Some(line)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(malformed()),
        Err(error) => Err(unusable("cannot read the file FORMAT of the store", error)),
    }
}

fn no_format() -> Error {
    Error::corrupt(
        "the file FORMAT of the store is missing; the directory is damaged, or a backup that was not finished",
    )
}

fn malformed() -> Error {
    Error::corrupt("the file FORMAT of the store is malformed")
}

fn check_format(line: &str, engine: &str) -> Result<u32> {
    let mut words = line.split_ascii_whitespace();
    let (Some("ebbtide"), Some(made_by), Some(format), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(malformed());
    };
    let format: u32 = format.parse().map_err(|_| malformed())?;
    if !["fjall", "rocksdb"].contains(&made_by) {
        return Err(malformed());
    }
    if made_by != engine {
        return Err(Error::invalid(format!("the directory holds a {made_by} store, not a {engine} store")));
    }
    match format {
        0 => Err(malformed()),
        1..=FORMAT => Ok(format),
        _ => Err(Error::invalid(format!(
            "the store has format {format}; this build supports up to {FORMAT}; use a newer build"
        ))),
    }
}

/// Writes `FORMAT` whole and durable, or not at all.
fn write_format(path: &Path, engine: &str) -> Result<()> {
    write_line(path, &format!("ebbtide {engine} {FORMAT}\n"))
        .map_err(|error| unusable("cannot write the file FORMAT of the store", error))
}

fn write_line(path: &Path, line: &str) -> std::io::Result<()> {
    let temporary = path.join(FORMAT_NEW);
    let mut file = new_file(&temporary)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    step("wrote a format");
    fs::rename(&temporary, path.join(FORMAT_FILE))?;
    step("renamed a format");
    sync_dir(path)
}

/// Returns true if the folder holds files that no store has.
fn holds_something_else(path: &Path) -> Result<bool> {
    let list =
        fs::read_dir(path).map_err(|error| unusable("cannot read the directory of the store", error))?;
    let names = list.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    let expected = [
        LOCK_FILE,
        SOCKET,
        OLD_DATA,
        LOG,
        COLD,
        OLD,
        CREATING,
        FORMAT_NEW,
        SALVAGED,
        "keyring.json",
        "root.key",
        "lost+found",
    ];
    Ok(names.into_iter().any(|name| !expected.iter().any(|known| name == *known)))
}

pub(super) fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path.join(LOCK_FILE));
    locked(file.map_err(not_locked)?)
}

/// Locks the folder, if a process has ever opened it: a backup has no file for the lock, and gets none by being read.
pub(super) fn lock_unchanged(path: &Path) -> Result<Option<File>> {
    match File::open(path.join(LOCK_FILE)) {
        Ok(file) => locked(file).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(not_locked(error)),
    }
}

fn locked(file: File) -> Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::unavailable(
            "another process has this store open; an embedded store serves one process at a time",
        )),
        Err(TryLockError::Error(error)) => Err(not_locked(error)),
    }
}

fn not_locked(error: std::io::Error) -> Error {
    unusable("cannot lock the directory of the store", error)
}

pub(super) fn unusable(message: &str, error: std::io::Error) -> Error {
    Error::unavailable(message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::directories::tests::synced;
    use super::*;

    #[test]
    fn the_name_of_every_new_folder_is_durable_before_the_store_is() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "one/two"].map(|name| dir.path().join(name));
        let store = two.join("store");
        synced();
        let (folder, _) = Folder::take(&store, "fjall").unwrap();
        let first = synced();
        for above in [dir.path(), &one, &two, &store] {
            assert!(first.iter().any(|path| path == above), "{} was not synced", above.display());
        }
        drop(folder);
        // The first start ended at once: the name of the folder may not be durable.
        let (folder, state) = Folder::take(&store, "fjall").unwrap();
        assert!(state == FolderState::New && synced().contains(&two));
        let copy = dir.path().join("copies/first");
        Folder::begin_copy(&copy).unwrap();
        // A key that is added while the data are copied is one that they may be under.
        fs::write(store.join("keyring.json"), "added meanwhile").unwrap();
        folder.finish_copy(&copy).unwrap();
        assert_eq!(fs::read_to_string(copy.join("keyring.json")).unwrap(), "added meanwhile");
        let copied = synced();
        assert!(copied.contains(&dir.path().to_owned()) && copied.contains(&dir.path().join("copies")));
        fs::create_dir(dir.path().join("empty")).unwrap();
        Folder::begin_copy(&dir.path().join("empty")).unwrap();
        assert!(synced().contains(&dir.path().to_owned()), "the folder was there, and its name may be new");
    }

    #[test]
    fn a_newer_format_and_another_engine_are_refused_by_name() {
        assert_eq!(check_format("ebbtide fjall 1\n", "fjall").unwrap(), OLD_FORMAT);
        assert_eq!(check_format("ebbtide fjall 2\n", "fjall").unwrap(), FORMAT);
        let newer = check_format("ebbtide fjall 3\n", "fjall").unwrap_err();
        assert!(newer.message().contains("format 3"), "{newer}");
        let other = check_format("ebbtide rocksdb 1\n", "fjall").unwrap_err();
        assert!(other.message().contains("rocksdb"), "{other}");
        for line in ["", "ebbtide", "ebbtide fjall x", "fjall 1", "ebbtide fjall 0", "ebbtide fjbll 2"] {
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
        assert_eq!(Folder::take(&path, "fjall").unwrap().1, FolderState::New);
    }

    #[test]
    fn a_folder_with_something_else_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "words").unwrap();
        assert!(Folder::take(dir.path(), "fjall").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was put beside it");
    }

    #[test]
    fn a_first_start_that_did_not_end_begins_anew_and_a_lost_format_is_corrupt() {
        use crate::ErrorKind;

        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = Folder::take(dir.path(), "fjall").unwrap();
        create_dir(&folder.log()).unwrap();
        fs::write(folder.log().join("manifest"), "half").unwrap();
        drop(folder);
        let (folder, state) = Folder::take(dir.path(), "fjall").unwrap();
        assert!(state == FolderState::New && !folder.log().exists());
        create_dir(&folder.log()).unwrap();
        create_dir(&folder.cold()).unwrap();
        fs::write(folder.log().join("manifest"), "whole").unwrap();
        folder.finish().unwrap();
        drop(folder);
        assert_eq!(Folder::take(dir.path(), "fjall").unwrap().1, FolderState::Store);
        fs::remove_file(dir.path().join(FORMAT_FILE)).unwrap();
        assert_eq!(Folder::take(dir.path(), "fjall").unwrap_err().kind(), ErrorKind::Corrupt);
        fs::write(dir.path().join(FORMAT_FILE), "ebbtide fjall 2\n").unwrap();
        for lost in ["cold", "log/manifest", "log"] {
            let path = dir.path().join(lost);
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
            let error = Folder::take(dir.path(), "fjall").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.message().contains(lost), "{error}");
        }
    }
}
