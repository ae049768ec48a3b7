//! The part of the state that normal running needs, readable without a lock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};

use super::anchor::Anchor;
use super::bounds::{Bounds, Micros, SECOND};
use super::machine::Machine;
use super::mark::timestamp;
use super::now::Now;

/// Answers the time while nothing happens; otherwise the machine is asked under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain {
    anchor: Anchor,
    /// Own time minus `earliest`.
    gap: Micros,
    /// Boot-time reading from which the machine is asked again.
    until: Micros,
    /// Least difference of wall and own time that changes nothing.
    least: Micros,
}

/// Time after which the machine looks at the clocks again, for the slew and the end of a hold.
const VALID_FOR: Micros = SECOND;

impl Plain {
    /// The plain state of a machine whose last answer was confirmed.
    pub(super) fn of(machine: &Machine, boot: Micros) -> Self {
        // A wall that is behind and known to be changes no answer, however far it is.
        let least = if machine.behind.is_some() { Micros::MIN } else { -machine.bounds.doubt };
        let gap = machine.hold.map_or(0, |hold| hold.gap);
        Self { anchor: machine.anchor, gap, until: boot + VALID_FOR, least }
    }

    /// The time at these readings; none if the machine must be asked.
    pub(super) fn now(&self, wall: Micros, boot: Micros, bounds: &Bounds) -> Option<Now> {
        let own = self.anchor.own(boot, bounds.slew_ppm);
        let plain = (self.anchor.boot..self.until).contains(&boot)
            && (self.least..=bounds.doubt).contains(&(wall - own));
        let earliest = if self.gap == 0 { own } else { own - self.gap };
        plain.then(|| Now::held(timestamp(earliest), timestamp(own)))
    }
}

/// A [`Plain`] that one thread at a time writes and any number reads: a sequence lock of atomics.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// Odd while a write is under way.
    sequence: AtomicU64,
    valid: AtomicBool,
    boot: AtomicI64,
    own: AtomicI64,
    slew: AtomicI64,
    gap: AtomicI64,
    until: AtomicI64,
    least: AtomicI64,
}

impl Published {
    /// Publishes a state, or withdraws it. Callers hold the machine's lock.
    pub(super) fn set(&self, plain: Option<Plain>) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.valid.store(plain.is_some(), Ordering::Relaxed);
        if let Some(plain) = plain {
            self.boot.store(plain.anchor.boot, Ordering::Relaxed);
            self.own.store(plain.anchor.own, Ordering::Relaxed);
            self.slew.store(plain.anchor.slew, Ordering::Relaxed);
            self.gap.store(plain.gap, Ordering::Relaxed);
            self.until.store(plain.until, Ordering::Relaxed);
            self.least.store(plain.least, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// The published state; none if there is none, or if one is being written.
    pub(super) fn get(&self) -> Option<Plain> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let valid = self.valid.load(Ordering::Relaxed);
        let plain = Plain {
            anchor: Anchor {
                boot: self.boot.load(Ordering::Relaxed),
                own: self.own.load(Ordering::Relaxed),
                slew: self.slew.load(Ordering::Relaxed),
            },
            gap: self.gap.load(Ordering::Relaxed),
            until: self.until.load(Ordering::Relaxed),
            least: self.least.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let whole = sequence.is_multiple_of(2) && sequence == self.sequence.load(Ordering::Relaxed);
        (whole && valid).then_some(plain)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn plain(n: Micros) -> Plain {
        Plain { anchor: Anchor { boot: n, own: n, slew: n }, gap: n, until: n, least: n }
    }

    #[test]
    fn a_reader_never_sees_half_of_a_write() {
        let published = Arc::new(Published::default());
        let seen = Arc::new(AtomicBool::new(false));
        let (writer, was_read) = (Arc::clone(&published), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            // On a busy machine the reader may get no turn during the first writes.
            for n in 0.. {
                writer.set((n % 16 != 0).then(|| plain(n)));
                if n >= 200_000 && was_read.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        while !thread.is_finished() {
            if let Some(found) = published.get() {
                seen.store(true, Ordering::Relaxed);
                assert_eq!(found, plain(found.gap));
            }
        }
        thread.join().unwrap();
    }
}
