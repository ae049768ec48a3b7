//! Examination of an embedded store without opening it: every group, every table, the manifest.

use std::sync::Arc;

use serde::Serialize;

use super::Options;
use super::folder::{self, Folder, FolderState};
use super::shadow::Shadow;
use crate::engines::log::cold::{ColdStore, Window};
use crate::engines::log::disk::real::RealDisk;
use crate::engines::log::disk::{Disk, PAGE};
use crate::engines::log::faults::Faults;
use crate::engines::log::frame::Frame;
use crate::engines::log::group::Header;
use crate::engines::log::manifest::{Manifest, SegmentEntry};
use crate::engines::log::recovery;
use crate::engines::log::segment::Segment;
use crate::engines::url::StoreUrl;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::kind::Kind;

/// State of a store, as its files show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Engine that made the store.
    pub engine: String,
    /// Sequence of the last group that is whole.
    pub last_sequence: u64,
    /// Sequence up to which groups were known to be durable.
    pub durable_to: u64,
    /// Segments of the log.
    pub segments: usize,
    /// Groups that are whole.
    pub groups: u64,
    /// Records and deletes in them.
    pub frames: u64,
    /// Bytes of a torn tail, which opening copies aside and cuts. They were never acknowledged.
    pub torn_bytes: u64,
    /// Records of the cold store.
    pub cold_records: u64,
    /// Damage, in words. A store without any opens.
    pub damage: Vec<Damage>,
    /// Remarks of the caller about what is no damage, such as a keyring that is not beside the data.
    pub notes: Vec<String>,
    /// True if files of the old format are kept in the directory `old`.
    pub has_old: bool,
    /// True if the store was salvaged from a damaged one: deletes and revocations may be missing from it.
    pub salvaged: bool,
}

/// One place that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// File or window.
    pub place: String,
    /// Description.
    pub problem: String,
}

impl Report {
    fn found(&mut self, place: impl Into<String>, problem: impl Into<String>) {
        self.damage.push(Damage { place: place.into(), problem: problem.into() });
    }
}

/// Examines the store at `url`. With `expect`, the sequence that was acknowledged last, a log that ends before it is
/// damage: the disk lost what it had promised to keep.
pub fn examine(url: &StoreUrl, expect: Option<u64>) -> Result<Report> {
    match url {
        #[cfg(feature = "fjall")]
        StoreUrl::Fjall(url) => {
            examine_in::<crate::engines::log::cold::fjall::FjallCold>(url.as_str(), expect)
        }
        #[cfg(feature = "rocksdb")]
        StoreUrl::RocksDb(url) => {
            examine_in::<crate::engines::log::cold::rocksdb::RocksCold>(url.as_str(), expect)
        }
        _ => Err(Error::invalid("only an embedded store of this build can be examined")),
    }
}

/// Removes the files of the old format, and returns true if there were any.
pub fn forget_old(url: &StoreUrl) -> Result<bool> {
    let path = url.folder().ok_or_else(|| Error::invalid("only an embedded store has an old format"))?;
    url.must_exist()?;
    let (_folder, state) = Folder::take(path, url.engine())?;
    if state != FolderState::Store {
        return Err(Error::invalid("the store has not been moved over yet; open it first"));
    }
    folder::forget_old(path)
}

fn examine_in<C: ColdStore>(rest: &str, expect: Option<u64>) -> Result<Report> {
    let options = Options::parse(rest)?;
    if !super::is_store(&options.path) && !options.path.join("log").exists() {
        return Err(Error::invalid(format!("no store at {}", options.path.display())));
    }
    let mut report = Report { engine: C::NAME.to_owned(), ..Report::default() };
    report.has_old = options.path.join("old").is_dir();
    report.salvaged = options.path.join(folder::SALVAGED).is_file();
    match Folder::look(&options.path, C::NAME) {
        Ok((folder, FolderState::Store)) => {
            let manifest = examine_log(&folder, &mut report)?;
            examine_cold::<C>(&folder, &options, manifest.as_ref(), &mut report);
        }
        Ok(_) => {
            return Err(Error::invalid(
                "the store has the format of an earlier version; open it to move it over",
            ));
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            report.found(options.path.display().to_string(), error.to_string());
        }
        Err(error) => return Err(error),
    }
    if let Some(expect) = expect
        && report.last_sequence < expect
    {
        let problem = format!(
            "group {expect} was acknowledged, and the last group is {}: the disk lost what it had promised to keep",
            report.last_sequence
        );
        report.found("log", problem);
    }
    Ok(report)
}

fn examine_log(folder: &Folder, report: &mut Report) -> Result<Option<Manifest>> {
    let disk = RealDisk::open_to_read(&folder.log())
        .map_err(|error| folder::unusable("cannot open the directory of the log", error))?;
    let manifest = match Manifest::read(&disk) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => {
            report.found("log/manifest", "the manifest is missing");
            return Ok(None);
        }
        Err(error) => {
            report.found("log/manifest", in_full(&error));
            return Ok(None);
        }
    };
    report.segments = manifest.segments.len();
    // The rules of opening, which decide.
    match recovery::scan(&disk, Faults::default(), &[], &mut |_, _, _| Ok(())) {
        Ok(Some(scan)) => {
            report.last_sequence = scan.last_sequence();
            report.durable_to = scan.floor;
            report.torn_bytes = scan.torn.iter().map(|torn| torn.bytes.len() as u64).sum();
        }
        Ok(None) => report.found("log/manifest", "the manifest is missing"),
        Err(error) => report.found("log", in_full(&error)),
    }
    let is_damaged = !report.damage.is_empty();
    for entry in &manifest.segments {
        examine_segment(&disk, entry, is_damaged, report);
    }
    Ok(Some(manifest))
}

/// Counts the groups of a segment; in a damaged log, names every group that is not whole.
fn examine_segment(disk: &dyn Disk, entry: &SegmentEntry, is_damaged: bool, report: &mut Report) {
    let name = Segment::name(entry.id);
    let read = Segment::open(disk, entry).and_then(|segment| {
        let bytes = segment.read(0, entry.closed.map_or(segment.len, |closed| closed.end) as usize)?;
        Ok((Arc::new(segment), bytes))
    });
    let (segment, bytes) = match read {
        Ok(read) => read,
        Err(error) => return report.found(name, in_full(&error)),
    };
    let mut at = 0;
    while at < bytes.len() {
        let Some(header) = Header::read(&bytes[at..], &segment.epoch) else {
            at += PAGE;
            continue;
        };
        report.durable_to = report.durable_to.max(header.durable_to);
        let frames = header.body(&bytes[at..]).map(|body| {
            let mut frames = 0;
            Frame::each(body, |_, _| {
                frames += 1;
                Ok(())
            })
            .map(|()| frames)
        });
        if let Some(Ok(frames)) = frames {
            report.groups += 1;
            report.frames += frames;
            report.last_sequence = report.last_sequence.max(header.sequence);
            at += header.size();
        } else {
            if is_damaged {
                report.found(&name, format!("group {} at byte {at} is damaged", header.sequence));
            }
            at += PAGE;
        }
    }
}

fn examine_cold<C: ColdStore>(
    folder: &Folder,
    options: &Options,
    manifest: Option<&Manifest>,
    report: &mut Report,
) {
    let shadow = match Shadow::<C>::open(&folder.cold(), options.cache_bytes) {
        Ok(shadow) => shadow,
        Err(error) => return report.found("cold", in_full(&error)),
    };
    let cold = &shadow.cold;
    let named = manifest.map_or(&[][..], |manifest| &manifest.windows);
    report.damage.extend(lost_windows(cold, named));
    for &kind in Kind::ALL {
        for window in cold.windows(kind) {
            let place = || format!("cold/{}-{}", kind.name(), window.0);
            let generation = named.iter().find(|(code, end, _)| (*code, *end) == (kind.code(), window.0));
            // A retirement that a crash ended may have left records whose ends are not listed: it is repeated.
            let is_whole = generation.is_some_and(|(_, _, generation)| {
                matches!(cold.generation(kind, window), Ok(Some(found)) if found == *generation)
            });
            let mut unlisted = 0_u64;
            let walked = cold.each(kind, window, &mut |key, record| {
                report.cold_records += 1;
                if is_whole && !record.expires_at.is_never() {
                    unlisted += u64::from(!cold.is_listed(kind, window, key, record.expires_at)?);
                }
                Ok(())
            });
            if let Err(error) = walked {
                report.found(place(), in_full(&error));
            }
            if unlisted > 0 {
                report.found(place(), format!("{unlisted} records are not in the expiry list of the window"));
            }
        }
    }
}

/// Windows that the manifest names, and that are not in the cold store as the last checkpoint left them.
pub(super) fn lost_windows<C: ColdStore>(cold: &C, named: &[(u8, u64, u64)]) -> Vec<Damage> {
    let problem = |&(code, end, generation): &(u8, u64, u64)| {
        let kind = Kind::from_code(code);
        let place = format!("cold/{}-{end}", kind.map_or("unknown", Kind::name));
        let problem = match kind.map_or(Ok(None), |kind| cold.generation(kind, Window(end))) {
            Ok(Some(found)) if found >= generation => return None,
            Ok(Some(found)) => format!("the last bulk is {found} instead of {generation}"),
            Ok(None) => "the window is missing".to_owned(),
            Err(error) => in_full(&error),
        };
        Some(Damage { place, problem })
    };
    named.iter().filter_map(problem).collect()
}

/// The message of an error with its causes.
pub(super) fn in_full(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(feature = "fjall")]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::engines::embedded::moving;
    use crate::engines::embedded::salvage::salvage;
    use crate::engines::log::cold::fjall::FjallCold;
    use crate::engines::log::cold::{OldStore, Visit};
    use crate::model::key::Key;
    use crate::model::record::Record;
    use crate::model::rng::SeededRng;
    use crate::model::scope::Scope;
    use crate::model::time::Timestamp;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
    }

    fn key(number: u64) -> Key {
        Key::new(Kind::Session, &Scope::Global, &["p".into()], &[number.into()]).unwrap()
    }

    /// Ten sessions.
    struct Sessions;

    impl OldStore for Sessions {
        fn clock_mark(&self) -> Result<Option<Timestamp>> {
            Ok(Some(at(0)))
        }

        fn each(&self, kind: Kind, visit: Visit<'_>) -> Result<()> {
            let numbers = if kind == Kind::Session { 0..10 } else { 0..0 };
            numbers.into_iter().try_for_each(|number| {
                let record = Record::new(number.to_string(), at(60_000), &SeededRng::new(number));
                visit(key(number).as_bytes(), record)
            })
        }
    }

    /// A store with cold records in a new folder.
    fn store(path: &Path) -> StoreUrl {
        let (folder, _) = Folder::take(path, "fjall").unwrap();
        moving::write_new::<FjallCold>(&folder, &Options::at(path), &Sessions).unwrap();
        folder.finish().unwrap();
        format!("fjall:{}", path.display()).parse().unwrap()
    }

    fn cold(path: &Path) -> FjallCold {
        FjallCold::open(&path.join(folder::COLD), 1 << 20).unwrap()
    }

    /// Bytes of all files by their path; none for a folder.
    fn contents(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all.extend(contents(&path));
                all.insert(path, None);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                all.insert(path, Some(bytes));
            }
        }
        all
    }

    #[test]
    fn a_record_that_no_sweep_would_find_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let url = store(dir.path());
        let whole = examine(&url, None).unwrap();
        assert_eq!((whole.damage.len(), whole.cold_records), (0, 10), "{whole:?}");
        let cold = cold(dir.path());
        let window = cold.windows(Kind::Session)[0];
        cold.unlist(Kind::Session, window, key(3).as_bytes());
        cold.sync().unwrap();
        drop(cold);
        let damaged = examine(&url, None).unwrap().damage;
        assert!(damaged.len() == 1 && damaged[0].problem.starts_with("1 records"), "{damaged:?}");
    }

    #[test]
    fn doctor_and_salvage_leave_the_store_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("store"), dir.path().join("salvaged"));
        let url = store(&path);
        // A crash came at half of a window, which the next opening mends.
        cold(&path).begin_window(Kind::Code, Window(5));
        // A backup has no lock.
        std::fs::remove_file(path.join("LOCK")).unwrap();
        let before = contents(&path);
        let report = examine(&url, None).unwrap();
        assert_eq!((report.damage.len(), report.cold_records), (0, 10), "{report:?}");
        assert!(contents(&path) == before, "doctor has changed the store");
        let salvaged = salvage(&url, &target).unwrap();
        assert_eq!((salvaged.records["sessions"], salvaged.lost.len()), (10, 0), "{salvaged:?}");
        assert!(contents(&path) == before, "salvage has changed the store");
        drop(cold(&path));
        assert!(contents(&path) != before, "an opening mends it");
        // A first start that did not end is left to the next one.
        std::fs::remove_file(path.join("FORMAT")).unwrap();
        std::fs::write(path.join("CREATING"), "").unwrap();
        assert_eq!(examine(&url, None).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(path.join("log/manifest").is_file(), "nothing was removed");
    }
}
