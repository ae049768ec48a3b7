//! `ebbtide migrate-schema`

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::args::MigrateSchema;

pub(crate) async fn run(args: MigrateSchema) -> Result<ExitCode> {
    if !has_schema(&args.store) {
        bail!("only PostgreSQL has a schema: postgres://…");
    }
    println!("{}", migrate(&args.store).await?);
    Ok(ExitCode::SUCCESS)
}

/// Whether the engine of this store has a schema.
pub(crate) fn has_schema(url: &str) -> bool {
    ["postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme))
}

/// Brings the schema to this build's version, and says what was done.
#[cfg(feature = "postgres")]
pub(crate) async fn migrate(url: &str) -> Result<String> {
    use anyhow::Context as _;

    let migrated = ebbtide::engines::postgres::migrate(url).await.context("the schema cannot be migrated")?;
    let to = migrated.to;
    Ok(match migrated.from {
        0 => format!("the schema was made, in version {to}"),
        from if from == to => format!("the schema has version {to} already"),
        from => format!("the schema was brought from version {from} to {to}"),
    })
}

#[cfg(not(feature = "postgres"))]
pub(crate) async fn migrate(_: &str) -> Result<String> {
    bail!("this build has no postgres engine: build it with that feature")
}
