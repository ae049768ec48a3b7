//! Sweep state of a store, in one record.

use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::backend::{Backend, BackendExt as _};
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::rng::Rng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;

/// Attempts at a change that other writers interfere with.
const ATTEMPTS: usize = 8;

/// Sweep state. Times are milliseconds since 1970; durations are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub(super) struct SweepState {
    /// Start of sweep monitoring.
    #[n(0)]
    since: Option<u64>,
    /// Instant up to which the last complete sweep went.
    #[n(1)]
    swept: Option<u64>,
    /// End of the running sweep's lease.
    #[n(2)]
    turn: Option<u64>,
    /// Instant up to which an interrupted sweep was to go.
    #[n(3)]
    stopped: Option<u64>,
    /// Age of the oldest overdue record after the last complete sweep.
    #[n(4)]
    overdue: Option<u64>,
    /// Time since which sweeps remove nothing while that age grows.
    #[n(5)]
    stuck: Option<u64>,
}

/// Problems with the sweeping of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Signals {
    /// Time since the last sweep, if too long.
    pub(super) silent: Option<Duration>,
    /// Age of the oldest overdue record, if sweeps remove nothing while it grows.
    pub(super) stuck: Option<Duration>,
}

impl SweepState {
    /// Starts sweep monitoring at `now` unless it has started.
    pub(super) fn seen(self, now: Timestamp) -> Self {
        Self { since: self.since.or(Some(now.as_millis())), ..self }
    }

    pub(super) fn renewed(self, now: Timestamp, turn: Duration) -> Self {
        Self { turn: Some(now.as_millis().saturating_add(millis(turn))), ..self }
    }

    /// Releases the lease.
    pub(super) fn ended(self) -> Self {
        Self { turn: None, ..self }
    }

    pub(super) fn stopped(self, until: Timestamp) -> Self {
        Self { stopped: Some(until.as_millis()), ..self }
    }

    pub(super) fn swept(
        self,
        until: Timestamp,
        removed: u64,
        overdue: Option<Duration>,
        bound: Duration,
    ) -> Self {
        let overdue = overdue.map(millis).or(self.overdue);
        let is_late = overdue.is_some_and(|overdue| overdue > millis(bound));
        let stuck = match removed {
            0 if is_late && overdue > self.overdue => self.stuck.or(Some(until.as_millis())),
            0 if is_late => self.stuck,
            _ => None,
        };
        let until = Some(until.as_millis());
        let (swept, since) = (self.swept.max(until), self.since.or(until));
        Self { stopped: None, swept, since, overdue, stuck, ..self }
    }

    /// Instant of an interrupted sweep, unless the interruption is too long ago.
    pub(super) fn unfinished(&self, now: Timestamp, within: Duration) -> Option<Timestamp> {
        let stopped = self.stopped.and_then(|millis| Timestamp::from_millis(millis).ok())?;
        (stopped < now && now.since(stopped) <= within).then_some(stopped)
    }

    pub(super) fn signals(&self, now: Timestamp, silence: Duration) -> Signals {
        let last = self.swept.max(self.since).and_then(|millis| Timestamp::from_millis(millis).ok());
        Signals {
            silent: last.map(|last| now.since(last)).filter(|silent| *silent > silence),
            stuck: self.stuck.and(self.overdue).map(Duration::from_millis),
        }
    }
}

impl Signals {
    /// Warnings for an operator, one sentence each.
    pub(super) fn sentences(&self) -> Vec<String> {
        let hours = |time: Duration| time.as_secs() / 3_600;
        let silent = self.silent.map(|silent| {
            format!(
                "nothing has swept this store for {} hours: serve with --sweep-interval, or run `ebbtide sweep` \
                 from a timer",
                hours(silent)
            )
        });
        let stuck = self.stuck.map(|overdue| {
            format!(
                "sweeps remove nothing while overdue records grow older: the oldest record expired \
                 {} hours ago",
                hours(overdue)
            )
        });
        silent.into_iter().chain(stuck).collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn key() -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["sweep".into()], &[])
}

async fn read_with_version(backend: &dyn Backend) -> Result<(SweepState, Option<Version>)> {
    // The record never expires, so any time will do.
    match backend.get(&key()?, Timestamp::ZERO).await? {
        Some(record) => Ok((codec::decode(&record.value)?, Some(record.version))),
        None => Ok((SweepState::default(), None)),
    }
}

pub(super) async fn read(backend: &dyn Backend) -> Result<SweepState> {
    Ok(read_with_version(backend).await?.0)
}

/// Reader and writer of the sweep state.
pub(super) struct Notes<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) rng: &'a dyn Rng,
}

impl Notes<'_> {
    pub(super) async fn read(&self) -> Result<SweepState> {
        read(self.backend).await
    }

    /// Acquires the lease, notes a sweep that can be resumed within a time as begun, and returns the previous state; if another sweeper holds it, returns the lease's end.
    pub(super) async fn begin(
        &self,
        now: Timestamp,
        turn: Duration,
        resumable: Option<Duration>,
    ) -> Result<std::result::Result<SweepState, Timestamp>> {
        for _ in 0..ATTEMPTS {
            let (state, version) = read_with_version(self.backend).await?;
            if let Some(turn) = state.turn.filter(|turn| *turn > now.as_millis()) {
                return Ok(Err(Timestamp::from_millis(turn)?));
            }
            // A sweep that is killed notes nothing at its end: the next one goes on with it.
            let begun = match resumable {
                Some(within) => state.stopped(state.unfinished(now, within).unwrap_or(now)),
                None => state,
            };
            if self.write(begun.renewed(now, turn), version).await? {
                return Ok(Ok(state));
            }
        }
        Err(crowded())
    }

    /// Changes the state; writes nothing if nothing changes.
    pub(super) async fn change(&self, change: impl Fn(SweepState) -> SweepState) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let (state, version) = read_with_version(self.backend).await?;
            let changed = change(state);
            if changed == state || self.write(changed, version).await? {
                return Ok(());
            }
        }
        Err(crowded())
    }

    async fn write(&self, state: SweepState, expected: Option<Version>) -> Result<bool> {
        // Neither the record nor the one that it replaces expires, so any time will do.
        let now = Timestamp::ZERO;
        let record = Record::new(codec::encode(&state), Timestamp::NEVER, self.rng);
        let commit = match expected {
            Some(expected) => self.backend.replace(key()?, expected, record, now).await?,
            None => self.backend.insert(key()?, record, now).await?,
        };
        Ok(commit.is_applied())
    }
}

fn crowded() -> Error {
    Error::unavailable("the sweep state is contended; retry")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(hours: u32) -> Timestamp {
        Timestamp::ZERO.checked_add(HOUR * hours).unwrap()
    }

    #[test]
    fn a_store_that_nobody_sweeps_is_told_of_after_the_bound() {
        let state = SweepState::default().seen(at(100));
        assert_eq!(state.seen(at(120)).signals(at(126), 26 * HOUR), Signals::default());
        let signals = state.signals(at(127), 26 * HOUR);
        assert_eq!(signals.silent, Some(27 * HOUR));
        assert!(signals.sentences()[0].contains("27 hours"), "{:?}", signals.sentences());
        let swept = state.swept(at(126), 0, None, HOUR);
        assert_eq!(swept.signals(at(127), 26 * HOUR), Signals::default());
        assert!(swept.signals(at(153), 26 * HOUR).silent.is_some(), "and again, when that was the last");
    }

    #[test]
    fn a_sweep_that_removes_nothing_while_the_overdue_age_grows_is_told_of() {
        let state = SweepState::default().swept(at(1), 5, Some(HOUR), 2 * HOUR);
        let state = state.swept(at(2), 0, Some(2 * HOUR), 2 * HOUR);
        assert_eq!(state.signals(at(2), 26 * HOUR).stuck, None, "it is within the engine's time");
        let state = state.swept(at(3), 0, Some(3 * HOUR), 2 * HOUR);
        assert_eq!(state.signals(at(3), 26 * HOUR).stuck, Some(3 * HOUR));
        let same = state.swept(at(4), 0, Some(3 * HOUR), 2 * HOUR);
        assert!(same.signals(at(4), 26 * HOUR).stuck.is_some(), "until something is removed");
        let moving = same.swept(at(5), 1, Some(4 * HOUR), 2 * HOUR);
        assert_eq!(moving.signals(at(5), 26 * HOUR).stuck, None);
        let done = same.swept(at(5), 0, Some(Duration::ZERO), 2 * HOUR);
        assert_eq!(done.signals(at(5), 26 * HOUR).stuck, None);
    }

    #[test]
    fn a_stopped_sweep_is_resumed_for_a_day() {
        let state = SweepState::default().stopped(at(10));
        assert_eq!(state.unfinished(at(12), 24 * HOUR), Some(at(10)));
        assert_eq!(state.unfinished(at(35), 24 * HOUR), None);
        assert_eq!(state.swept(at(12), 0, None, HOUR).unfinished(at(13), 24 * HOUR), None);
    }
}
