//! The world of a script: the true time, and clocks that may be wrong.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::timekeeping::bounds::{Micros, SECOND};
use crate::timekeeping::{BootId, Clocks};

pub(super) const MINUTE: Micros = 60 * SECOND;
pub(super) const HOUR: Micros = 60 * MINUTE;

/// The world. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct World(Arc<Mutex<WorldState>>);

#[derive(Debug)]
struct WorldState {
    truth: Micros,
    boot: Micros,
    boots: u8,
    /// Wall minus truth.
    wall_error: Micros,
    /// True time since which the wall has been wrong.
    wrong_since: Option<Micros>,
    /// True time by which it must be set right, or the script would leave what the contract covers.
    mend_by: Option<Micros>,
    /// Engine minus truth.
    engine_error: Micros,
    synchronized_at: Option<Micros>,
}

impl World {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(WorldState {
            truth: 1_800_000_000 * SECOND,
            boot: 100 * SECOND,
            boots: 1,
            wall_error: 0,
            wrong_since: None,
            mend_by: None,
            engine_error: 0,
            synchronized_at: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, WorldState> {
        self.0.lock().unwrap()
    }

    pub(super) fn truth(&self) -> Micros {
        self.state().truth
    }

    pub(super) fn boot_time(&self) -> Micros {
        self.state().boot
    }

    pub(super) fn wall(&self) -> Micros {
        let state = self.state();
        (state.truth + state.wall_error).max(0)
    }

    pub(super) fn wall_error(&self) -> Micros {
        self.state().wall_error
    }

    pub(super) fn engine(&self) -> Micros {
        let state = self.state();
        (state.truth + state.engine_error).max(0)
    }

    /// Lets time pass, also while the machine is suspended or the process stopped. The boot-time clock is off by 10 ppm.
    pub(super) fn pass(&self, by: Micros) {
        let mut state = self.state();
        let left = state.mend_by.map_or(by, |mend_by| (mend_by - state.truth).clamp(0, by));
        state.truth += left;
        state.boot += left + left / 100_000;
    }

    /// Pauses the virtual machine: its boot-time clock does not see it.
    pub(super) fn pause(&self, by: Micros) {
        self.state().truth += by;
    }

    pub(super) fn reboot(&self, off: Micros, wall_error: Micros) {
        let mut state = self.state();
        state.truth += off;
        state.boot = 0;
        state.boots = state.boots.wrapping_add(1);
        state.synchronized_at = None;
        drop(state);
        self.set_wall(wall_error);
        if wall_error < -SECOND {
            let mut state = self.state();
            state.mend_by = Some(state.truth + HOUR);
        }
    }

    pub(super) fn set_wall(&self, error: Micros) {
        let mut state = self.state();
        let error = if same(error, state.engine_error) { 0 } else { error };
        state.wall_error = error;
        state.mend_by = None;
        let wrong = error > SECOND / 5;
        state.wrong_since = if wrong { state.wrong_since.or(Some(state.truth)) } else { None };
    }

    /// Sets the wall right where the contract needs it: half a day after it went ahead, and in time where it is behind.
    pub(super) fn mend(&self, error: Micros) {
        let state = self.state();
        let long = state.wrong_since.is_some_and(|since| state.truth - since > 12 * HOUR);
        let due = state.mend_by.is_some_and(|mend_by| state.truth >= mend_by);
        drop(state);
        if long || due {
            self.set_wall(error);
        }
    }

    /// The time service says that the wall is synchronized, which is true.
    pub(super) fn synchronize(&self) {
        let mut state = self.state();
        if state.wall_error.abs() <= SECOND / 5 {
            state.synchronized_at = Some(state.truth + state.wall_error);
        }
    }

    pub(super) fn set_engine(&self, error: Micros) {
        let mut state = self.state();
        state.engine_error = if same(error, state.wall_error) { 0 } else { error };
    }
}

/// Two clocks that are wrong by the same amount: nothing could tell.
fn same(one: Micros, other: Micros) -> bool {
    one.abs() > SECOND && other.abs() > SECOND && (one - other).abs() <= 6 * SECOND
}

fn duration(micros: Micros) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

impl Clocks for World {
    fn wall(&self) -> Duration {
        duration(World::wall(self))
    }

    fn boot(&self) -> Duration {
        duration(self.boot_time())
    }

    fn boot_id(&self) -> Option<BootId> {
        Some(BootId::from_bytes([self.state().boots; 16]))
    }

    fn synchronized_at(&self) -> Option<Duration> {
        self.state().synchronized_at.map(duration)
    }
}
