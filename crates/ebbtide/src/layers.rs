//! Layers: backends that stand in front of another one.

pub mod gated;
pub mod metered;
