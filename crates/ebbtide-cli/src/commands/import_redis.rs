//! `ebbtide import --from redis://…`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64ct::{Base64, Encoding as _};
use ebbtide::Scope;
use ebbtide::stores::records::{RecordValue, Records};
use ebbtide_api::transfer::{ImportAnswer, ImportRequest, ImportedItem, MAX_IMPORT_ITEMS};
use redis::{Client, Connection};
use serde_json::{Value, json};

use crate::args::StoreTarget;
use crate::operator::Operator;
use crate::output::outln;
use crate::store::Access;

/// Keys that are read at a time.
const PAGE: usize = 500;

/// Bytes of keys that are sent at a time.
const MOST_BYTES: usize = 512 << 10;

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
pub(super) async fn run(from: &str, target: &StoreTarget, scope: &Scope, dry_run: bool) -> Result<ExitCode> {
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
    let operator = if dry_run { target.reader().await? } else { target.operator(Access::Create).await? };
    let mut import = Import {
        operator,
        scope,
        dry_run,
        items: Vec::new(),
        bytes: 0,
        written: 0,
        skipped: BTreeMap::new(),
    };
    let mut cursor = 0;
    loop {
        let page = tokio::task::spawn_blocking(move || {
            let page = page(&mut connection, cursor);
            (connection, page)
        });
        let (back, page) = page.await?;
        connection = back;
        let (next, keys) = page.context("cannot read from the Redis server")?;
        for key in keys {
            match item(key) {
                Ok(item) => import.add(item).await?,
                Err(why) => import.skip(why),
            }
        }
        // A TTL is counted from the moment at which it was read.
        import.send().await?;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let Import { written, skipped, .. } = import;
    outln!(
        "{} {written} keys in {scope}; {} keys skipped",
        if dry_run { "would write" } else { "wrote" },
        skipped.values().sum::<u64>(),
    )?;
    let mut harmless = true;
    for (why, count) in &skipped {
        outln!("  {count} × {why}")?;
        harmless &= ["it is there already", EXPIRED].contains(&why.as_str());
    }
    Ok(if harmless { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// An import in progress.
struct Import<'a> {
    operator: Box<dyn Operator>,
    scope: &'a Scope,
    dry_run: bool,
    /// Items that are sent next.
    items: Vec<Value>,
    bytes: usize,
    written: u64,
    skipped: BTreeMap<String, u64>,
}

impl Import<'_> {
    fn skip(&mut self, why: String) {
        *self.skipped.entry(why).or_default() += 1;
    }

    async fn add(&mut self, item: Value) -> Result<()> {
        let bytes = item.to_string().len();
        if self.items.len() == MAX_IMPORT_ITEMS || self.bytes + bytes > MOST_BYTES {
            self.send().await?;
        }
        self.bytes += bytes;
        self.items.push(item);
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        let body = ImportRequest {
            items: std::mem::take(&mut self.items),
            scope: Some(self.scope.to_string()),
            dry_run: self.dry_run,
            reason: Some("keys of a Redis server were imported".to_owned()),
            ..ImportRequest::default()
        };
        let answer =
            self.operator.call("POST", "/v1/import", None, Some(serde_json::to_value(body)?)).await?;
        let answer: ImportAnswer =
            answer.read().context("cannot write keys; run the import again to go on")?;
        for outcome in answer.outcomes {
            match outcome {
                ImportedItem::Written(_) => self.written += 1,
                ImportedItem::Skipped(why) => self.skip(why),
            }
        }
        Ok(())
    }
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

/// Key as an item of an import; the error is the reason if it is skipped.
fn item(Key { name, kind, value, left }: Key) -> std::result::Result<Value, String> {
    let value = match (kind.as_str(), value) {
        ("string", Some(value)) if left != 0 && left >= -1 => value,
        ("string" | "none", _) => return Err(EXPIRED.to_owned()),
        _ => return Err(format!("it is a {kind}")),
    };
    if value.len() > RecordValue::MAX_BYTES {
        return Err(format!("its value has more than {} bytes", RecordValue::MAX_BYTES));
    }
    let mut item = json!({"collection": Records::REDIS, "id_base64": Base64::encode_string(&name),
        "value_base64": Base64::encode_string(&value)});
    if let Ok(millis) = u64::try_from(left) {
        item["ttl_ms"] = millis.into();
    }
    Ok(item)
}
