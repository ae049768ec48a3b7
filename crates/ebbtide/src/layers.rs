//! Layers: backends that stand in front of another one.

pub mod authenticated;
mod delegate;
pub mod gated;
pub mod metered;
