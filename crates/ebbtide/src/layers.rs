//! Layers: backends that stand in front of another one.

mod delegate;
mod handle;
pub mod metered;
