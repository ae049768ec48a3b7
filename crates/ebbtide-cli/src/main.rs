//! The `ebbtide` command.

mod args;
mod commands;

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
        Command::Serve(args) => commands::serve::run(args).await,
        Command::MigrateSchema(args) => commands::migrate_schema::run(args).await,
        Command::Verify(args) => commands::verify::run(args).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("ebbtide: {error:#}");
        ExitCode::from(2)
    })
}
