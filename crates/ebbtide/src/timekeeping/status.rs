//! The state of time, for operators: log, readiness, metrics and `clock show`.

use std::time::Duration;

use super::bounds::Micros;
use super::event::{DisplayMicros, NotReady};
use super::machine::{Machine, Phase};
use super::mark::timestamp;
use super::reading::Reading;
use crate::model::time::Timestamp;

/// State of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockState {
    /// Wall and own time agree.
    Normal,
    /// The wall was set back; expiry goes on by the boot-time clock.
    Behind,
    /// Own time is confirmed, and absence is judged by the time before it was.
    Held,
    /// The time is not confirmed: what depends on it is not answered, and nothing is issued.
    Doubt,
    /// Nothing is answered.
    NotReady,
}

impl ClockState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Normal, Self::Behind, Self::Held, Self::Doubt, Self::NotReady];

    /// The name in JSON and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Behind => "behind",
            Self::Held => "held",
            Self::Doubt => "doubt",
            Self::NotReady => "not-ready",
        }
    }
}

/// The clock as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockStatus {
    /// State of the clock.
    pub state: ClockState,
    /// The wall clock.
    pub wall: Timestamp,
    /// Own time; none before it is known.
    pub own: Option<Timestamp>,
    /// Wall minus own time, or minus the mark before own time is known, in milliseconds.
    pub difference_ms: i64,
    /// Engine minus own time, in milliseconds: the least that the last comparison proves.
    pub engine_difference_ms: Option<i64>,
    /// Distance between `earliest` and `latest`.
    pub width: Duration,
    /// Own time since which the state holds, where that is known.
    pub since: Option<Timestamp>,
    /// Time until the hold ends, if nothing vouches for the wall before.
    pub hold_left: Option<Duration>,
    /// Sum of the unvouched adoptions that counts against the 15 minutes.
    pub adopted: Duration,
    /// One sentence on the state.
    pub summary: String,
    /// The step that an operator takes, if there is one.
    pub advice: Option<&'static str>,
}

impl ClockStatus {
    /// State and advice, as one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self.advice {
            Some(advice) => format!("{}; {advice}", self.summary),
            None => self.summary.clone(),
        }
    }
}

impl Machine {
    /// Describes the state at this reading.
    pub(super) fn status(&mut self, at: Reading) -> ClockStatus {
        let observed = self.observe(at);
        let own = self.own(at.boot);
        let known = match self.phase {
            Phase::Running => Some(own),
            Phase::Opening { mark, .. } => mark.map(|mark| mark.own),
        };
        let difference = known.map_or(0, |own| at.wall - own);
        let (width, state) = match observed {
            Ok(now) if !now.is_confirmed() => (now.width(), ClockState::Doubt),
            Ok(now) if self.hold.is_some() => (now.width(), ClockState::Held),
            Ok(now) if self.behind.is_some() => (now.width(), ClockState::Behind),
            Ok(now) => (now.width(), ClockState::Normal),
            Err(NotReady::Closed { width }) => (span(width), ClockState::NotReady),
            Err(_) => (Duration::ZERO, ClockState::NotReady),
        };
        let (summary, advice) = match (observed, state) {
            (Err(reason), _) => (reason.to_string(), Some(reason.advice())),
            (_, ClockState::Doubt) => (self.doubt_summary(at), Some(self.doubt_advice())),
            (_, ClockState::Held) => (
                format!(
                    "own time is held: absence is still judged by the time {} earlier",
                    DisplayMicros(micros(width))
                ),
                Some(
                    "synchronize the wall clock: the hold ends 15 minutes after the kernel reports it, or after a day",
                ),
            ),
            (_, ClockState::Behind) => (
                format!(
                    "the wall clock is {} behind own time; expiry goes on by the boot clock",
                    DisplayMicros(-difference)
                ),
                Some("set the wall clock; nothing is swept until it agrees"),
            ),
            _ => ("wall clock and own time agree".to_owned(), None),
        };
        let since = self.doubt.map(|doubt| doubt.since).or(self.behind);
        ClockStatus {
            state,
            wall: timestamp(at.wall),
            own: matches!(self.phase, Phase::Running).then(|| timestamp(own)),
            difference_ms: difference / 1_000,
            engine_difference_ms: self.engine.map(|engine| -engine.ahead(own, at.boot) / 1_000),
            width,
            since: since.map(timestamp),
            hold_left: self.hold.map(|hold| span(hold.until - at.boot)),
            adopted: span(self.budget.used),
            summary,
            advice,
        }
    }

    fn doubt_summary(&self, at: Reading) -> String {
        let own = self.own(at.boot);
        if self.doubt.is_some() {
            return format!(
                "the wall clock is {} ahead of own time; nothing is issued",
                DisplayMicros(at.wall - own)
            );
        }
        let ahead = self.engine.map_or(0, |engine| engine.ahead(own, at.boot));
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        format!("own time is {} {side} the engine's clock; nothing is issued", DisplayMicros(ahead.abs()))
    }

    fn doubt_advice(&self) -> &'static str {
        if self.shared {
            "synchronize the clocks of this node and of the engine; the doubt ends when they agree"
        } else {
            "set the wall clock; if it is right, run `ebbtide clock accept`"
        }
    }
}

fn span(of: Micros) -> Duration {
    Duration::from_micros(u64::try_from(of).unwrap_or(0))
}

fn micros(of: Duration) -> Micros {
    Micros::try_from(of.as_micros()).unwrap_or(Micros::MAX)
}
