//! The `ebbtide` command. A library, so that it compiles beside the server rather than after it; it has no other users.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic on a closed pipe: use `outln!`, `errln!`"
)]

mod args;
mod cli;
mod client;
mod commands;
mod config;
mod logging;
mod operator;
mod output;
mod root_key;
mod store;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;
use crate::output::{ClosedPipe, errln};

/// Runs the command that the arguments of the process ask for.
pub async fn main() -> ExitCode {
    Cli::parse().run().await.unwrap_or_else(|error| {
        if error.is::<ClosedPipe>() {
            return ExitCode::from(ClosedPipe::STATUS);
        }
        errln!("ebbtide: {error:#}");
        ExitCode::from(2)
    })
}
