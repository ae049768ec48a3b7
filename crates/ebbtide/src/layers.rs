//! Layers: backends that stand in front of another one.

pub mod authenticated;
mod delegate;
mod handle;
pub mod metered;
