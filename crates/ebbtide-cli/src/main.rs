//! The `ebbtide` command.

mod args;
mod commands;
mod root_key;
mod sweeping;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("EBBTIDE_LOG"))
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Args::parse().command {
        Command::Backup(args) => commands::backup::run(args).await,
        Command::Clock(args) => commands::clock::run(args).await,
        Command::Serve(args) => commands::serve::run(args).await,
        Command::MigrateSchema(args) => commands::migrate_schema::run(args).await,
        Command::Verify(args) => commands::verify::run(args).await,
        Command::Keyring(args) => commands::keyring::run(&args),
        Command::Audit(args) => commands::audit::run(args).await,
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
