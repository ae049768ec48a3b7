//! `ebbtide completions` and `ebbtide man`

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::CommandFactory as _;

use crate::args::{Args, Completions, Man};

pub(crate) fn completions(args: &Completions) -> ExitCode {
    clap_complete::generate(args.shell, &mut Args::command(), "ebbtide", &mut io::stdout());
    ExitCode::SUCCESS
}

pub(crate) fn man(args: &Man) -> Result<ExitCode> {
    let mut command = Args::command();
    command.build();
    let mut name = "ebbtide".to_owned();
    for word in &args.command {
        let Some(inner) = command.find_subcommand(word) else { bail!("{name} has no command {word}") };
        name = format!("{name}-{word}");
        command = inner.clone();
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).title(name).render(&mut page)?;
    io::stdout().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}
