//! Clocks that tests move.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::mark::BootId;
use super::reading::Clocks;
use crate::model::time::Timestamp;

/// Clocks that stand still until they are told to move. Clones are the same clocks.
#[derive(Debug, Clone)]
pub struct ManualClocks(Arc<Mutex<Hands>>);

#[derive(Debug, Clone, Copy)]
struct Hands {
    wall: Duration,
    boot: Duration,
    boots: u8,
    synchronized_at: Option<Duration>,
}

impl ManualClocks {
    /// Clocks whose wall shows `wall`, a minute after the machine was started.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        let wall = Duration::from_millis(wall.as_millis());
        let hands = Hands { wall, boot: Duration::from_secs(60), boots: 1, synchronized_at: None };
        Self(Arc::new(Mutex::new(hands)))
    }

    /// Lets time pass: all clocks go on.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands();
        hands.wall += by;
        hands.boot += by;
    }

    /// Steps the wall clock forwards.
    pub fn step_wall(&self, by: Duration) {
        self.hands().wall += by;
    }

    /// Steps the wall clock backwards.
    pub fn step_wall_back(&self, by: Duration) {
        let mut hands = self.hands();
        hands.wall = hands.wall.saturating_sub(by);
    }

    /// Starts the machine anew: another boot id, and a boot-time clock from zero. It is no longer synchronized.
    pub fn reboot(&self) {
        let mut hands = self.hands();
        hands.boot = Duration::ZERO;
        hands.boots = hands.boots.wrapping_add(1);
        hands.synchronized_at = None;
    }

    /// Says that the wall clock has been synchronized just now, or that it is not synchronized.
    pub fn set_synchronized(&self, synchronized: bool) {
        let mut hands = self.hands();
        hands.synchronized_at = synchronized.then_some(hands.wall);
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clocks for ManualClocks {
    fn wall(&self) -> Duration {
        self.hands().wall
    }

    fn boot(&self) -> Duration {
        self.hands().boot
    }

    fn boot_id(&self) -> Option<BootId> {
        Some(BootId::from_bytes([self.hands().boots; 16]))
    }

    fn synchronized_at(&self) -> Option<Duration> {
        self.hands().synchronized_at
    }
}
