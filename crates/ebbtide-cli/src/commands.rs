//! One file for each command.

pub(crate) mod keyring;
pub(crate) mod serve;
pub(crate) mod verify;
