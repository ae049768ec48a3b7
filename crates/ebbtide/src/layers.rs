//! Layers: backends that stand in front of another one.

mod delegate;
pub mod gated;
pub mod metered;
