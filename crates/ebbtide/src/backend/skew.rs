//! How far the node's clock is from the clock of an engine that several nodes share.

use std::time::Duration;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::time::{Clock, Timestamp};

/// The bound beyond which a node does not serve, unless another is set.
pub const DEFAULT_BOUND: Duration = Duration::from_secs(2);

/// How often the engine is asked again where the answer took so long that it proves nothing.
const ATTEMPTS: usize = 3;

/// How far two clocks are apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// How far.
    pub by: Duration,
    /// Whether the node's clock is ahead of the engine's.
    pub node_is_ahead: bool,
    /// How much of it may be the round trip's.
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
}

/// Compares `clock` with the engine's own, and answers `Unavailable` where they are more than `bound` apart: a node
/// whose time is wrong must not serve. None where the engine has no clock to compare with. Each call is one question
/// to the engine, or a few where it is slow: ask at the start and every minute.
pub async fn check_engine_clock(
    backend: &dyn Backend,
    clock: &dyn Clock,
    bound: Duration,
) -> Result<Option<Difference>> {
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
    let Some(difference) = best else { return Ok(None) };
    if difference.by.saturating_sub(difference.uncertainty) > bound {
        return Err(Error::unavailable(format!(
            "the node's clock is {} ms {} the engine's, and {} ms are allowed",
            difference.by.as_millis(),
            if difference.node_is_ahead { "ahead of" } else { "behind" },
            bound.as_millis(),
        )));
    }
    Ok(Some(difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::Memory;
    use crate::time::ManualClock;

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
    }

    #[tokio::test]
    async fn an_engine_without_a_clock_is_not_compared() {
        let clock = ManualClock::at(Timestamp::ZERO);
        assert_eq!(check_engine_clock(&Memory::default(), &clock, DEFAULT_BOUND).await.unwrap(), None);
    }
}
