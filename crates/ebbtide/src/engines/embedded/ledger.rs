//! The ledger: how many records are stored, by kind and minute of expiry.
//!
//! Each group of commits writes its sums in the same batch as its records, so ledger and records agree after a crash.
//! A sweep sets it right from a count of what is there: what a compaction dropped, and dropped again after a crash,
//! is never taken off twice.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rapidhash::fast::RandomState;

use super::engine::Op;
use crate::admin::{KindStats, Stats};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

const MINUTE: u64 = 60_000;

/// The first byte of the ledger's rows among what the store keeps of itself.
const ROW: u8 = b'l';

/// Records by minute of expiry.
pub(super) type Minutes = BTreeMap<u64, u64>;

/// What a group of commits changes.
pub(super) type Changes = HashMap<(Kind, u64), i64, RandomState>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ledger(BTreeMap<Kind, Minutes>);

/// The minute in which a record ends that ends at so many milliseconds.
pub(super) fn minute(millis: u64) -> u64 {
    millis / MINUTE
}

/// Counts a record in or out.
pub(super) fn change(changes: &mut Changes, kind: Kind, expires_at: Timestamp, by: i64) {
    *changes.entry((kind, minute(expires_at.as_millis()))).or_default() += by;
}

impl Ledger {
    /// Adds a row as it was stored. Rows of other things are passed over.
    pub(super) fn read_row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some((&ROW, rest)) = key.split_first() else { return Ok(()) };
        let row = || -> Option<(Kind, u64, u64)> {
            let (&code, minute) = rest.split_first()?;
            let minute = u64::from_be_bytes(minute.try_into().ok()?);
            Some((Kind::from_code(code)?, minute, u64::from_be_bytes(value.try_into().ok()?)))
        };
        let (kind, minute, count) =
            row().ok_or_else(|| Error::corrupt("a row of the ledger is malformed"))?;
        self.0.entry(kind).or_default().insert(minute, count);
        Ok(())
    }

    /// The rows that store the ledger as it will be after `changes`.
    pub(super) fn rows(&self, changes: &Changes) -> Vec<Op<'static>> {
        let rows = changes.iter().filter(|(_, by)| **by != 0);
        rows.map(|(&(kind, minute), &by)| {
            let mut key = vec![ROW, kind.code()];
            key.extend(minute.to_be_bytes());
            match self.count(kind, minute).saturating_add_signed(by) {
                0 => Op::DeleteMeta(key),
                count => Op::PutMeta(key, count.to_be_bytes().to_vec()),
            }
        })
        .collect()
    }

    pub(super) fn apply(&mut self, changes: &Changes) {
        for (&(kind, minute), &by) in changes {
            let minutes = self.0.entry(kind).or_default();
            let count = minutes.get(&minute).copied().unwrap_or(0).saturating_add_signed(by);
            if count == 0 {
                minutes.remove(&minute);
            } else {
                minutes.insert(minute, count);
            }
        }
    }

    fn count(&self, kind: Kind, minute: u64) -> u64 {
        self.minutes(kind).and_then(|minutes| minutes.get(&minute)).copied().unwrap_or(0)
    }

    pub(super) fn minutes(&self, kind: Kind) -> Option<&Minutes> {
        self.0.get(&kind)
    }

    /// The state of a kind at `now`. A minute counts as expired when all of it has passed.
    pub(super) fn kind_stats(&self, kind: Kind, now: Timestamp) -> KindStats {
        let mut stats = KindStats::default();
        let present = minute(now.as_millis());
        for (&minute, &count) in self.minutes(kind).into_iter().flatten() {
            if minute >= present {
                stats.live += count;
                continue;
            }
            stats.expired += count;
            let overdue = Duration::from_millis(now.as_millis() - minute * MINUTE);
            stats.oldest_overdue = stats.oldest_overdue.max(Some(overdue));
        }
        stats
    }

    pub(super) fn stats(&self, now: Timestamp) -> Stats {
        let filled = self.0.iter().filter(|(_, minutes)| !minutes.is_empty());
        filled.map(|(&kind, _)| (kind, self.kind_stats(kind, now))).collect()
    }

    /// Whether a sweep up to `until` could remove anything of a kind.
    pub(super) fn may_hold_expired(&self, kind: Kind, until: Timestamp) -> bool {
        let first = self.minutes(kind).and_then(|minutes| minutes.keys().next());
        first.is_some_and(|minute| minute.saturating_mul(MINUTE) < until.as_millis())
    }
}

/// What a sweep removed of a kind, and how the ledger is set right: `ledger` and `counted` are of one instant.
pub(super) fn settle(kind: Kind, ledger: &Minutes, counted: &Minutes) -> (u64, Changes) {
    let mut changes = Changes::default();
    let mut removed = 0;
    for &minute in ledger.keys().chain(counted.keys()) {
        let of = |minutes: &Minutes| minutes.get(&minute).copied().unwrap_or(0);
        let by = of(counted).cast_signed() - of(ledger).cast_signed();
        if by != 0 && changes.insert((kind, minute), by).is_none() {
            removed += u64::try_from(-by).unwrap_or(0);
        }
    }
    (removed, changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(list: &[(u64, i64)]) -> Changes {
        list.iter().map(|&(minute, by)| ((Kind::Probe, minute), by)).collect()
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let mut ledger = Ledger::default();
        let first = changes(&[(1, 3), (2, 1), (u64::MAX, 7)]);
        let mut read = Ledger::default();
        for row in ledger.rows(&first) {
            let Op::PutMeta(key, value) = row else { panic!("nothing is taken away yet") };
            read.read_row(&key, &value).unwrap();
        }
        ledger.apply(&first);
        assert_eq!(read, ledger);
        assert!(read.read_row(b"mark", b"").is_ok(), "another row");
        assert!(read.read_row(b"l\xff", b"").is_err());
    }

    #[test]
    fn a_minute_that_empties_leaves_no_row() {
        let mut ledger = Ledger::default();
        ledger.apply(&changes(&[(1, 1)]));
        assert!(matches!(ledger.rows(&changes(&[(1, -1)]))[..], [Op::DeleteMeta(_)]));
        ledger.apply(&changes(&[(1, -1)]));
        assert!(ledger.stats(Timestamp::ZERO).is_empty());
    }

    #[test]
    fn settling_counts_what_is_gone_and_mends_what_was_wrong() {
        let ledger = Minutes::from([(1, 5), (2, 3)]);
        let counted = Minutes::from([(2, 2), (3, 1)]);
        let (removed, mended) = settle(Kind::Probe, &ledger, &counted);
        assert_eq!(removed, 6, "five and one; what was missing is not removed");
        assert_eq!(mended, changes(&[(1, -5), (2, -1), (3, 1)]));
    }
}
