//! Embedded stores: a folder of this machine with a log and a cold store in it.
//!
//! | part | contents |
//! |---|---|
//! | `folder` | lock, format and files of the folder |
//! | `control` | the socket by which another process asks for a backup |
//! | [`doctor`], [`salvage`] | examination of a store that is not open; a copy of what is readable |
//! | `shadow` | a view of the cold store for them, so that the store stays as it is |
//! | `moving` | stores of the old format, moved over when they are opened |
//! | [`log`](super::log) | the engine |

mod control;
pub mod doctor;
mod folder;
mod moving;
pub mod salvage;
mod shadow;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use control::Control;
pub(crate) use folder::Folder;
use folder::FolderState;
pub(super) use folder::{engine_of, is_store};
use tokio::sync::oneshot;

use super::log::cold::{ColdStore, Tuning};
use super::log::disk::Disk;
use super::log::disk::real::RealDisk;
use super::log::embedded::Embedded;
use super::log::faults::Faults;
use super::log::recovery::Settings;
use crate::model::error::{Error, Result};
use crate::model::rng::SystemRng;

/// Length of the segments of a log that is written to at full rate.
const SEGMENT: u32 = 64 << 20;

/// Length of the segment that opening creates.
const FIRST_SEGMENT: u32 = 1 << 20;

/// Options of an embedded store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder.
    pub path: PathBuf,
    /// Most memory for cached blocks of the cold store.
    pub cache_bytes: u64,
    /// Settings of the compactions of RocksDB.
    pub tuning: Tuning,
    /// Bytes of the log beyond which segments retire early.
    pub log_bytes: u64,
    /// Time after which a segment of the log retires.
    pub horizon: Duration,
    /// Free bytes of the disk below which nothing is added.
    pub reserve_bytes: u64,
    /// Furthest that one commit moves the clock mark; more is a leap that an operator must confirm.
    pub clock_leap: Duration,
}

impl Options {
    /// Defaults for the store in that folder.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache_bytes: 256 << 20,
            tuning: Tuning::default(),
            log_bytes: 4 << 30,
            horizon: super::log::cold::HORIZON,
            reserve_bytes: 256 << 20,
            clock_leap: Duration::from_secs(24 * 3_600),
        }
    }

    /// Reads the part of a URL behind its scheme: `PATH?cache_mib=…&log_mib=…&horizon_seconds=…&reserve_mib=…
    /// &clock_leap_seconds=…`, for RocksDB `level0_trigger` and `background_jobs` too. The options `sweep_share_percent` and `sweep_overdue_seconds` of earlier versions are
    /// accepted and have no effect: a sweep costs what has expired.
    pub fn parse(rest: &str) -> Result<Self> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Self::at(path);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || -> Result<u64> {
                let wrong =
                    || Error::invalid(format!("{name} in the store URL must be a whole number above zero"));
                value.parse().ok().filter(|number| *number > 0 && *number < 1 << 32).ok_or_else(wrong)
            };
            let small = |number: u64| -> Result<i32> {
                let wrong = || Error::invalid(format!("{name} in the store URL must be at most 1024"));
                i32::try_from(number).ok().filter(|number| *number <= 1_024).ok_or_else(wrong)
            };
            match name {
                "cache_mib" => options.cache_bytes = number()? << 20,
                "level0_trigger" => options.tuning.level0_trigger = Some(small(number()?)?),
                "background_jobs" => options.tuning.background_jobs = Some(small(number()?)?),
                "log_mib" => options.log_bytes = number()? << 20,
                "horizon_seconds" => options.horizon = Duration::from_secs(number()?),
                "reserve_mib" => options.reserve_bytes = number()? << 20,
                "clock_leap_seconds" => options.clock_leap = Duration::from_secs(number()?),
                "sweep_share_percent" | "sweep_overdue_seconds" => {
                    number()?;
                    tracing::warn!(option = name, "the option of the store URL has no effect any more");
                }
                _ => {
                    return Err(Error::invalid(format!(
                        "no option {name} in the URL of an embedded store; there are cache_mib, log_mib, \
                         horizon_seconds, reserve_mib, clock_leap_seconds, and for rocksdb: level0_trigger and \
                         background_jobs"
                    )));
                }
            }
        }
        Ok(options)
    }

    fn of_log(&self) -> super::log::embedded::Options {
        let settings = Settings {
            segment_len: SEGMENT,
            first_len: FIRST_SEGMENT,
            keyrings: Vec::new(),
            rng: Arc::new(SystemRng),
            faults: Faults::default(),
        };
        super::log::embedded::Options {
            cap_bytes: self.log_bytes,
            horizon: self.horizon,
            reserve_bytes: self.reserve_bytes,
            clock_leap: self.clock_leap,
            ..super::log::embedded::Options::new(settings)
        }
    }
}

/// Opens the store behind `fjall:`.
#[cfg(feature = "fjall")]
pub(super) async fn open_fjall(rest: &str) -> Result<Embedded<super::log::cold::fjall::FjallCold>> {
    open_aside(rest).await
}

/// Opens the store behind `rocksdb:`.
#[cfg(feature = "rocksdb")]
pub(super) async fn open_rocksdb(rest: &str) -> Result<Embedded<super::log::cold::rocksdb::RocksCold>> {
    open_aside(rest).await
}

/// Opens a store on a thread of its own, so that no thread of the runtime waits for its files: a large log is read, and a store
/// of the old format moved over.
async fn open_aside<C: ColdStore>(rest: &str) -> Result<Embedded<C>> {
    let (answer, answered) = oneshot::channel();
    let rest = rest.to_owned();
    // Its lines in the log go where those of the caller go.
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let work = move || {
        let opened = tracing::dispatcher::with_default(&dispatch, || open::<C>(&rest));
        // If the caller has gone away, the store is closed.
        drop(answer.send(opened));
    };
    let thread = std::thread::Builder::new().name("ebbtide-open".to_owned()).spawn(work);
    thread.map_err(|error| folder::unusable("cannot start a thread", error))?;
    answered.await.map_err(|_| Error::unavailable("the opening of the store was broken off"))?
}

fn open<C: ColdStore>(rest: &str) -> Result<Embedded<C>> {
    let options = Options::parse(rest)?;
    let (folder, state) = Folder::take(&options.path, C::NAME)?;
    if state == FolderState::Old {
        moving::move_over::<C>(&folder, &options)?;
    }
    if state == FolderState::New {
        folder::create_dir(&folder.cold())
            .map_err(|error| folder::unusable("cannot create the directory of the cold store", error))?;
    }
    let disk = RealDisk::open(&folder.log())
        .map_err(|error| folder::unusable("cannot open the directory of the log", error))?;
    let cold = || C::open_tuned(&folder.cold(), options.cache_bytes, options.tuning);
    let store = Embedded::open(Arc::new(disk) as Arc<dyn Disk>, &options.of_log(), cold)?;
    match state {
        FolderState::New => folder.finish()?,
        FolderState::Store | FolderState::Old => moving::end(&folder)?,
    }
    store.in_folder(folder)
}

/// Asks the process that serves the embedded store in `folder` to copy it into `dir`, and waits until it has.
pub fn backup_served(folder: &Path, dir: &Path) -> Result<()> {
    control::ask_backup(folder, dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_are_named() {
        let options =
            Options::parse("data?cache_mib=64&log_mib=128&horizon_seconds=60&reserve_mib=1").unwrap();
        assert_eq!((options.cache_bytes, options.log_bytes), (64 << 20, 128 << 20));
        assert_eq!((options.horizon, options.reserve_bytes), (Duration::from_secs(60), 1 << 20));
        assert!(
            Options::parse("data?sweep_share_percent=25").is_ok(),
            "a URL of the version before still opens"
        );
        assert!(Options::parse("data?colour=red").unwrap_err().message().contains("log_mib"));
        let tuned = Options::parse("data?level0_trigger=2&background_jobs=4").unwrap().tuning;
        assert_eq!((tuned.level0_trigger, tuned.background_jobs), (Some(2), Some(4)));
        assert!(Options::parse("data?background_jobs=5000").is_err());
        assert!(Options::parse("data?cache_mib=0").is_err());
    }
}
