//! The `ebbtide` command.

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

/// A request's memory is allocated by one thread and freed by another; the system allocator costs a seventh of the
/// rate there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    Cli::parse().run().await.unwrap_or_else(|error| {
        if error.is::<ClosedPipe>() {
            return ExitCode::from(ClosedPipe::STATUS);
        }
        errln!("ebbtide: {error:#}");
        ExitCode::from(2)
    })
}
