//! What the command line takes.

use std::net::SocketAddr;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// A store for authorization state that must expire.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None, propagate_version = true)]
#[command(after_help = "Exit status: 0 done, 1 the answer is no, 2 the command could not be carried out.")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the HTTP API
    Serve(Serve),
    /// Check that a store keeps the contract: one line per case, exit status 0 or 1
    Verify(Verify),
    /// Make a table of DynamoDB for a store, and look at it
    #[cfg(feature = "dynamodb")]
    #[command(subcommand)]
    Table(Table),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  ebbtide serve --listen 127.0.0.1:7878 --store memory:")]
pub(crate) struct Serve {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, env = "EBBTIDE_LISTEN", default_value = "127.0.0.1:7878")]
    pub(crate) listen: SocketAddr,

    /// The store to serve
    #[arg(
        long,
        env = "EBBTIDE_STORE",
        value_name = "URL",
        default_value = "memory:",
        hide_env_values = true
    )]
    pub(crate) store: String,
}

#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Check that a store keeps the contract.\n\n\
        Runs the whole conformance kit against a live store: conditions, expiry at the instant, races, scans, \
        sweeps, scopes, and a random run compared with a model. It writes only records of its own kinds, in a time \
        of its own, and removes them afterwards; what the store holds is neither read nor changed. Run one at a \
        time on one store.",
    after_help = "Examples:\n  \
        ebbtide verify --store memory:\n  \
        ebbtide verify --store memory: --filter races::\n\n\
        Exit status: 0 every case passed, 1 one did not, 2 the store could not be opened."
)]
pub(crate) struct Verify {
    /// The store to check
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,

    /// Run only the cases with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,

    /// The seed of the random runs, to repeat one that failed
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[cfg(feature = "dynamodb")]
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  ebbtide table create --store 'dynamodb:ebbtide?region=eu-west-1'")]
pub(crate) enum Table {
    /// Make the table unless it is there: on-demand, with TTL and point-in-time recovery
    Create(TableStore),
    /// Show the table; exit status 1 if it is missing or not as a store needs it
    Describe(TableStore),
    /// Have the engine delete what has expired
    EnableTtl(TableStore),
}

#[cfg(feature = "dynamodb")]
#[derive(Debug, ClapArgs)]
pub(crate) struct TableStore {
    /// The store: dynamodb:TABLE?region=…&endpoint=…
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: String,
}
