//! One file for each command.

pub(crate) mod serve;
pub(crate) mod verify;
