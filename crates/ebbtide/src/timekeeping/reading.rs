//! Readings of the node's clocks, as they are handed in.

use std::time::Duration;

use super::bounds::Micros;
use super::mark::BootId;

/// The clocks of a node. Nothing else in this module reads one.
pub trait Clocks: Send + Sync + 'static {
    /// The wall clock, since 1970.
    fn wall(&self) -> Duration;

    /// A clock that runs at the real pace, counts suspend, and does not go back while the machine is up.
    fn boot(&self) -> Duration;

    /// Identity of the boot that [`boot`](Self::boot) counts from; none where the system has no such id.
    fn boot_id(&self) -> Option<BootId>;

    /// The wall clock at the time when it was last known to be synchronized; none if it is not, or if the system does
    /// not tell. Asked once a second at the most, while the time is in doubt or held.
    fn synchronized_at(&self) -> Option<Duration>;
}

/// One reading of the node's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// The wall clock.
    pub(super) wall: Micros,
    /// The boot-time clock.
    pub(super) boot: Micros,
    /// The wall clock when it was last synchronized.
    pub(super) synchronized_at: Option<Micros>,
}

/// Two readings of the boot-time clock around one of the wall may be so far apart.
const CLOSE: Micros = 1_000;

impl Reading {
    /// Reads wall and boot-time clock at one moment. A thread that is preempted between the two would see a step of
    /// the wall, so the reading is repeated until both were close.
    pub(super) fn take(clocks: &dyn Clocks) -> Self {
        const ATTEMPTS: usize = 8;
        let mut best: Option<(Micros, Self)> = None;
        for _ in 0..ATTEMPTS {
            let before = micros(clocks.boot());
            let wall = micros(clocks.wall());
            let boot = micros(clocks.boot());
            let apart = boot - before;
            let reading = Self { wall, boot, synchronized_at: None };
            if best.is_none_or(|(least, _)| apart < least) {
                best = Some((apart, reading));
            }
            if apart <= CLOSE {
                break;
            }
        }
        best.map_or(Self { wall: 0, boot: 0, synchronized_at: None }, |(_, reading)| reading)
    }
}

/// A duration in microseconds; beyond the year 9999 it is held there.
pub(super) fn micros(duration: Duration) -> Micros {
    const LAST: Micros = 253_402_300_799_999_000;
    let seconds = Micros::try_from(duration.as_secs()).unwrap_or(LAST).saturating_mul(1_000_000);
    seconds.saturating_add(duration.subsec_micros().into()).min(LAST)
}
