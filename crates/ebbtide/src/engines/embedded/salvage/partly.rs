//! Opening of a damaged cold store in part.
//!
//! An engine opens all of its files or none: one table that is missing or cut short would cost every record. With fjall
//! each keyspace has a directory of its own, so that those that do not open are left out.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::engines::embedded::doctor::Damage;
use crate::engines::embedded::folder;
use crate::engines::embedded::shadow::Shadow;
use crate::engines::log::cold::ColdStore;
use crate::model::error::Result;
use crate::model::rng::{Rng, SystemRng};

/// A cold store, or the part of it that opens.
pub(super) struct Part<C> {
    // Closed before the files that its links point to are removed.
    pub(super) shadow: Shadow<C>,
    _staging: Option<Staging>,
    /// Places that were left out.
    pub(super) lost: Vec<Damage>,
}

/// Engine behind the log whose store may open in part.
pub(super) trait OpenPartly: ColdStore {
    /// Copies aside what opens of the store in `path`, and names the rest. None if that cannot be told apart.
    fn stage(path: &Path) -> Result<Option<(Staging, Vec<Damage>)>>;
}

/// Opens the cold store in `path` as far as it can be, without a change of its files.
pub(super) fn open<C: OpenPartly>(path: &Path, cache_bytes: u64) -> Result<Part<C>> {
    let error = match Shadow::open(path, cache_bytes) {
        Ok(shadow) => return Ok(Part { shadow, _staging: None, lost: Vec::new() }),
        Err(error) => error,
    };
    let Some((staging, lost)) = C::stage(path)? else { return Err(error) };
    let shadow = Shadow::open(&staging.0, cache_bytes)?;
    Ok(Part { shadow, _staging: Some(staging), lost })
}

/// Copy of a part of a cold store, in a directory for temporary files, which goes with it. Tables are links.
pub(super) struct Staging(PathBuf);

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Staging {
    /// Copies the store in `path`. The directories that `is_left_out` names are empty in the copy.
    #[cfg_attr(
        not(feature = "fjall"),
        expect(dead_code, reason = "the other engines open whole or not at all")
    )]
    fn of<C: ColdStore>(path: &Path, is_left_out: &dyn Fn(&Path) -> bool) -> Result<Self> {
        let cannot = |error| folder::unusable("cannot copy the files of the cold store aside", error);
        let rng: &dyn Rng = &SystemRng;
        let name = format!("ebbtide-{:032x}", u128::from_le_bytes(rng.bytes()));
        let staging = Self(std::env::temp_dir().join(name));
        let source = path.canonicalize().map_err(cannot)?;
        copy::<C>(&source, &staging.0, is_left_out).map_err(cannot)?;
        Ok(staging)
    }
}

fn copy<C: ColdStore>(from: &Path, to: &Path, is_left_out: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    if is_left_out(from) {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy::<C>(&source, &target, is_left_out)?;
        } else if C::is_table(&source) {
            symlink(source, target)?;
        } else {
            fs::copy(source, target)?;
        }
    }
    Ok(())
}

#[cfg(feature = "rocksdb")]
impl OpenPartly for crate::engines::log::cold::rocksdb::RocksCold {
    /// One manifest names the tables of all column families.
    fn stage(_: &Path) -> Result<Option<(Staging, Vec<Damage>)>> {
        Ok(None)
    }
}

#[cfg(feature = "fjall")]
mod keyspaces {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use fjall::{Database, KeyspaceCreateOptions};

    use super::{Damage, OpenPartly, Staging, folder};
    use crate::engines::log::cold::fjall::FjallCold;
    use crate::model::error::{Error, Result};

    /// Directory of the keyspaces, each in one that its id names.
    const KEYSPACES: &str = "keyspaces";
    /// Keyspace with the names of the others.
    const NAMES: &str = "0";
    /// Ending of the names of expiry lists.
    const ENDS: &str = "-ends";
    /// Beginning of the names of keyspaces without records.
    const GUARD: &str = "guard-";

    impl OpenPartly for FjallCold {
        fn stage(path: &Path) -> Result<Option<(Staging, Vec<Damage>)>> {
            let keyspaces = list(path)?;
            let (mut broken, mut lost) = (BTreeSet::new(), Vec::new());
            for keyspace in &keyspaces {
                let is_another = |folder: &Path| folder != keyspace.as_path() && keyspaces.contains(folder);
                let alone = Staging::of::<Self>(path, &is_another)?;
                if let Err(error) = open(&alone) {
                    let id = keyspace.file_name().unwrap_or_default().to_string_lossy();
                    let problem = format!("the keyspace does not open: {error}");
                    lost.push(Damage { place: format!("cold/{KEYSPACES}/{id}"), problem });
                    broken.insert(keyspace.clone());
                }
            }
            if broken.is_empty() {
                return Ok(None);
            }
            let staging = Staging::of::<Self>(path, &|folder| broken.contains(folder))?;
            add_lists(&staging)
                .map_err(|error| Error::corrupt("the cold store is damaged").caused_by(error))?;
            // Opening has removed the empty directories. They come back, so that the next one gives no id again.
            for id in broken.iter().filter_map(|keyspace| keyspace.file_name()) {
                std::fs::create_dir_all(staging.0.join(KEYSPACES).join(id)).map_err(|error| {
                    folder::unusable("cannot copy the files of the cold store aside", error)
                })?;
            }
            Ok(Some((staging, lost)))
        }
    }

    /// Directories of the keyspaces with records or lists.
    fn list(path: &Path) -> Result<BTreeSet<PathBuf>> {
        let cannot = |error| folder::unusable("cannot read the directory of the cold store", error);
        let all = path.canonicalize().map_err(cannot)?.join(KEYSPACES);
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(all).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if entry.file_type().map_err(cannot)?.is_dir() && entry.file_name() != NAMES {
                found.insert(entry.path());
            }
        }
        Ok(found)
    }

    fn open(staging: &Staging) -> fjall::Result<Database> {
        Database::builder(&staging.0).worker_threads(1).open()
    }

    /// Gives a window whose expiry list is left out an empty one: opening refuses records without a list, and the new
    /// store makes its own lists.
    fn add_lists(staging: &Staging) -> fjall::Result<()> {
        let database = open(staging)?;
        let names = database.list_keyspace_names();
        for name in &names {
            let list = format!("{}{ENDS}", &**name);
            let has_records = !name.ends_with(ENDS) && !name.starts_with(GUARD);
            if has_records && !names.iter().any(|name| **name == *list) {
                database.keyspace(&list, KeyspaceCreateOptions::default)?;
            }
        }
        Ok(())
    }
}

#[cfg(feature = "fjall")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::embedded::folder::Folder;
    use crate::engines::embedded::salvage::salvage;
    use crate::engines::embedded::{Options, doctor, moving};
    use crate::engines::log::cold::fjall::FjallCold;
    use crate::engines::log::cold::{OldStore, Visit};
    use crate::engines::url::StoreUrl;
    use crate::model::key::Key;
    use crate::model::kind::Kind;
    use crate::model::record::Record;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;
    use crate::model::time::Timestamp;

    /// Ten sessions and ten codes.
    struct Both;

    impl OldStore for Both {
        fn clock_mark(&self) -> Result<Option<Timestamp>> {
            Ok(Some(Timestamp::from_millis(1_800_000_000_000)?))
        }

        fn each(&self, kind: Kind, visit: Visit<'_>) -> Result<()> {
            let numbers = if matches!(kind, Kind::Session | Kind::Code) { 0..10_u64 } else { 0..0 };
            numbers.into_iter().try_for_each(|number| {
                let end = Timestamp::from_millis(1_800_000_060_000)?;
                let key = Key::new(kind, &Scope::Global, &["p".into()], &[number.into()])?;
                visit(key.as_bytes(), Record::new(number.to_string(), end, &SeededRng::new(number)))
            })
        }
    }

    fn store(path: &Path) -> StoreUrl {
        let (folder, _) = Folder::take(path, "fjall").unwrap();
        moving::write_new::<FjallCold>(&folder, &Options::at(path), &Both).unwrap();
        folder.finish().unwrap();
        format!("fjall:{}", path.display()).parse().unwrap()
    }

    fn children(path: &Path) -> Vec<PathBuf> {
        let mut found: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    }

    #[test]
    fn a_table_that_is_missing_or_cut_costs_its_own_keyspace_alone() {
        let first = tempfile::tempdir().unwrap();
        store(&first.path().join("store"));
        let keyspaces = children(&first.path().join("store/cold/keyspaces"));
        let mut numbers: Vec<_> = keyspaces.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        numbers.retain(|number| *number != "0");
        let (mut whole, mut half) = (0, 0);
        for number in numbers {
            for is_cut in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let (path, target) = (dir.path().join("store"), dir.path().join("salvaged"));
                let url = store(&path);
                let tables = path.join(format!("cold/keyspaces/{number}/tables"));
                let table = children(&tables).remove(0);
                if is_cut {
                    let bytes = fs::read(&table).unwrap();
                    fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
                } else {
                    fs::remove_file(&table).unwrap();
                }
                assert!(!doctor::examine(&url, None).unwrap().damage.is_empty());
                let salvaged = salvage(&url, &target).unwrap();
                let place = format!("cold/keyspaces/{number}");
                assert!(salvaged.lost.iter().any(|lost| lost.place == place), "{salvaged:?}");
                let count = |kind| salvaged.records.get(kind).copied().unwrap_or_default();
                match (count("sessions"), count("codes")) {
                    // An expiry list: the copy has its own.
                    (10, 10) => whole += 1,
                    (10, 0) | (0, 10) => {
                        half += 1;
                        assert!(salvaged.lost.iter().any(|lost| lost.problem == "the window is missing"));
                    }
                    _ => panic!("{salvaged:?}"),
                }
                assert_eq!(fs::read(&table).is_ok(), is_cut, "the damaged store stays as it is");
                let copy = format!("fjall:{}", target.display()).parse().unwrap();
                let copy = doctor::examine(&copy, None).unwrap();
                assert!(copy.damage.is_empty() && copy.cold_records >= 10, "{copy:?}");
            }
        }
        assert_eq!((whole, half), (4, 4));
    }
}
