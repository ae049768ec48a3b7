//! Parts that several stores share.

pub mod deletion;
pub mod extension;
pub(crate) mod field;
pub(crate) mod filtered;
pub(crate) mod finding;
pub(crate) mod lifetime;
pub mod paging;
pub mod payload;
pub(crate) mod setters;
pub(crate) mod token;
pub mod tombstones;
pub(crate) mod update;
