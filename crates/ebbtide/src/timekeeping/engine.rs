//! Comparisons with the clock of an engine that several nodes share.

use super::bounds::{Bounds, Micros};
use super::reading::Reading;

/// One question to the engine's clock, with the node's clocks on both sides of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EngineReading {
    /// The node's clocks before the question was sent.
    pub(super) sent: Reading,
    /// The node's clocks when the answer had come.
    pub(super) received: Reading,
    /// The engine's clock.
    pub(super) engine: Micros,
    /// Resolution of the answer: the engine's clock was within this much after `engine`.
    pub(super) resolution: Micros,
}

/// The engine's clock as a function of the node's boot-time clock, between two bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison {
    /// Engine minus boot, at least.
    low: Micros,
    /// Engine minus boot, at most.
    high: Micros,
    /// Boot-time reading when the answer had come.
    pub(super) at: Micros,
    /// Wall minus boot at that time.
    wall: Micros,
}

impl Comparison {
    /// Evaluates a reading. None if it took so long that it proves little, or if the wall moved meanwhile: the machine
    /// may have been paused after the engine answered.
    pub(super) fn of(reading: &EngineReading, bounds: &Bounds) -> Option<Self> {
        let (sent, received) = (&reading.sent, &reading.received);
        let low = reading.engine - received.boot;
        let high = reading.engine + reading.resolution - sent.boot;
        let wall = received.wall - received.boot;
        let moved = (wall - (sent.wall - sent.boot)).abs() > bounds.moved;
        let in_order = low <= high && high - low <= bounds.engine_uncertainty;
        (in_order && !moved).then_some(Self { low, high, at: received.boot, wall })
    }

    /// The engine's clock, at least and at most, at a reading of the boot-time clock.
    pub(super) fn engine(&self, boot: Micros) -> (Micros, Micros) {
        (boot + self.low, boot + self.high)
    }

    /// True while the comparison may overrule the wall: it is recent, and nothing has moved the wall since.
    pub(super) fn is_current(&self, now: Reading, bounds: &Bounds) -> bool {
        let age = now.boot - self.at;
        (0..=bounds.engine_age).contains(&age) && (now.wall - now.boot - self.wall).abs() <= bounds.moved
    }

    /// Distance of `time` from the engine's clock at `boot`, which is at least this far: zero within the
    /// uncertainty, more than zero where `time` is ahead.
    pub(super) fn ahead(&self, time: Micros, boot: Micros) -> Micros {
        let (low, high) = self.engine(boot);
        if time > high {
            time - high
        } else if time < low {
            time - low
        } else {
            0
        }
    }

    /// True if `time` and the engine's clock may be the same, within the bound.
    pub(super) fn agrees(&self, time: Micros, boot: Micros, bounds: &Bounds) -> bool {
        self.ahead(time, boot).abs() <= bounds.doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timekeeping::bounds::SECOND;

    fn reading(wall: Micros, boot: Micros) -> Reading {
        Reading { wall: wall * SECOND, boot: boot * SECOND, synchronized_at: None }
    }

    fn asked(sent: Reading, received: Reading, engine: Micros) -> Option<Comparison> {
        let engine = EngineReading { sent, received, engine: engine * SECOND, resolution: 0 };
        Comparison::of(&engine, &Bounds::CONTRACT)
    }

    #[test]
    fn the_round_trip_is_allowed_for() {
        let compared = asked(reading(100, 10), reading(101, 11), 103).unwrap();
        assert_eq!(compared.engine(11 * SECOND), (103 * SECOND, 104 * SECOND));
        assert_eq!(compared.ahead(101 * SECOND, 11 * SECOND), -2 * SECOND);
        assert_eq!(compared.ahead(103 * SECOND, 11 * SECOND), 0);
        assert_eq!(compared.ahead(105 * SECOND, 11 * SECOND), SECOND);
        assert!(compared.agrees(101 * SECOND, 11 * SECOND, &Bounds::CONTRACT));
        assert!(!compared.agrees(107 * SECOND, 11 * SECOND, &Bounds::CONTRACT));
    }

    #[test]
    fn a_slow_answer_proves_nothing_and_neither_does_one_across_a_pause() {
        assert!(asked(reading(100, 10), reading(104, 14), 100).is_none());
        assert!(asked(reading(100, 10), reading(700, 10), 100).is_none());
    }

    #[test]
    fn a_comparison_ends_with_its_age_and_with_a_step_of_the_wall() {
        let compared = asked(reading(100, 10), reading(100, 10), 100).unwrap();
        let current = |now| compared.is_current(now, &Bounds::CONTRACT);
        assert!(current(reading(120, 30)));
        assert!(!current(reading(131, 41)));
        assert!(!current(reading(121, 30)));
    }
}
