//! `ebbtide man`

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::output;

/// Write a manual page
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebbtide man | man -l -\n  ebbtide man serve > ebbtide-serve.1")]
pub(crate) struct Args {
    /// Command to describe, such as `serve` or `key create` [default: all of ebbtide]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    let mut name = "ebbtide".to_owned();
    for word in &args.command {
        let Some(inner) = command.find_subcommand(word) else { bail!("{name} has no command {word}") };
        name = format!("{name}-{word}");
        command = inner.clone();
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).title(name).render(&mut page)?;
    output::write_bytes(&page)?;
    Ok(ExitCode::SUCCESS)
}
