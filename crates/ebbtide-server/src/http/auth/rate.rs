//! Rate limiter: a number of requests per second, and as many at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: u64 = 1_000_000;

/// Rate limiter, stored as the reading of the boot-time clock at which the bucket is full again. The burst is one second's worth.
#[derive(Debug)]
pub(super) struct Rate {
    micros_each: u64,
    even_at: AtomicU64,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Self {
        let micros_each = SECOND / u64::from(per_second.max(1));
        Self { micros_each: micros_each.max(1), even_at: AtomicU64::new(0) }
    }

    /// Takes one token; otherwise returns the number of seconds until there is one.
    pub(super) fn spend(&self, boot: Duration) -> Result<(), u32> {
        let now = u64::try_from(boot.as_micros()).unwrap_or(u64::MAX / 2);
        let spend = |even_at: u64| {
            let next = even_at.max(now) + self.micros_each;
            (next - now <= SECOND).then_some(next)
        };
        match self.even_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, spend) {
            Ok(_) => Ok(()),
            Err(even_at) => {
                let wait = (even_at + self.micros_each).saturating_sub(now + SECOND).div_ceil(SECOND);
                Err(u32::try_from(wait).unwrap_or(u32::MAX).max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(60_000 + millis)
    }

    #[test]
    fn a_second_has_its_number_and_no_more() {
        for limit in [1, 3, 10, 1_000] {
            let rate = Rate::new(limit);
            let spent = |millis| (0..2 * limit).filter(|_| rate.spend(at(millis)).is_ok()).count();
            assert_eq!(spent(0), limit as usize);
            assert_eq!(rate.spend(at(0)), Err(1));
            assert_eq!(spent(1_000), limit as usize);
        }
    }

    #[test]
    fn half_a_second_earns_half() {
        let rate = Rate::new(10);
        while rate.spend(at(0)).is_ok() {}
        assert_eq!((0..20).filter(|_| rate.spend(at(500)).is_ok()).count(), 5);
    }

    #[test]
    fn a_clock_that_is_set_back_earns_nothing() {
        let rate = Rate::new(1);
        assert_eq!(rate.spend(at(10_000)), Ok(()));
        assert_eq!(rate.spend(at(0)), Err(11));
    }
}
