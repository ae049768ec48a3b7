//! One file for each command.

pub(crate) mod migrate_schema;
pub(crate) mod serve;
pub(crate) mod verify;
