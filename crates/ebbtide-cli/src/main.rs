//! The `ebbtide` command.

mod args;
mod client;
mod commands;
mod config;
mod logging;
mod root_key;
mod sweeping;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

/// What one thread allocates another frees, for every request: the system's allocator takes a seventh of the rate there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let command = Args::parse().command;
    if !matches!(command, Command::Serve(_)) {
        logging::start_plain();
    }
    let outcome = match command {
        Command::Backup(args) => commands::backup::run(args).await,
        Command::Clock(args) => commands::clock::run(args).await,
        Command::Serve(args) => commands::serve::run(args).await,
        Command::Config(args) => Ok(commands::config::run(&args)),
        Command::Stats(args) => commands::stats::run(args).await,
        Command::Completions(args) => Ok(commands::help::completions(&args)),
        Command::Man(args) => commands::help::man(&args),
        Command::MigrateSchema(args) => commands::migrate_schema::run(args).await,
        Command::Verify(args) => commands::verify::run(args).await,
        Command::Keyring(args) => commands::keyring::run(&args),
        Command::Audit(args) => commands::audit::run(args).await,
        Command::Key(args) => commands::key::run(args).await,
        Command::Scope(args) => commands::scope::run(args).await,
        Command::Explain(args) => commands::explain::run(args).await,
        Command::Import(args) => commands::import::run(args).await,
        Command::Export(args) => commands::export::run(args).await,
        Command::Copy(args) => commands::copy::run(args).await,
        Command::Sweep(args) => commands::sweep::run(args).await,
        #[cfg(feature = "dynamodb")]
        Command::Table(args) => commands::table::run(args).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("ebbtide: {error:#}");
        ExitCode::from(2)
    })
}
