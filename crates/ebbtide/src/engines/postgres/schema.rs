//! Schema: versioned migration steps that run once, under a lock.

use std::ops::RangeInclusive;

use deadpool_postgres::GenericClient as _;
use tokio_postgres::error::SqlState;

use super::link::{Link, explain};
use super::names::Names;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;

/// Kinds whose tables each version of the schema adds, by their codes. A new kind is a new line.
const KINDS: &[RangeInclusive<u8>] = &[1..=25, 26..=63];

/// Schema version of this build.
pub(super) const VERSION: i64 = 2;

/// Result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// Version before; zero if there was no schema.
    pub from: i64,
    /// Version after.
    pub to: i64,
}

/// Statements of every step, in order.
pub(super) fn steps(names: &Names) -> Vec<Vec<String>> {
    let of = |codes: &RangeInclusive<u8>| {
        let kinds = codes.clone().filter_map(Kind::from_code);
        kinds.flat_map(|kind| create(names, kind)).collect()
    };
    KINDS.iter().map(of).collect()
}

fn create(names: &Names, kind: Kind) -> [String; 2] {
    let (table, index) = (names.table(kind), names.expiry_index(kind));
    [
        format!(
            "CREATE TABLE {table} (key bytea PRIMARY KEY, value bytea NOT NULL, version bytea NOT NULL, \
             expires_at bigint NOT NULL, written_at bigint NOT NULL)"
        ),
        format!("CREATE INDEX {index} ON {table} (expires_at)"),
    ]
}

/// Migrates the schema to this build's version. If several processes race, one migrates and the others find it done.
pub(super) async fn migrate(link: &Link, names: &Names) -> Result<Migrated> {
    let mut client = link.lease().await?;
    let transaction = client.transaction().await.map_err(|error| explain(&error))?;
    let outcome = take_steps(&transaction, names).await;
    match outcome {
        Ok(migrated) => {
            transaction.commit().await.map_err(|error| explain(&error))?;
            Ok(migrated)
        }
        Err(error) => {
            let _ = transaction.rollback().await;
            Err(error)
        }
    }
}

async fn take_steps(transaction: &deadpool_postgres::Transaction<'_>, names: &Names) -> Result<Migrated> {
    let run = async |sql: String| transaction.batch_execute(&sql).await.map_err(|error| explain(&error));
    // Other migrations wait for as long as it takes.
    run("SET LOCAL statement_timeout = 0".to_owned()).await?;
    run(format!("SELECT pg_advisory_xact_lock({})", names.lock("migrate"))).await?;
    let there = transaction
        .query_opt("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", &[&names.schema()])
        .await
        .map_err(|error| explain(&error))?;
    if there.is_none() {
        // Create the schema only if it is missing: it takes a privilege that an application's user seldom has.
        run(format!("CREATE SCHEMA {}", names.quoted_schema())).await?;
    }
    let meta = names.meta();
    run(format!("CREATE TABLE IF NOT EXISTS {meta} (name text PRIMARY KEY, value bigint NOT NULL)")).await?;
    let row = transaction.query_opt(&select_version(names), &[]).await.map_err(|error| explain(&error))?;
    let from = row.map_or(0, |row| row.get(0));
    if from > VERSION {
        return Err(newer(from));
    }
    for (number, statements) in (1i64..).zip(steps(names)) {
        if number > from {
            for statement in statements {
                run(statement).await?;
            }
        }
    }
    run(format!(
        "INSERT INTO {meta} (name, value) VALUES ('schema_version', {VERSION}) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    ))
    .await?;
    Ok(Migrated { from, to: VERSION })
}

/// Refuses a schema of another version than this build's.
pub(super) async fn check(link: &Link, names: &Names) -> Result<()> {
    let client = link.lease().await?;
    let found = match client.query_opt(&select_version(names), &[]).await {
        Ok(row) => row.map(|row| row.get::<_, i64>(0)),
        Err(error) => match error.code() {
            Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME => {
                None
            }
            _ => return Err(explain(&error)),
        },
    };
    match found {
        Some(VERSION) => Ok(()),
        Some(found) if found > VERSION => Err(newer(found)),
        Some(found) => Err(Error::invalid(format!(
            "the store's schema has version {found}; this build needs {VERSION}; \
             run ebbtide migrate-schema --store URL"
        ))),
        None => Err(Error::invalid("the store has no schema; run ebbtide migrate-schema --store URL")),
    }
}

fn newer(found: i64) -> Error {
    Error::invalid(format!(
        "the store's schema has version {found}; this build supports {VERSION}; use a newer build"
    ))
}

fn select_version(names: &Names) -> String {
    format!("SELECT value FROM {} WHERE name = 'schema_version'", names.meta())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_table() {
        let names = Names::new("s", "").unwrap();
        assert_eq!(i64::try_from(KINDS.len()).unwrap(), VERSION, "a new line of KINDS is a new version");
        let all = steps(&names).concat().join("\n");
        for &kind in Kind::ALL {
            let table = format!("CREATE TABLE {} ", names.table(kind));
            assert_eq!(all.matches(&table).count(), 1, "{kind}: a new kind is a new line of KINDS");
        }
    }
}
