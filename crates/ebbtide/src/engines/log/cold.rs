//! The cold store: records that have left the log, in windows by their expiry.
//!
//! A window is dropped whole when it has passed. A key may have copies in several windows for a while: the log masks
//! them until a tombstone is durable in each window that may hold the key.

#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub(crate) mod stored;
#[cfg(test)]
pub(crate) mod test_store;

use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Most windows of one kind.
pub(crate) const MAX_WINDOWS: usize = 10;

/// A window of expiries, named by its end in milliseconds: all its records expire before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window(pub u64);

/// One change of a bulk: a record, or a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdRow {
    pub key: Box<[u8]>,
    pub record: Option<Record>,
}

/// Part of a walk.
#[derive(Debug, Default)]
pub struct ColdPage {
    /// Records in the order of their keys.
    pub rows: Vec<(Box<[u8]>, Record)>,
    /// True if there are more behind the last one.
    pub more: bool,
}

/// Visitor of records: keys come in order.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], Record) -> Result<()>;

/// A store of the old format, which is only read.
pub trait OldStore {
    /// Latest time that it was used at.
    fn clock_mark(&self) -> Result<Option<Timestamp>>;

    /// Visits all records of a kind, in the order of their keys.
    fn each(&self, kind: Kind, visit: Visit<'_>) -> Result<()>;
}

/// Settings of the compactions of a cold store; its own where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Files of level 0 from which they are compacted.
    pub level0_trigger: Option<i32>,
    /// Most compactions and flushes at a time.
    pub background_jobs: Option<i32>,
}

/// An engine for records that have left the log. One thread writes to it; reads come from any.
pub trait ColdStore: Sized + Send + Sync + 'static {
    /// Reader of stores that this engine wrote before there was a log.
    type Old: OldStore;

    /// Name in URLs and messages.
    const NAME: &'static str;

    /// Opens or creates the store in the folder `path`.
    fn open(path: &Path, cache_bytes: u64) -> Result<Self>;

    /// Opens or creates the store with settings of its compactions. An engine that has none refuses them.
    fn open_tuned(path: &Path, cache_bytes: u64, tuning: Tuning) -> Result<Self> {
        if tuning != Tuning::default() {
            return Err(Error::invalid(format!(
                "level0_trigger and background_jobs are options of rocksdb: in the store URL, and not of {}:",
                Self::NAME
            )));
        }
        Self::open(path, cache_bytes)
    }

    /// Returns true for a file that the engine never changes once it is written.
    fn is_table(path: &Path) -> bool;

    /// Opens the files of the old format in `path`.
    fn open_old(path: &Path) -> Result<Self::Old>;

    /// Windows of a kind that may hold records.
    fn windows(&self, kind: Kind) -> Vec<Window>;

    /// Number of the last bulk of a window; none if the window is missing or lost its tables. It only grows, and the
    /// manifest has the one of the last checkpoint: a window that falls behind it has lost records.
    fn generation(&self, kind: Kind, window: Window) -> Result<Option<u64>>;

    /// The record at a key, from whichever window has it.
    fn get(&self, kind: Kind, key: &[u8]) -> Result<Option<Record>>;

    /// Up to `limit` records of all windows of a kind that begin with `prefix`, from `start`, in the order of their keys.
    fn scan(&self, kind: Kind, start: Bound<&[u8]>, prefix: &[u8], limit: usize) -> Result<ColdPage>;

    /// Adds rows, sorted by key, to a window that need not exist yet. They need not be durable before [`sync`](Self::sync).
    fn ingest(&self, kind: Kind, window: Window, rows: Vec<ColdRow>) -> Result<()>;

    /// Up to `limit` keys of a window whose records expire before `until`. Costs what has expired, not what is stored.
    fn expired(&self, kind: Kind, window: Window, until: Timestamp, limit: usize) -> Result<Vec<Box<[u8]>>>;

    /// Returns true if the expiry list of a window has this record.
    fn is_listed(&self, kind: Kind, window: Window, key: &[u8], expires_at: Timestamp) -> Result<bool>;

    /// Removes a window with all its records.
    fn drop_window(&self, kind: Kind, window: Window) -> Result<()>;

    /// Makes everything that was ingested durable.
    fn sync(&self) -> Result<()>;

    /// Visits every record of a window, and checks its checksums on the way.
    fn each(&self, kind: Kind, window: Window, visit: Visit<'_>) -> Result<()>;

    /// Writes a copy into the empty or missing folder `path`, durably. Nobody writes meanwhile.
    fn copy(&self, path: &Path) -> Result<()>;
}

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// Widths of windows, for lives that end within the first number of milliseconds.
const WIDTHS: [(u64, u64); 4] =
    [(2 * HOUR, 2 * HOUR), (DAY, DAY), (30 * DAY, 15 * DAY), (u64::MAX, 365 * DAY)];

/// Window for a record that ends at `expires_at`, as of `now`, beside those that exist. Windows widen with the remaining
/// life. If the kind has as many as it may, the record goes to the next one that ends later.
pub(crate) fn window_for(expires_at: Timestamp, now: Timestamp, existing: &[Window]) -> Window {
    if expires_at.is_never() {
        return Window(u64::MAX);
    }
    let left = u64::try_from(expires_at.since(now).as_millis()).unwrap_or(u64::MAX);
    let width = WIDTHS.iter().find(|(within, _)| left <= *within).map_or(365 * DAY, |(_, width)| *width);
    let wanted = Window((expires_at.as_millis() / width + 1) * width);
    if existing.contains(&wanted) || existing.len() < MAX_WINDOWS - 1 {
        return wanted;
    }
    let later = existing.iter().copied().filter(|window| *window > wanted).min();
    later.unwrap_or(Window(u64::MAX))
}

/// Time that a record may stay in the log before it retires.
pub(crate) const HORIZON: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_what_ends_before_them_widen_with_the_life_and_are_at_most_ten() {
        let at = |millis| Timestamp::from_millis(millis).unwrap();
        let now = at(1_800_000_000_000);
        let mut windows: Vec<Window> = Vec::new();
        for step in 0..4_000u64 {
            let now = at(now.as_millis() + step * HOUR / 4);
            for life in [60_000, HOUR, 5 * HOUR, 20 * HOUR, 3 * DAY, 29 * DAY, 90 * DAY, 3_000 * DAY] {
                let expires_at = at(now.as_millis() + life);
                let window = window_for(expires_at, now, &windows);
                assert!(expires_at.as_millis() < window.0);
                if !windows.contains(&window) {
                    windows.push(window);
                }
                assert!(windows.len() <= MAX_WINDOWS);
            }
            windows.retain(|window| window.0 > now.as_millis());
        }
        assert_eq!(window_for(Timestamp::NEVER, now, &windows), Window(u64::MAX));
        assert!(
            window_for(at(now.as_millis() + 1), now, &[]) < window_for(at(now.as_millis() + DAY), now, &[])
        );
    }
}
