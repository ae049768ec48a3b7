//! `ebbtide import --from redis://…`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ebbtide::ops::transfer::Importer;
use ebbtide::stores::records::{
    PutOutcome, PutRecord, RecordAddress, RecordCondition, RecordId, RecordValue, Records,
};
use ebbtide::stores::shared::life::Life;
use ebbtide::{ErrorKind, Scope, Ttl};
use redis::{Client, Connection};

use crate::output::outln;
use crate::store::{self, Access};

/// Keys that are read at a time.
const PAGE: usize = 500;

const THERE: &str = "it is there already";
const EXPIRED: &str = "it has expired";

/// Key of the Redis server.
struct Key {
    name: Vec<u8>,
    kind: String,
    value: Option<Vec<u8>>,
    /// Milliseconds that are left; -1 without an end, -2 for a key that is gone.
    left: i64,
}

/// Reads every string and counter of a Redis server into the records of the Redis protocol.
pub(super) async fn run(from: &str, url: &str, scope: &Scope, dry_run: bool) -> Result<ExitCode> {
    if !from.starts_with("redis://") {
        bail!(
            "--from takes the URL of a Redis server: redis://HOST:PORT; reach one with TLS through a tunnel"
        );
    }
    // The error of the parser may quote the URL, which may have a password.
    let client =
        Client::open(from).map_err(|_| anyhow::anyhow!("--from: the URL is not one of a Redis server"))?;
    let connect = move || client.get_connection_with_timeout(Duration::from_secs(10));
    let mut connection =
        tokio::task::spawn_blocking(connect).await?.context("cannot connect to the Redis server")?;
    // Values are sealed: with the keyring of the store, which is made with a new one.
    let db = if dry_run {
        store::open(url, Access::Read).await?
    } else {
        store::open_signing(url, Access::Create).await?
    };
    let importer = Importer::new(db.stores().clone(), scope.clone(), dry_run);
    importer.note("of a Redis server begins").await?;
    let records = db.stores().records(scope);
    let (mut written, mut skipped, mut cursor) = (0_u64, BTreeMap::<String, u64>::new(), 0);
    loop {
        let page = tokio::task::spawn_blocking(move || {
            let page = page(&mut connection, cursor);
            (connection, page)
        });
        let (back, page) = page.await?;
        connection = back;
        let (next, keys) = page.context("cannot read from the Redis server")?;
        for key in keys {
            match write(&records, key, dry_run).await? {
                None => written += 1,
                Some(why) => *skipped.entry(why).or_default() += 1,
            }
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    importer.note(&format!("of a Redis server ended, {written} records written")).await?;
    outln!(
        "{} {written} keys in {scope}; {} keys skipped",
        if dry_run { "would write" } else { "wrote" },
        skipped.values().sum::<u64>(),
    )?;
    let mut harmless = true;
    for (why, count) in &skipped {
        outln!("  {count} × {why}")?;
        harmless &= [THERE, EXPIRED].contains(&why.as_str());
    }
    Ok(if harmless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Some keys with their types, values and ends, and the cursor of the next page.
fn page(connection: &mut Connection, cursor: u64) -> redis::RedisResult<(u64, Vec<Key>)> {
    let (next, names): (u64, Vec<Vec<u8>>) =
        redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(PAGE).query(connection)?;
    let mut types = redis::pipe();
    for name in &names {
        types.cmd("TYPE").arg(name);
    }
    let kinds: Vec<String> = if names.is_empty() { Vec::new() } else { types.query(connection)? };
    let mut keys = Vec::with_capacity(names.len());
    for (name, kind) in names.into_iter().zip(kinds) {
        let (value, left) = if kind == "string" {
            // The end first: a key that gets another one in between is read with the shorter of them at worst.
            let read = redis::pipe().atomic().cmd("PTTL").arg(&name).cmd("GET").arg(&name).query(connection);
            let (left, value): (i64, Option<Vec<u8>>) = read?;
            (value, left)
        } else {
            (None, -1)
        };
        keys.push(Key { name, kind, value, left });
    }
    Ok((next, keys))
}

/// Writes a key. Returns the reason if it is skipped.
async fn write(records: &Records, key: Key, dry_run: bool) -> Result<Option<String>> {
    let Key { name, kind, value, left } = key;
    let value = match (kind.as_str(), value) {
        ("string", Some(value)) if left != 0 && left >= -1 => value,
        ("string" | "none", _) => return Ok(Some(EXPIRED.to_owned())),
        _ => return Ok(Some(format!("it is a {kind}"))),
    };
    let id = RecordId::from(name);
    if dry_run {
        let found = records.get(&RecordAddress::id(Records::REDIS, id)).await?.found();
        return Ok(found.map(|_| THERE.to_owned()));
    }
    let life = match u64::try_from(left) {
        Ok(millis) => Life::For(Ttl::new(Duration::from_millis(millis))?),
        Err(_) => Life::Default,
    };
    let put = PutRecord::new(Records::REDIS, id, RecordValue::from_bytes(value));
    match records.put(&put.life(life).only_if(RecordCondition::Absent)).await {
        Ok(PutOutcome::Stored { .. }) => Ok(None),
        Ok(PutOutcome::Conflict) => Ok(Some(THERE.to_owned())),
        Ok(_) => Ok(Some(EXPIRED.to_owned())),
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(Some(error.message().to_owned())),
        Err(error) => Err(error).context("cannot write a key"),
    }
}
