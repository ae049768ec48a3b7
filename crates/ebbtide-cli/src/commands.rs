//! One file for each command: its arguments (`Args`) and its work (`run`).

pub(crate) mod approval;
pub(crate) mod attribute;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod belongings;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod import;
#[cfg(feature = "redis")]
mod import_redis;
pub(crate) mod key;
pub(crate) mod keyring;
pub(crate) mod man;
pub(crate) mod migrate_schema;
mod named;
pub(crate) mod owner;
pub(crate) mod policy;
pub(crate) mod record;
pub(crate) mod relationship;
pub(crate) mod restore;
pub(crate) mod scope;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod subject;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod token;
pub(crate) mod usage;
pub(crate) mod verify;
pub(crate) mod why;
