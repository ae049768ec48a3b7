//! The mark in a store: read at the opening, written with commits and by a timer.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::bounds::{Micros, SECOND};
use super::mark::{BootId, Mark};
use super::reading::micros;
use super::source::EngineClock;
use super::timed::Timed;
use super::{Clocks, TimeSource};
use crate::admin::Admin;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};

use std::sync::Arc;

/// Time after which the mark is written again, also if nothing was committed.
const EVERY: Micros = 10 * SECOND;

/// Writes of the mark by this process.
#[derive(Debug)]
pub(super) struct Marks {
    /// Boot-time reading of the last attempt.
    tried: AtomicI64,
    /// True if something was committed since the last write.
    committed: AtomicBool,
}

impl Default for Marks {
    fn default() -> Self {
        Self { tried: AtomicI64::new(NEVER), committed: AtomicBool::new(false) }
    }
}

const NEVER: Micros = Micros::MIN / 2;

impl Marks {
    /// Notes a commit. True if the caller has to write the mark: no timer has done it for a while.
    pub(super) fn committed(&self, boot: Micros) -> bool {
        if !self.committed.load(Ordering::Relaxed) {
            self.committed.store(true, Ordering::Relaxed);
        }
        let tried = self.tried.load(Ordering::Relaxed);
        boot - tried >= EVERY
            && self.tried.compare_exchange(tried, boot, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// True if the timer has to write the mark: after commits every second, so that a reboot finds their time. A shared
    /// engine has a clock of its own to be found then.
    fn is_due(&self, boot: Micros, shared: bool) -> bool {
        let committed = self.committed.swap(false, Ordering::Relaxed) && !shared;
        let due = committed || boot - self.tried.load(Ordering::Relaxed) >= EVERY;
        if due {
            self.tried.store(boot, Ordering::Relaxed);
        }
        due
    }
}

fn key() -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["clock".into()], &[])
}

/// The mark that a store remembers. Engines that note the latest time of a commit bound it from below; a store of an
/// earlier version has nothing else.
async fn read(backend: &dyn Admin, boot_id: Option<BootId>) -> Result<Option<Mark>> {
    // The record never expires, so any time will do.
    let stored = backend.get(&key()?, Timestamp::ZERO).await?;
    let stored = stored.map(|record| Mark::decode(&record.value)).transpose()?;
    let committed = backend.clock_mark().await?;
    Ok(match (stored, committed) {
        (Some(mark), Some(committed)) => Some(mark.raised(committed, boot_id)),
        (stored, committed) => stored.or_else(|| committed.map(Mark::from_timestamp)),
    })
}

impl Timed {
    /// Opens the time of a store: reads its mark, and compares the clock of an engine that several nodes share.
    pub async fn open(backend: Arc<dyn Admin>, clocks: Arc<dyn Clocks>) -> Result<Self> {
        let mark = read(backend.as_ref(), clocks.boot_id()).await?;
        let source = |engine| Arc::new(TimeSource::new(Arc::clone(&clocks), engine, mark));
        if !backend.info().shared {
            return Ok(Self::new(backend, source(EngineClock::None)));
        }
        let timed = Self::new(Arc::clone(&backend), source(EngineClock::Shared));
        match timed.compare_engine().await {
            Ok(true) => {}
            Ok(false) => return Ok(Self::new(backend, source(EngineClock::None))),
            // Nothing is answered before a comparison has succeeded; the timer tries again.
            Err(error) => tracing::warn!(%error, "cannot compare the engine's clock"),
        }
        Ok(timed)
    }

    /// Looks at the clocks, compares that of the engine if it is time to, and writes the mark if it is due. Call it
    /// every second.
    pub async fn tick(&self) -> Result<()> {
        let _ = self.now();
        let is_due = self.marks.is_due(micros(self.time().boot()), self.time().has_engine());
        // A mark on a shared engine is bounded by its clock of this moment.
        let compared = if is_due { self.ask_engine().await } else { self.compare_engine().await };
        if is_due {
            self.write_mark().await?;
        }
        compared.map(|_| ())
    }

    /// Writes the mark now. False if it must not be written: own time is not known, or not compared with the engine's
    /// clock just now.
    pub async fn write_mark(&self) -> Result<bool> {
        let Some(mark) = self.time().mark() else { return Ok(false) };
        let record = Record {
            value: mark.encode().to_vec().into(),
            version: version(&mark),
            expires_at: Timestamp::NEVER,
        };
        let put = Batch::try_from(Write::Put { key: key()?, record })?;
        Ok(self.admin().commit(put, mark.instant()).await?.is_applied())
    }

    /// Notes that something was committed, and writes the mark if no timer does.
    pub(super) async fn note_commit(&self) {
        // A shared engine is asked over a runtime, which has the timer.
        if self.time().keeps_a_mark()
            && !self.time().has_engine()
            && self.marks.committed(micros(self.time().boot()))
            && let Err(error) = self.write_mark().await
        {
            tracing::warn!(%error, "cannot write the clock mark");
        }
    }
}

/// A version for the record of a mark: no condition is ever set on it, so that it needs no chance.
fn version(mark: &Mark) -> Version {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mark.own.to_be_bytes());
    bytes[8..].copy_from_slice(&mark.boot.to_be_bytes());
    Version::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Memory;
    use crate::model::ttl::Ttl;
    use crate::timekeeping::{ClockState, ManualClocks};

    fn clocks() -> ManualClocks {
        ManualClocks::at(Timestamp::from_millis(1_800_000_000_000).unwrap())
    }

    async fn open(store: &Arc<Memory>, clocks: &ManualClocks) -> Timed {
        let store = Arc::clone(store) as Arc<dyn Admin>;
        Timed::open(store, Arc::new(clocks.clone())).await.unwrap()
    }

    async fn insert(timed: &Timed, name: &str) {
        let now = timed.now().unwrap();
        let key = Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap();
        let end = now.end(Ttl::from_secs(60).unwrap()).unwrap();
        let record = Record { value: "".into(), version: Version::from_bytes([1; 16]), expires_at: end };
        assert!(timed.insert(key, record, now).await.unwrap().is_applied());
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_across_a_restart_changes_nothing() {
        let (store, clocks) = (Arc::<Memory>::default(), clocks());
        let timed = open(&store, &clocks).await;
        insert(&timed, "a").await;
        let before = timed.now().unwrap().latest();
        drop(timed);
        clocks.step_wall_back(Duration::from_secs(3_600));
        clocks.advance(Duration::from_secs(2));
        let timed = open(&store, &clocks).await;
        assert_eq!(timed.now().unwrap().latest().since(before), Duration::from_secs(2));
        assert_eq!(timed.time().status().state, ClockState::Behind);
    }

    #[tokio::test]
    async fn without_a_timer_commits_write_the_mark_and_with_one_they_do_not() {
        let (store, clocks) = (Arc::<Memory>::default(), clocks());
        let timed = open(&store, &clocks).await;
        let mark = async || read(store.as_ref(), None).await.unwrap().map(|mark| mark.own());
        assert_eq!(mark().await, None, "opening writes nothing");
        insert(&timed, "a").await;
        let first = mark().await.unwrap();
        clocks.advance(Duration::from_secs(9));
        insert(&timed, "b").await;
        assert_eq!(mark().await, Some(first));
        timed.tick().await.unwrap();
        let second = mark().await.unwrap();
        assert_eq!(second.since(first), Duration::from_secs(9), "the timer finds the commit");
        clocks.advance(Duration::from_secs(5));
        timed.tick().await.unwrap();
        assert_eq!(mark().await, Some(second), "nothing was committed");
        clocks.advance(Duration::from_secs(5));
        timed.tick().await.unwrap();
        assert_eq!(mark().await.unwrap().since(second), Duration::from_secs(10));
    }

    #[tokio::test]
    async fn a_mark_that_cannot_be_read_is_corrupt() {
        let store = Arc::<Memory>::default();
        let record =
            Record { value: "x".into(), version: Version::from_bytes([1; 16]), expires_at: Timestamp::NEVER };
        let put = Batch::try_from(Write::Put { key: key().unwrap(), record }).unwrap();
        let admin: &dyn Admin = store.as_ref();
        assert!(admin.commit(put, Timestamp::ZERO).await.unwrap().is_applied());
        let error = Timed::open(store, Arc::new(clocks())).await.unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
    }
}
