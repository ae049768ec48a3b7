//! Changes of a store that serves: table by table, so that no caller waits for long.
//!
//! A change that needs a table for itself waits for it a moment only, since everybody else queues up behind it, and tries
//! again later. The index of a large table is built and dropped beside writers. The migration holds its lock in another transaction meanwhile,
//! and notes the version at its end; what an interrupted one has done is found done.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::link::{Link, explain};
use super::names::Names;
use super::params::{column, only};
use super::schema::Change;
use crate::model::error::Result;

/// Longest wait for the lock of a table. Other statements wait as long behind it.
const LOCK_MILLIS: u64 = 200;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Number of attempts after which the log tells what is waited for.
const TOLD_EVERY: u32 = 20;

/// Size of a table, in bytes, from which its index is built beside writers. That takes several transactions, each of which
/// waits for others; a smaller one is built in a moment.
const LARGE: i64 = 1 << 20;

/// Makes the changes of each table in turn.
pub(super) async fn tables(link: &Link, names: &Names, tables: Vec<Vec<Change>>) -> Result<()> {
    let Some(client) = link.session().await? else {
        // Settings of a session are not ours there, and an index is built while writers wait.
        let client = link.lease().await?;
        for changes in tables {
            at_once(&client, names, &changes).await?;
        }
        return Ok(());
    };
    // Building an index takes as long as it takes.
    run(&client, "SET statement_timeout = 0; SET lock_timeout = 0").await?;
    for changes in tables {
        if is_large(&client, &changes).await? {
            beside_writers(&client, names, &changes).await?;
        } else {
            at_once(&client, names, &changes).await?;
        }
    }
    Ok(())
}

/// Makes the changes of a table in one transaction.
async fn at_once(client: &Client, names: &Names, changes: &[Change]) -> Result<()> {
    let mut statements = Vec::new();
    for change in changes {
        if let Change::Index { name, .. } = change
            && is_unfinished(client, names, name).await?
        {
            statements.push(Change::Drop { name: name.clone() }.statement(names));
        }
        statements.push(change.statement(names));
    }
    briefly(client, &statements.join("; ")).await
}

async fn beside_writers(client: &Client, names: &Names, changes: &[Change]) -> Result<()> {
    for change in changes {
        match change {
            Change::Brief(text) => briefly(client, text).await?,
            Change::Index { name, .. } => {
                if is_unfinished(client, names, name).await? {
                    let unfinished = Change::Drop { name: name.clone() };
                    run(client, &unfinished.text(names, "CONCURRENTLY ")).await?;
                }
                run(client, &change.text(names, "CONCURRENTLY ")).await?;
            }
            Change::Drop { .. } => run(client, &change.text(names, "CONCURRENTLY ")).await?,
        }
    }
    Ok(())
}

/// Returns true if an index of a table is to be built that is there and large.
async fn is_large(client: &Client, changes: &[Change]) -> Result<bool> {
    for change in changes {
        let Change::Index { table, .. } = change else { continue };
        let size = "SELECT coalesce(pg_catalog.pg_relation_size(pg_catalog.to_regclass($1)), 0)";
        let rows = client.query(size, &[table]).await.map_err(|error| explain(&error))?;
        if column::<i64>(only(&rows)?, 0)? >= LARGE {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn run(client: &Client, text: &str) -> Result<()> {
    client.batch_execute(text).await.map_err(|error| explain(&error))
}

/// Runs statements in a transaction that waits for no table for long.
async fn briefly(client: &Client, text: &str) -> Result<()> {
    let whole = format!(
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {LOCK_MILLIS}; {text}; COMMIT"
    );
    for attempt in 1u32.. {
        let Err(error) = client.batch_execute(&whole).await else { return Ok(()) };
        let _ = client.batch_execute("ROLLBACK").await;
        if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return Err(explain(&error));
        }
        if attempt.is_multiple_of(TOLD_EVERY) {
            tracing::warn!(attempt, "the migration waits for a transaction that has locked a table");
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Returns true if building the index was interrupted: it is there, and no query uses it.
async fn is_unfinished(client: &Client, names: &Names, index: &str) -> Result<bool> {
    let (schema, name) = (names.schema(), index.trim_matches('"'));
    // Unnamed, since it may be sent through a transaction pooler.
    let found = client
        .query_typed(
            "SELECT 1 FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             WHERE n.nspname::text = $1 AND c.relname::text = $2 AND NOT i.indisvalid",
            &[(&schema, Type::TEXT), (&name, Type::TEXT)],
        )
        .await
        .map_err(|error| explain(&error))?;
    Ok(!found.is_empty())
}
