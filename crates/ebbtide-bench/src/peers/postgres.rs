//! PostgreSQL: the server that `scripts/bench` starts, with a schema for the measurements.

use std::sync::Arc;

use anyhow::Result;
use ebbtide::Admin;
use tokio_postgres::{Client, NoTls};

use crate::cpu;

/// Schema of the measurements; its previous contents are dropped.
pub(crate) const SCHEMA: &str = "ebbtide_bench";

pub(crate) async fn connect(server: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Opens the engine on an empty schema, and a separate connection.
pub(crate) async fn fresh(server: &str) -> Result<(Arc<dyn Admin>, Client)> {
    let client = connect(server).await?;
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")).await?;
    // Neither side encrypts.
    let url = format!("{server}?schema={SCHEMA}&sslmode=disable");
    ebbtide::engines::postgres::migrate(&url).await?;
    Ok((ebbtide::open_engine(&url).await?, client))
}

/// Creates a table as one would by hand, with an index on the expiry.
pub(crate) async fn plain_table(client: &Client) -> Result<String> {
    let table = format!("{SCHEMA}.plain");
    let create = format!(
        "DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (key bytea PRIMARY KEY, value bytea NOT NULL, \
         version bytea NOT NULL, expires_at bigint NOT NULL); CREATE INDEX ON {table} (expires_at)"
    );
    client.batch_execute(&create).await?;
    Ok(table)
}

/// Process id of the server's parent process.
pub(crate) async fn pid(client: &Client) -> Result<u32> {
    let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    cpu::parent(backend)
}

pub(crate) async fn version(server: &str) -> Result<String> {
    let row = connect(server).await?.query_one("SHOW server_version", &[]).await?;
    let version: String = row.get(0);
    Ok(version.split(' ').next().unwrap_or_default().to_owned())
}
