//! One file for each command.

pub(crate) mod backup;
pub(crate) mod clock;
pub(crate) mod serve;
pub(crate) mod verify;
