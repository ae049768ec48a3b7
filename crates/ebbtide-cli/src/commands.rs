//! One file for each command.

pub(crate) mod backup;
pub(crate) mod clock;
pub(crate) mod keyring;
pub(crate) mod serve;
pub(crate) mod verify;
