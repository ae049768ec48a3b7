//! One file for each command.

pub(crate) mod audit;
pub(crate) mod copy;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod serve;
pub(crate) mod verify;
