//! Operations on a whole store: sweeping, explanations, transfer.

pub mod cleanup;
pub mod explain;
pub mod reseal;
pub mod ring;
pub mod sweeper;
pub mod transfer;
