//! The figures of the time contract, in microseconds.

/// Microseconds: since 1970 for the wall, own time and the engine's clock, since boot for the boot-time clock.
pub(super) type Micros = i64;

pub(super) const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
pub(super) const DAY: Micros = 24 * 60 * MINUTE;

/// The bounds that decide when time is in doubt, and when no longer. They are data so that tests can show what each
/// of them prevents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Difference between two clocks that is not a doubt.
    pub(super) doubt: Micros,
    /// Rate at which own time follows the wall, in parts per million.
    pub(super) slew_ppm: i64,
    /// Largest difference that is adopted because an engine or the kernel vouches for the wall.
    pub(super) vouched: Micros,
    /// Sum of the differences that are adopted unvouched, until none was for a day.
    pub(super) unvouched: Micros,
    /// Time for which a difference must stay the same before it is adopted unvouched.
    pub(super) same_for: Micros,
    /// Change of a difference that still counts as the same.
    pub(super) same_within: Micros,
    /// Length of a hold after the kernel vouched for the wall.
    pub(super) hold_vouched: Micros,
    /// Length of a hold otherwise.
    pub(super) hold_unvouched: Micros,
    /// Width of an unconfirmed interval beyond which nothing is answered.
    pub(super) closed: Micros,
    /// Distance that a sweep of a shared engine keeps from `earliest`.
    pub(super) sweep_margin: Micros,
    /// Age at which a comparison with the engine's clock bounds nothing any more.
    pub(super) engine_age: Micros,
    /// Age at which a comparison with the engine's clock no longer bounds a mark.
    pub(super) mark_age: Micros,
    /// Uncertainty beyond which a comparison with the engine's clock is ignored.
    pub(super) engine_uncertainty: Micros,
    /// Movement of the wall against the boot-time clock that leaves a comparison with the engine's clock valid.
    pub(super) moved: Micros,
    /// Age of a synchronization up to which it vouches for a wall in doubt: the wall may have been set again since.
    pub(super) vouch_age: Micros,
    /// Age of the last synchronization up to which the kernel's clock counts as synchronized: two of the longest polls
    /// of systemd-timesyncd.
    pub(super) synchronized_age: Micros,
}

impl Bounds {
    pub(super) const CONTRACT: Self = Self {
        doubt: 2 * SECOND,
        slew_ppm: 500,
        vouched: 31 * DAY,
        unvouched: 15 * MINUTE,
        same_for: 10 * SECOND,
        same_within: SECOND / 4,
        hold_vouched: 15 * MINUTE,
        hold_unvouched: DAY,
        closed: 5 * MINUTE,
        sweep_margin: 10 * SECOND,
        engine_age: 30 * SECOND,
        mark_age: SECOND,
        engine_uncertainty: 2 * SECOND,
        moved: SECOND / 2,
        vouch_age: 15 * SECOND,
        synchronized_age: 4_096 * SECOND,
    };
}
