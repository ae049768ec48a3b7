//! Parts that several stores share.

pub mod extension;
pub(crate) mod field;
pub(crate) mod finding;
pub mod indexes;
pub(crate) mod lifetime;
pub mod paging;
pub mod payload;
pub(crate) mod token;
pub mod tombstones;
pub(crate) mod update;
