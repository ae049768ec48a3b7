//! Schema: versioned migration steps that run once, under a lock. A new store is made in one transaction; a store that
//! serves is changed table by table (`expand`).

use std::ops::RangeInclusive;
use std::time::Duration;

use deadpool_postgres::GenericClient as _;
use tokio::time::sleep;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::expand;
use super::link::Link;
use super::names::Names;
use super::params::{column, only};
use super::wire::explain;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;

/// A version of the schema.
struct SchemaStep {
    /// Codes of the kinds whose tables it adds or changes.
    kinds: &'static [RangeInclusive<u8>],
    /// Changes of the table of a kind. Each can be made again: a migration that was interrupted starts over.
    changes: fn(&Names, Kind) -> Vec<Change>,
    /// Oldest build, by its own version, that can use a store of this one. An *expand* step, such as a table or a
    /// column with a default, keeps that of the step before: nodes of both builds serve side by side. What older builds
    /// need goes in a *contract* step, of a later release, which raises it.
    min_compatible: i64,
}

/// Change of a table.
pub(super) enum Change {
    /// Statement that takes a lock for a moment, whatever the size of the table.
    Brief(String),
    /// Index on a column, which is built beside writers.
    Index { name: String, table: String, column: &'static str },
    /// Index that goes.
    Drop { name: String },
}

/// Versions of the schema, from 1. A new kind is a new line.
const STEPS: &[SchemaStep] = &[
    SchemaStep { kinds: &[1..=25], changes: create, min_compatible: 1 },
    SchemaStep { kinds: &[26..=30, 40..=41], changes: create, min_compatible: 1 },
    SchemaStep { kinds: &[1..=30, 40..=41], changes: add_due, min_compatible: 1 },
];

/// Schema version of this build.
pub(super) const VERSION: i64 = 3;

/// Pause of a migration that finds another at work.
const AGAIN: Duration = Duration::from_millis(200);

/// Names of the values in the table of the schema version.
const VERSION_NAME: &str = "schema_version";
const MIN_COMPATIBLE: &str = "min_compatible";

/// Result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// Version before; zero if there was no schema.
    pub from: i64,
    /// Version after.
    pub to: i64,
}

/// Changes of every step, in order, by table.
pub(super) fn steps(names: &Names) -> Vec<Vec<Vec<Change>>> {
    let of = |step: &SchemaStep| {
        let kinds = step.kinds.iter().cloned().flatten().filter_map(Kind::from_code);
        kinds.map(|kind| (step.changes)(names, kind)).collect()
    };
    STEPS.iter().map(of).collect()
}

impl Change {
    /// Statement that makes the change in a transaction.
    pub(super) fn statement(&self, names: &Names) -> String {
        self.text(names, "")
    }

    pub(super) fn text(&self, names: &Names, way: &str) -> String {
        match self {
            Self::Brief(text) => text.clone(),
            Self::Index { name, table, column } => {
                format!("CREATE INDEX {way}IF NOT EXISTS {name} ON {table} ({column})")
            }
            Self::Drop { name } => format!("DROP INDEX {way}IF EXISTS {}.{name}", names.quoted_schema()),
        }
    }
}

fn create(names: &Names, kind: Kind) -> Vec<Change> {
    let (table, name) = (names.table(kind), names.expiry_index(kind));
    vec![
        Change::Brief(format!(
            "CREATE TABLE IF NOT EXISTS {table} (key bytea PRIMARY KEY, value bytea NOT NULL, \
             version bytea NOT NULL, expires_at bigint NOT NULL, written_at bigint NOT NULL)"
        )),
        Change::Index { name, table, column: "expires_at" },
    ]
}

/// Adds the time at which a sweep looks at a row, and an index on it in the place of the one on the expiry: an update that
/// changes no indexed column is a HOT one, if its page has room. Rows that are there, and those that older builds write,
/// are looked at by the next sweep, which puts their time right. No table is rewritten.
fn add_due(names: &Names, kind: Kind) -> Vec<Change> {
    let table = names.table(kind);
    let mut brief = format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS due_at bigint NOT NULL DEFAULT 0");
    // Proofs are written once.
    if kind != Kind::Replay {
        brief = format!("{brief}; ALTER TABLE {table} SET (fillfactor = 90)");
    }
    vec![
        Change::Brief(brief),
        Change::Index { name: names.due_index(kind), table, column: "due_at" },
        Change::Drop { name: names.expiry_index(kind) },
    ]
}

/// Migrates the schema to this build's version. If several processes race, one migrates and the others find it done.
pub(super) async fn migrate(link: &Link, names: &Names) -> Result<Migrated> {
    let mut client = link.lease().await?;
    // A user who may create nothing runs it too, if there is nothing to do.
    if let Some(found) = found(&client, names).await?.filter(|found| found.version >= VERSION) {
        found.check()?;
        return Ok(Migrated { from: found.version, to: found.version });
    }
    loop {
        let transaction = client.transaction().await.map_err(|error| explain(&error))?;
        let outcome = match lock(&transaction, names).await {
            Ok(true) => take_steps(link, &transaction, names).await.map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Some(migrated)) => {
                transaction.commit().await.map_err(|error| explain(&error))?;
                return Ok(migrated);
            }
            Ok(None) => {
                let _ = transaction.rollback().await;
                sleep(AGAIN).await;
            }
            Err(error) => {
                let _ = transaction.rollback().await;
                return Err(error);
            }
        }
    }
}

/// Takes the lock of migrations, for as long as the transaction. It waits for nothing: building an index waits for every
/// statement that was there before it, one that waits for this lock included.
async fn lock(transaction: &deadpool_postgres::Transaction<'_>, names: &Names) -> Result<bool> {
    let settings = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
                    SET LOCAL idle_in_transaction_session_timeout = 0";
    transaction.batch_execute(settings).await.map_err(|error| explain(&error))?;
    let number = names.lock("migrate");
    let taken = transaction
        .query_typed("SELECT pg_try_advisory_xact_lock($1)", &[(&number, Type::INT8)])
        .await
        .map_err(|error| explain(&error))?;
    column(only(&taken)?, 0)
}

async fn take_steps(
    link: &Link,
    transaction: &deadpool_postgres::Transaction<'_>,
    names: &Names,
) -> Result<Migrated> {
    let run = async |sql: String| transaction.batch_execute(&sql).await.map_err(|error| explain(&error));
    let there = transaction
        .query_typed(
            "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1",
            &[(&names.schema(), Type::TEXT)],
        )
        .await
        .map_err(|error| explain(&error))?;
    if there.is_empty() {
        // Create the schema only if it is missing: it takes a privilege that an application's user seldom has.
        run(format!("CREATE SCHEMA {}", names.quoted_schema())).await?;
    }
    let meta = names.meta();
    run(format!("CREATE TABLE IF NOT EXISTS {meta} (name text PRIMARY KEY, value bigint NOT NULL)")).await?;
    let rows =
        transaction.query_typed(&select_versions(names), &[]).await.map_err(|error| explain(&error))?;
    let found = Found::read(&rows)?;
    let from = found.as_ref().map_or(0, |found| found.version);
    if let Some(found) = found.filter(|found| found.version > VERSION) {
        found.check()?;
        return Ok(Migrated { from, to: from });
    }
    let tables =
        (1i64..).zip(steps(names)).filter(|(number, _)| *number > from).flat_map(|(_, tables)| tables);
    if from == 0 {
        // Nobody serves yet.
        for change in tables.flatten() {
            run(change.statement(names)).await?;
        }
    } else {
        // Ends the last query, which would keep its snapshot: building an index waits for those of others.
        run("SELECT 1".to_owned()).await?;
        expand::tables(link, names, tables.collect()).await?;
    }
    let min_compatible = STEPS.last().map_or(VERSION, |step| step.min_compatible);
    run(format!(
        "INSERT INTO {meta} (name, value) VALUES ('{VERSION_NAME}', {VERSION}), \
         ('{MIN_COMPATIBLE}', {min_compatible}) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    ))
    .await?;
    Ok(Migrated { from, to: VERSION })
}

/// Versions that a store has.
struct Found {
    version: i64,
    min_compatible: i64,
}

impl Found {
    /// Reads the versions; none if there is no schema.
    fn read(rows: &[Row]) -> Result<Option<Self>> {
        let (mut version, mut least) = (None, None);
        for row in rows {
            let (name, value): (&str, i64) = (column(row, 0)?, column(row, 1)?);
            *(if name == VERSION_NAME { &mut version } else { &mut least }) = Some(value);
        }
        // A schema of an earlier build fits that build alone.
        Ok(version.map(|version| Self { version, min_compatible: least.unwrap_or(version) }))
    }

    /// Refuses a schema that this build cannot use.
    fn check(&self) -> Result<()> {
        let found = self.version;
        if found < VERSION {
            return Err(Error::invalid(format!(
                "the store's schema has version {found}; this build needs {VERSION}; \
                 run ebbtide migrate-schema --store URL"
            )));
        }
        if self.min_compatible > VERSION {
            return Err(Error::invalid(format!(
                "the store's schema has version {found}, for builds from {}; this build supports {VERSION}; \
                 use a newer build",
                self.min_compatible
            )));
        }
        Ok(())
    }
}

/// Refuses a schema that is missing, older than this build, or for newer builds alone.
pub(super) async fn check(link: &Link, names: &Names) -> Result<()> {
    let client = link.lease().await?;
    match found(&client, names).await? {
        Some(found) => found.check(),
        None => Err(Error::invalid("the store has no schema; run ebbtide migrate-schema --store URL")),
    }
}

/// Reads the versions of a store; none if there is no schema.
async fn found(client: &deadpool_postgres::Object, names: &Names) -> Result<Option<Found>> {
    match client.query_typed(&select_versions(names), &[]).await {
        Ok(rows) => Found::read(&rows),
        Err(error) => match error.code() {
            Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME => {
                Ok(None)
            }
            _ => Err(explain(&error)),
        },
    }
}

fn select_versions(names: &Names) -> String {
    let meta = names.meta();
    format!("SELECT name, value FROM {meta} WHERE name IN ('{VERSION_NAME}', '{MIN_COMPATIBLE}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_table() {
        let names = Names::new("s", "").unwrap();
        assert_eq!(i64::try_from(STEPS.len()).unwrap(), VERSION, "a new line of STEPS is a new version");
        assert!(STEPS.is_sorted_by_key(|step| step.min_compatible), "no step makes older builds fit again");
        let all = steps(&names).into_iter().flatten().flatten().map(|change| change.statement(&names));
        let all = all.collect::<Vec<_>>().join("\n");
        for &kind in Kind::ALL {
            let table = format!("CREATE TABLE IF NOT EXISTS {} ", names.table(kind));
            assert_eq!(all.matches(&table).count(), 1, "{kind}: a new kind is a new line of STEPS");
        }
    }
}
