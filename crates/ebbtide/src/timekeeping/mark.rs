//! The mark: the time that a store remembers.

use std::fmt;

use super::bounds::Micros;
use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;

/// Identity of one boot of one machine, and of the time namespace in which its boot-time clock is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId([u8; 16]);

impl BootId {
    /// The boot with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The time that a store remembers: written by commits, and by a timer every 10 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Own time.
    pub(super) own: Micros,
    /// `earliest`: less than own time in a hold.
    pub(super) earliest: Micros,
    /// Time that the hold has left, by the boot-time clock.
    pub(super) hold_left: Option<Micros>,
    /// Sum of the unvouched adoptions.
    pub(super) adopted: Micros,
    /// Own time of the last of them.
    pub(super) adopted_at: Micros,
    /// Largest difference of a doubt that is not settled.
    pub(super) ahead: Micros,
    /// Reading of the boot-time clock.
    pub(super) boot: Micros,
    /// Boot that the reading belongs to; none on a system that has no such id.
    pub(super) boot_id: Option<BootId>,
}

const FORMAT: u8 = 1;
const NO_HOLD: Micros = -1;

impl Mark {
    /// Bytes of an encoded mark.
    pub const LEN: usize = 1 + 7 * 8 + 1 + 16;

    /// The mark of a store that has kept nothing but the latest time of its use.
    #[must_use]
    pub fn from_timestamp(at: Timestamp) -> Self {
        let own = micros(at);
        Self {
            own,
            earliest: own,
            hold_left: None,
            adopted: 0,
            adopted_at: 0,
            ahead: 0,
            boot: 0,
            boot_id: None,
        }
    }

    /// The mark with what the engine remembers: the latest time at which something was committed. In the same boot the
    /// boot-time clock counts on from the mark itself, which is exact.
    pub(super) fn raised(mut self, committed: Timestamp, boot_id: Option<BootId>) -> Self {
        if self.boot_id.is_none() || self.boot_id != boot_id {
            self.own = self.own.max(micros(committed));
            self.earliest = self.earliest.max(micros(committed));
        }
        self
    }

    /// The instant at which an engine is handed the mark.
    pub(super) fn instant(&self) -> Timestamp {
        timestamp(self.earliest)
    }

    /// Own time when the mark was written.
    #[must_use]
    pub fn own(&self) -> Timestamp {
        timestamp(self.own)
    }

    /// The bytes to store.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = FORMAT;
        let hold = self.hold_left.unwrap_or(NO_HOLD);
        let fields = [self.own, self.earliest, hold, self.adopted, self.adopted_at, self.ahead, self.boot];
        for (place, field) in bytes[1..57].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
        if let Some(BootId(id)) = self.boot_id {
            bytes[57] = 1;
            bytes[58..].copy_from_slice(&id);
        }
        bytes
    }

    /// Reads a mark. Bytes that no version wrote are `Corrupt`: a store without a mark would believe any clock.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Error::corrupt("the clock mark cannot be read");
        if bytes.len() != Self::LEN || bytes[0] != FORMAT || bytes[57] > 1 {
            return Err(corrupt());
        }
        let mut fields = [0; 7];
        for (field, place) in fields.iter_mut().zip(bytes[1..57].chunks_exact(8)) {
            *field = Micros::from_be_bytes(place.try_into().map_err(|_| corrupt())?);
        }
        let [own, earliest, hold, adopted, adopted_at, ahead, boot] = fields;
        let last = micros(Timestamp::MAX);
        let sound = (0..=last).contains(&own)
            && (0..=own).contains(&earliest)
            && (NO_HOLD..=last).contains(&hold)
            && (0..=last).contains(&adopted)
            && (0..=last).contains(&adopted_at)
            && (0..=last).contains(&ahead)
            && (0..=last).contains(&boot);
        if !sound {
            return Err(corrupt());
        }
        let boot_id =
            if bytes[57] == 1 { Some(BootId(bytes[58..].try_into().map_err(|_| corrupt())?)) } else { None };
        let hold_left = (hold != NO_HOLD).then_some(hold);
        Ok(Self { own, earliest, hold_left, adopted, adopted_at, ahead, boot, boot_id })
    }

    /// Time since the mark by the boot-time clock, if it is the clock of the same boot and did not go back.
    pub(super) fn elapsed(&self, boot_id: Option<BootId>, boot: Micros) -> Option<Micros> {
        let same = boot_id.is_some() && self.boot_id == boot_id;
        (same && boot >= self.boot).then_some(boot - self.boot)
    }
}

/// A time in microseconds, as a timestamp; before 1970 and past the year 9999 it is held at that end.
pub(super) fn timestamp(micros: Micros) -> Timestamp {
    let millis = u64::try_from(micros / 1_000).unwrap_or(0);
    Timestamp::from_millis(millis).unwrap_or(Timestamp::MAX)
}

/// A timestamp in microseconds; `NEVER` is the year 9999.
pub(super) fn micros(at: Timestamp) -> Micros {
    Micros::try_from(at.min(Timestamp::MAX).as_millis()).unwrap_or(0) * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::ErrorKind;

    fn mark() -> Mark {
        Mark {
            own: 1_700_000_000_123_456,
            earliest: 1_699_000_000_000_000,
            hold_left: Some(7),
            adopted: 8,
            adopted_at: 9,
            ahead: 11,
            boot: 10,
            boot_id: Some(BootId([7; 16])),
        }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for mark in [mark(), Mark { boot_id: None, hold_left: None, ..mark() }] {
            assert_eq!(Mark::decode(&mark.encode()).unwrap(), mark);
        }
    }

    #[test]
    fn a_damaged_mark_is_corrupt() {
        let whole = mark().encode();
        assert_eq!(Mark::decode(&whole[1..]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(Mark::decode(&[]).is_err());
        let ahead = Mark { earliest: i64::MAX, ..mark() }.encode();
        assert_eq!(Mark::decode(&ahead).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn only_the_clock_of_the_same_boot_counts_on() {
        let (id, other) = (Some(BootId([7; 16])), Some(BootId([8; 16])));
        assert_eq!(mark().elapsed(id, 15), Some(5));
        assert_eq!(mark().elapsed(id, 9), None, "it went back");
        assert_eq!(mark().elapsed(other, 15), None);
        assert_eq!(Mark { boot_id: None, ..mark() }.elapsed(None, 15), None);
    }

    #[test]
    fn times_out_of_bounds_are_held_at_the_end() {
        assert_eq!(timestamp(-5), Timestamp::ZERO);
        assert_eq!(timestamp(i64::MAX), Timestamp::MAX);
        assert_eq!(micros(Timestamp::NEVER), micros(Timestamp::MAX));
    }
}
