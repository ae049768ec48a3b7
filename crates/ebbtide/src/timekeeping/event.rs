//! Changes of the state of time, and the reasons not to serve.

use std::fmt;

use super::bounds::{Micros, SECOND};
use crate::model::error::Error;
use crate::model::time::Timestamp;

/// The authority by which own time was moved to the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Voucher {
    /// The clock of a shared engine agrees with the wall.
    Engine,
    /// The kernel says that the wall is synchronized.
    Kernel,
    /// Nobody: the difference stayed the same for 10 s, as after a pause of the machine.
    Nobody,
    /// An operator accepted it.
    Operator,
}

impl Voucher {
    /// The name in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Kernel => "kernel",
            Self::Nobody => "nobody",
            Self::Operator => "operator",
        }
    }
}

/// A change of the state of time. Times are own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Own time is known.
    Opened {
        /// Own time.
        at: Timestamp,
        /// True if `earliest` is held back.
        held: bool,
        /// Set if the wall reached the mark by waiting: the fence must be set before the first answer.
        fence: Option<Timestamp>,
    },
    /// The wall went ahead of own time.
    DoubtBegan {
        /// Own time.
        at: Timestamp,
        /// Microseconds by which it is ahead.
        by: i64,
    },
    /// The wall agrees with own time again.
    DoubtEnded {
        /// Own time.
        at: Timestamp,
    },
    /// Own time was moved to the wall. This is audited.
    Adopted {
        /// Own time before.
        from: Timestamp,
        /// Own time after.
        to: Timestamp,
        /// The authority for it.
        voucher: Voucher,
    },
    /// The wall was set back. Expiry goes on.
    WallBehind {
        /// Own time.
        at: Timestamp,
        /// Microseconds by which it is behind.
        by: i64,
    },
    /// The wall is no longer behind.
    WallBack {
        /// Own time.
        at: Timestamp,
    },
    /// `earliest` is own time again.
    HoldEnded {
        /// Own time.
        at: Timestamp,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { held: false, .. } => write!(f, "the clock is set"),
            Self::Opened { held: true, .. } => {
                write!(f, "the clock is set from the wall clock and held until it is confirmed")
            }
            Self::DoubtBegan { by, .. } => {
                write!(f, "the wall clock is {} ahead of own time; nothing is issued", DisplayMicros(*by))
            }
            Self::DoubtEnded { .. } => write!(f, "the wall clock agrees with own time again"),
            Self::Adopted { from, to, voucher } => {
                write!(f, "own time moved from {from} to {to}; vouched for by: {}", voucher.name())
            }
            Self::WallBehind { by, .. } => {
                write!(
                    f,
                    "the wall clock is {} behind own time; expiry goes on by the boot clock",
                    DisplayMicros(*by)
                )
            }
            Self::WallBack { .. } => write!(f, "the wall clock is no longer behind own time"),
            Self::HoldEnded { .. } => write!(f, "the clock is no longer held"),
        }
    }
}

/// The outcome of `clock accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "where own time went back, the fence must be set before the next answer"]
#[non_exhaustive]
pub struct Accepted {
    /// Own time before; on an opening, the mark's.
    pub from: Timestamp,
    /// Own time now.
    pub to: Timestamp,
    /// Set if own time went back: nothing issued before this, or dated after it, may be honoured.
    pub fence: Option<Timestamp>,
}

/// The reason why nothing is answered, or nothing swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotReady {
    /// The wall is behind the mark of a store that was opened after a reboot or on another machine.
    BehindMark { by: Micros },
    /// The wall is ahead of that mark by more than is believed.
    FarAhead { by: Micros },
    /// The wall fell behind own time, which was taken from it.
    BehindInHold { by: Micros },
    /// The interval is too wide.
    Closed { width: Micros },
    /// The engine's clock has not been compared.
    NoEngineClock,
    /// The engine's clock is not the wall's.
    EngineDisagrees { ahead: Micros },
    /// Only sweeps are refused.
    NoSweep { difference: Micros },
}

impl NotReady {
    /// The step that an operator takes.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::BehindMark { .. } => {
                "set the wall clock, or wait until it has passed the mark; if it is right, run `ebbtide clock accept`"
            }
            Self::FarAhead { .. } => "check the wall clock; if it is right, run `ebbtide clock accept`",
            Self::BehindInHold { .. } => {
                "set the wall clock; if it is right now, run `ebbtide clock accept`, which sets a fence"
            }
            Self::Closed { .. } => "synchronize the wall clock; if it is right, run `ebbtide clock accept`",
            Self::NoEngineClock => "restore the connection to the engine",
            Self::EngineDisagrees { .. } => "synchronize the clocks of this node and of the engine",
            Self::NoSweep { .. } => "synchronize the wall clock; sweeps resume by themselves",
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BehindMark { by } => {
                write!(f, "the wall clock is {} behind the store's clock mark", DisplayMicros(by))
            }
            Self::FarAhead { by } => {
                write!(
                    f,
                    "the wall clock is {} ahead of the store's clock mark, and 31 days are believed",
                    DisplayMicros(by)
                )
            }
            Self::BehindInHold { by } => {
                write!(f, "the wall clock fell {} behind own time before it was confirmed", DisplayMicros(by))
            }
            Self::Closed { width } => write!(f, "the clock is in doubt by {}", DisplayMicros(width)),
            Self::NoEngineClock => f.write_str("the engine's clock has not been compared recently"),
            Self::EngineDisagrees { ahead } => {
                let side = if ahead > 0 { "ahead of" } else { "behind" };
                write!(f, "the wall clock is {} {side} the engine's clock", DisplayMicros(ahead.abs()))
            }
            Self::NoSweep { difference } => {
                write!(
                    f,
                    "wall clock and own time differ by {}; nothing is swept",
                    DisplayMicros(difference.abs())
                )
            }
        }
    }
}

impl NotReady {
    /// The error of a request. No `From`: a second one for `Error` would leave `?` in async blocks without a type.
    pub(super) fn into_error(self) -> Error {
        Error::unavailable(format!("{self}; {}", self.advice()))
    }
}

/// A duration in microseconds, in the two largest units that matter.
pub(super) struct DisplayMicros(pub(super) Micros);

impl fmt::Display for DisplayMicros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / SECOND;
        let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
        if days > 0 {
            write!(f, "{days} d {} h", hours % 24)
        } else if hours > 0 {
            write!(f, "{hours} h {} min", minutes % 60)
        } else if minutes > 0 {
            write!(f, "{minutes} min {} s", seconds % 60)
        } else {
            write!(f, "{seconds}.{:03} s", self.0 % SECOND / 1_000)
        }
    }
}
