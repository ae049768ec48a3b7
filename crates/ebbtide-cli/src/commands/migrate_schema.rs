//! `ebbtide migrate-schema`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::args::StoreArg;
use crate::config::duration;
use crate::output::outln;
use crate::store;

/// Create the schema of a store, or migrate it to the version of this build
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Create the schema of a store, or migrate it to the version of this build.\n\n\
        Safe to run on several nodes at once: one of them migrates, under a lock, and the others find it done. Nodes of \
        the version before go on serving. A schema newer than this build is left unchanged: it is a success if this \
        build can use it. Only PostgreSQL has a schema.",
    after_help = "Examples:\n  ebbtide migrate-schema --store 'postgres://ebbtide@db/auth?schema=ebbtide'\n  \
        ebbtide migrate-schema --store 'postgres://ebbtide@db/auth' --wait 5m\n\n\
        Exit status: 0 this build can use the schema, 2 the migration failed."
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArg,

    /// Wait for the database this long if it cannot be reached, such as 30s or 5m; for an init step [default: 5m if
    /// given without a time]
    #[arg(long, value_name = "TIME", value_parser = duration, num_args = 0..=1, default_missing_value = "5m")]
    wait: Option<Duration>,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if !store::has_schema(&args.store.url) {
        bail!("only PostgreSQL has a schema: --store postgres://…");
    }
    outln!("{}", patiently(&args.store.url, args.wait.unwrap_or_default()).await?)?;
    Ok(ExitCode::SUCCESS)
}

/// Migrates the schema to the version of this build, and returns a sentence about the change.
pub(crate) async fn migrate(url: &str) -> Result<String> {
    patiently(url, Duration::ZERO).await
}

/// Migrates the schema; tries again for so long while the database cannot be reached.
#[cfg(feature = "postgres")]
async fn patiently(url: &str, wait: Duration) -> Result<String> {
    use anyhow::Context as _;
    use ebbtide::engines::postgres;
    use ebbtide::{ErrorKind, Stopwatch};

    /// Interval between two attempts.
    const AGAIN: Duration = Duration::from_secs(1);

    let stopwatch = Stopwatch::start();
    let mut told = false;
    let migrated = loop {
        match postgres::migrate(url).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && stopwatch.elapsed() + AGAIN <= wait => {
                if !std::mem::replace(&mut told, true) {
                    crate::output::errln!("waiting for the database: {error}");
                }
                tokio::time::sleep(AGAIN).await;
            }
            outcome => break outcome.context("cannot migrate the schema")?,
        }
    };
    let to = migrated.to;
    Ok(match migrated.from {
        0 => format!("created the schema in version {to}"),
        from if from == to => format!("the schema already has version {to}"),
        from => format!("migrated the schema from version {from} to {to}"),
    })
}

#[cfg(not(feature = "postgres"))]
#[expect(clippy::unused_async, reason = "the build with the engine awaits it")]
async fn patiently(url: &str, _: Duration) -> Result<String> {
    store::require_engine(url).map(|()| String::new())
}
