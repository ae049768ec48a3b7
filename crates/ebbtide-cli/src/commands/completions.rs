//! `ebbtide completions`

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

/// Write a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        ebbtide completions bash > /etc/bash_completion.d/ebbtide\n  \
        ebbtide completions zsh > ~/.zfunc/_ebbtide")]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Into memory first: `generate` panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ebbtide", &mut script);
    output::write_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
