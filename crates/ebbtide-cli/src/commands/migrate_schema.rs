//! `ebbtide migrate-schema`

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::StoreArg;
use crate::output::outln;
use crate::store;

/// Create the schema of a store, or migrate it to the version of this build
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Create the schema of a store, or migrate it to the version of this build.\n\n\
        Safe to run on several nodes at once: one of them migrates, under a lock, and the others find it done. A schema \
        newer than this build is left unchanged. Only PostgreSQL has a schema.",
    after_help = "Example:\n  ebbtide migrate-schema --store 'postgres://ebbtide@db/auth?schema=ebbtide'\n\n\
        Exit status: 0 the schema has the version of this build, 2 the migration failed."
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if !store::has_schema(&args.store.url) {
        bail!("only PostgreSQL has a schema: --store postgres://…");
    }
    outln!("{}", migrate(&args.store.url).await?)?;
    Ok(ExitCode::SUCCESS)
}

/// Migrates the schema to the version of this build, and returns a sentence about the change.
#[cfg(feature = "postgres")]
pub(crate) async fn migrate(url: &str) -> Result<String> {
    use anyhow::Context as _;

    let migrated = ebbtide::engines::postgres::migrate(url).await.context("cannot migrate the schema")?;
    let to = migrated.to;
    Ok(match migrated.from {
        0 => format!("created the schema in version {to}"),
        from if from == to => format!("the schema already has version {to}"),
        from => format!("migrated the schema from version {from} to {to}"),
    })
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "the build with the engine awaits it")]
pub(crate) async fn migrate(url: &str) -> Result<String> {
    store::require_engine(url).map(|()| String::new())
}
