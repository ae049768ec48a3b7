//! The clock of a store.

use ebbtide::Timestamp;
use ebbtide::timekeeping::{Accepted, ClockStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of the clock, for an operator. Times are milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClockAnswer {
    /// `normal`, `behind`, `held`, `doubt` or `not-ready`.
    pub state: String,
    pub wall: u64,
    /// The time by which answers are judged; null before it is known.
    pub own: Option<u64>,
    /// Wall clock minus own time.
    pub difference_ms: i64,
    /// Clock of a shared engine minus own time, at least.
    pub engine_difference_ms: Option<i64>,
    /// Width of the interval that the true time is in.
    pub width_ms: u64,
    /// Own time since which the state holds.
    pub since: Option<u64>,
    /// Time until the hold ends, if nothing vouches for the wall clock before.
    pub hold_left_ms: Option<u64>,
    pub summary: String,
    /// Next step for the operator.
    pub advice: Option<String>,
}

impl From<&ClockStatus> for ClockAnswer {
    fn from(status: &ClockStatus) -> Self {
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            state: status.state.name().to_owned(),
            wall: status.wall.as_millis(),
            own: status.own.map(Timestamp::as_millis),
            difference_ms: status.difference_ms,
            engine_difference_ms: status.engine_difference_ms,
            width_ms: millis(status.width),
            since: status.since.map(Timestamp::as_millis),
            hold_left_ms: status.hold_left.map(millis),
            summary: status.summary.clone(),
            advice: status.advice.map(str::to_owned),
        }
    }
}

/// Acceptance of the wall clock. Times are milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClockAccepted {
    /// The store's time before.
    pub from: u64,
    /// The store's time now.
    pub to: u64,
}

impl From<&Accepted> for ClockAccepted {
    fn from(accepted: &Accepted) -> Self {
        Self { from: accepted.from.as_millis(), to: accepted.to.as_millis() }
    }
}
