//! Skew between the node's clock and the clock of an engine that several nodes share.

use std::time::Duration;

use crate::admin::Admin;
use crate::model::error::{Error, Result};
use crate::model::time::{Clock, Timestamp};

/// Default bound beyond which a node does not serve.
pub const DEFAULT_BOUND: Duration = Duration::from_secs(2);

/// Number of attempts if the round trip is too slow to tell the skew.
const ATTEMPTS: usize = 3;

/// Difference between two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// Absolute difference.
    pub by: Duration,
    /// True if the node's clock is ahead of the engine's.
    pub node_is_ahead: bool,
    /// Part of the difference that the round trip may account for.
    pub uncertainty: Duration,
}

impl Difference {
    fn between(before: Timestamp, engine: Timestamp, after: Timestamp) -> Self {
        let uncertainty = after.since(before) / 2;
        let node = before.as_millis().midpoint(after.as_millis().max(before.as_millis()));
        Self {
            by: Duration::from_millis(node.abs_diff(engine.as_millis())),
            node_is_ahead: node > engine.as_millis(),
            uncertainty,
        }
    }

    /// Returns `Unavailable` if the clocks differ by more than `bound` even after allowing for the round trip. A node
    /// with a wrong clock must not serve.
    pub fn check(&self, bound: Duration) -> Result<()> {
        if self.by.saturating_sub(self.uncertainty) <= bound {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "the node's clock is {} ms {} the engine's; the bound is {} ms",
            self.by.as_millis(),
            if self.node_is_ahead { "ahead of" } else { "behind" },
            bound.as_millis(),
        )))
    }

    /// Difference in seconds, negative if the node's clock is behind.
    #[must_use]
    pub fn as_secs_f64(&self) -> f64 {
        if self.node_is_ahead { self.by.as_secs_f64() } else { -self.by.as_secs_f64() }
    }
}

/// Compares `clock` with the engine's clock, and returns `Unavailable` if they differ by more than `bound`. Returns
/// `None` if the engine has no clock.
pub async fn check_engine_clock(
    backend: &dyn Admin,
    clock: &dyn Clock,
    bound: Duration,
) -> Result<Option<Difference>> {
    let difference = compare(backend, clock, bound).await?;
    difference.map_or(Ok(()), |difference| difference.check(bound))?;
    Ok(difference)
}

/// Measures the skew of `clock` against the engine's clock, precisely enough to compare it with `bound`. Returns
/// `None` if the engine has no clock. Each call is one request to the engine, or a few if it is slow: call it at
/// start and every minute.
pub async fn compare(backend: &dyn Admin, clock: &dyn Clock, bound: Duration) -> Result<Option<Difference>> {
    let mut best: Option<Difference> = None;
    for _ in 0..ATTEMPTS {
        let before = clock.now();
        let Some(engine) = backend.engine_clock().await? else { return Ok(None) };
        let difference = Difference::between(before, engine, clock.now());
        best = best.filter(|best| best.uncertainty <= difference.uncertainty).or(Some(difference));
        if difference.uncertainty < bound / 4 {
            break;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::memory::Memory;
    use crate::model::time::ManualClock;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn the_round_trip_is_allowed_for() {
        let difference = Difference::between(at(1_000), at(1_000), at(2_000));
        assert_eq!(difference.by, Duration::from_millis(500));
        assert_eq!(difference.uncertainty, Duration::from_millis(500));
        assert!(difference.node_is_ahead);
        assert!(!Difference::between(at(0), at(10), at(0)).node_is_ahead);
        assert!(difference.check(Duration::ZERO).is_ok(), "all of it may be the round trip's");
    }

    #[test]
    fn beyond_the_bound_is_refused_on_either_side() {
        for (node, engine, seconds) in [(13_000, 10_000, 3.0), (10_000, 13_000, -3.0)] {
            let difference = Difference::between(at(node), at(engine), at(node));
            assert!((difference.as_secs_f64() - seconds).abs() < 1e-9);
            assert!(difference.check(Duration::from_secs(3)).is_ok());
            assert!(
                difference.check(Duration::from_millis(2_999)).unwrap_err().message().contains("3000 ms")
            );
        }
    }

    #[tokio::test]
    async fn an_engine_without_a_clock_is_not_compared() {
        let clock = ManualClock::at(Timestamp::ZERO);
        assert_eq!(check_engine_clock(&Memory::default(), &clock, DEFAULT_BOUND).await.unwrap(), None);
    }
}
