//! One file for each command.

pub(crate) mod serve;
#[cfg(feature = "dynamodb")]
pub(crate) mod table;
pub(crate) mod verify;
