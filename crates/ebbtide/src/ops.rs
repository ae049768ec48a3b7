//! Operations on a whole store: sweeping, the clock, explanations, transfer.

pub mod clock_guard;
pub mod explain;
pub mod reseal;
pub mod restore;
pub mod ring;
pub mod skew;
pub mod sweeper;
pub mod transfer;
