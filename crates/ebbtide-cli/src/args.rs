//! What the command line takes.

use std::net::SocketAddr;

use clap::builder::BoolishValueParser;
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
    /// Make a store's schema, or bring it to this build's version
    MigrateSchema(MigrateSchema),
    /// Check that a store keeps the contract: one line per case, exit status 0 or 1
    Verify(Verify),
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

    /// Bring the store's schema to this build's version before serving
    #[arg(long, env = "EBBTIDE_AUTO_MIGRATE", value_parser = BoolishValueParser::new())]
    pub(crate) auto_migrate: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    long_about = "Make a store's schema, or bring it to this build's version.\n\n\
        Done once: of several at a time one does it, under a lock, and the others find it done. A schema that is \
        newer than this build is left alone. Only PostgreSQL has a schema.",
    after_help = "Example:\n  ebbtide migrate-schema --store 'postgres://ebbtide@db/auth?schema=ebbtide'\n\n\
        Exit status: 0 the schema has this build's version, 2 it could not be brought to it."
)]
pub(crate) struct MigrateSchema {
    /// The store
    #[arg(long, env = "EBBTIDE_STORE", value_name = "URL", hide_env_values = true)]
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
