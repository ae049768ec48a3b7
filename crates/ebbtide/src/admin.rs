//! Operations that only operators call.

pub(crate) mod by_kind;
