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
mod import_redis;
pub(crate) mod key;
pub(crate) mod keyring;
pub(crate) mod man;
pub(crate) mod migrate_schema;
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

use std::process::ExitCode;

use anyhow::Result;

use crate::operator::Answer;
use crate::output::{errln, outln, when};

/// Writes the answer to an extension. The exit status is 1 if nothing was extended.
fn extended(answer: Answer, what: &str, json: bool) -> Result<ExitCode> {
    if answer.status == 404 && answer.body["title"] == "unknown" {
        errln!("no such {what}");
        return Ok(ExitCode::from(1));
    }
    match answer.or_conflict()? {
        Ok(extended) if json => outln!("{extended}")?,
        Ok(extended) => outln!("extended, ends {}", when(extended["expires_at"].as_u64()))?,
        Err(refused) => {
            errln!("{refused}");
            return Ok(ExitCode::from(1));
        }
    }
    Ok(ExitCode::SUCCESS)
}
