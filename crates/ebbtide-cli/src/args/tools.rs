//! What the smaller commands take.

use clap::Args as ClapArgs;
use clap_complete::Shell;

use super::At;

#[derive(Debug, ClapArgs)]
#[command(
    long_about = "How many records a store holds, by kind: live, expired but still stored, and for how long.\n\n\
        On DynamoDB this reads the whole table.",
    after_help = "Examples:\n  \
        ebbtide stats --store fjall:/var/lib/ebbtide\n  \
        ebbtide stats --server http://127.0.0.1:7878 --key-file data/root.key --json"
)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) at: At,

    /// Write JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
        ebbtide completions bash > /etc/bash_completion.d/ebbtide\n  \
        ebbtide completions zsh > ~/.zfunc/_ebbtide")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  ebbtide man | man -l -\n  ebbtide man serve > ebbtide-serve.1")]
pub(crate) struct Man {
    /// The page of this command, and not of all: `serve`, or `key create`
    pub(crate) command: Vec<String>,
}
