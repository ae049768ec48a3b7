//! Parts that several stores share.

pub mod belongings;
pub(crate) mod bonds;
pub(crate) mod client_epochs;
pub mod confirmation;
pub mod deletion;
pub(crate) mod epochs;
pub mod extension;
pub(crate) mod fence;
pub(crate) mod field;
pub(crate) mod filtered;
pub(crate) mod finding;
pub mod life;
pub(crate) mod lifetime;
pub(crate) mod owned;
pub mod paging;
pub(crate) mod parents;
pub mod payload;
pub mod refusal;
pub(crate) mod seen_epochs;
pub(crate) mod setters;
pub(crate) mod token;
pub mod tombstones;
pub(crate) mod update;
