//! Time that fails closed: the interval of a request, its source, and the handle over a backend.
//!
//! A request takes one [`Now`] from a [`TimeSource`]. In normal running it is one instant. While the clock is in doubt
//! it is an interval, and no answer permits wrongly for any true time in it.
//!
//! | module | contents |
//! |---|---|
//! | `now` | [`Now`]: `before` and `end`, the only ways to compare and to make an end |
//! | `timed` | [`Timed`]: the handle over a backend that takes one instant |
//! | `source` | [`TimeSource`]: the clocks behind the rules, with a path without locks for normal running |
//! | `machine`, `opening` | the rules as a state machine that is handed readings |
//! | `anchor`, `engine`, `published` | own time and its slew; comparisons with the engine's clock; the state without locks |
//! | `mark`, `marks` | [`Mark`]: the time that a store remembers, with its encoding; reading and writing it |
//! | `reading`, `system`, `manual` | [`Clocks`]; those of this machine, [`SystemClocks`]; [`ManualClocks`] for tests |
//! | `event`, `status` | changes of state for log and audit; the state for operators |

mod anchor;
mod bounds;
mod engine;
mod event;
mod machine;
mod manual;
mod mark;
mod marks;
mod now;
mod opening;
mod published;
mod reading;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod simulation;
mod source;
mod status;
mod system;
mod timed;

pub use event::{Accepted, Event, Voucher};
pub use manual::ManualClocks;
pub use mark::{BootId, Mark};
pub use now::Now;
pub use reading::Clocks;
pub use source::{EngineClock, EngineQuestion, Lease, TimeSource};
pub use status::{ClockState, ClockStatus};
pub use system::{SYNCHRONIZED_FILE, SystemClocks};
pub use timed::{Timed, TimedCommit};
