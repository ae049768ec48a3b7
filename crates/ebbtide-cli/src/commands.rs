//! One file for each command: its arguments (`Args`) and its work (`run`).

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod key;
pub(crate) mod keyring;
pub(crate) mod man;
pub(crate) mod migrate_schema;
pub(crate) mod scope;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod verify;
pub(crate) mod why;
