//! Equivalent calls in Redis.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::future::BoxFuture;

use super::CALLERS;
use super::ours::READ;
use crate::load::Caller;
use crate::peers::redis::Redis;
use crate::peers::resp::{Connection, Reply};
use crate::records::next;

/// Value of about the size that Ebbtide stores.
const VALUE: &str = r#"{"sub":"ada","client_id":"photo-app","scope":"photos.read","data":{"acr":"mfa","auth_time":1800000000}}"#;

/// Replaces a value if it is the expected one.
const SCRIPT: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     redis.call('SET', KEYS[1], ARGV[2], 'EX', 1209600) return 1 else return 0 end";

/// Keys that are set and not yet taken.
pub(super) type Stock = Arc<Mutex<Vec<String>>>;

pub(super) fn stock() -> Stock {
    Stock::default()
}

/// Sets these keys in pipelined requests.
async fn set(connection: &mut Connection, keys: &[String]) -> Result<()> {
    for some in keys.chunks(500) {
        for key in some {
            connection.send(&[b"SET", key.as_bytes(), VALUE.as_bytes(), b"EX", b"86400"]).await?;
        }
        connection.flush().await?;
        for _ in some {
            ensure!(connection.reply().await? == Reply::Status("OK".to_owned()), "a key is not set");
        }
    }
    Ok(())
}

/// Sets keys that are taken later.
pub(super) fn putting(
    redis: &Arc<Redis>,
    stock: &Stock,
    keys: u64,
) -> impl Fn() -> BoxFuture<'static, Result<()>> + use<> {
    let (redis, stock) = (Arc::clone(redis), Arc::clone(stock));
    move || {
        let (redis, stock) = (Arc::clone(&redis), Arc::clone(&stock));
        Box::pin(async move {
            let keys: Vec<String> = (0..keys).map(|_| format!("code:{:040}", next())).collect();
            set(&mut redis.connect().await?, &keys).await?;
            stock.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
            Ok(())
        })
    }
}

/// Takes keys that were set.
pub(super) async fn popping(redis: &Redis, stock: &Stock) -> Result<Vec<impl Caller + use<>>> {
    let connections = redis.connections(CALLERS).await?;
    Ok(connections.into_iter().map(|connection| Pop { connection, stock: Arc::clone(stock) }).collect())
}

struct Pop {
    connection: Connection,
    stock: Stock,
}

impl Caller for Pop {
    async fn call(&mut self) -> Result<()> {
        let key = self.stock.lock().unwrap_or_else(PoisonError::into_inner).pop();
        found(&self.connection.ask(&[b"GETDEL", key.context("no key is left")?.as_bytes()]).await?)
    }
}

fn found(reply: &Reply) -> Result<()> {
    ensure!(matches!(reply, Reply::Bulk(_)), "a key is absent");
    Ok(())
}

/// Keys that are read repeatedly, and a script.
pub(super) struct Keys {
    redis: Arc<Redis>,
    script: Vec<u8>,
}

fn key(number: u64) -> String {
    format!("token:{number:040}")
}

impl Keys {
    pub(super) async fn new(redis: &Arc<Redis>) -> Result<Self> {
        let mut connection = redis.connect().await?;
        set(&mut connection, &(0..READ).map(key).collect::<Vec<_>>()).await?;
        let Reply::Bulk(script) = connection.ask(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()]).await? else {
            bail!("the script has no name");
        };
        Ok(Self { redis: Arc::clone(redis), script })
    }

    pub(super) async fn getting(&self) -> Result<Vec<impl Caller + use<>>> {
        Ok(self.redis.connections(CALLERS).await?.into_iter().map(Get).collect())
    }

    pub(super) async fn touching(&self) -> Result<Vec<impl Caller + use<>>> {
        Ok(self.redis.connections(CALLERS).await?.into_iter().map(Touch).collect())
    }

    /// Each connection has a key of its own.
    pub(super) async fn swapping(&self) -> Result<Vec<impl Caller + use<>>> {
        let mut swapping = Vec::new();
        for mut connection in self.redis.connections(CALLERS).await? {
            let (key, value) = (format!("family:{:040}", next()), VALUE.to_owned());
            set(&mut connection, std::slice::from_ref(&key)).await?;
            swapping.push(Swap { connection, script: self.script.clone(), key, value });
        }
        Ok(swapping)
    }
}

struct Get(Connection);

impl Caller for Get {
    async fn call(&mut self) -> Result<()> {
        found(&self.0.ask(&[b"GET", key(next() % READ).as_bytes()]).await?)
    }
}

struct Touch(Connection);

impl Caller for Touch {
    async fn call(&mut self) -> Result<()> {
        found(&self.0.ask(&[b"GETEX", key(next() % READ).as_bytes(), b"EX", b"86400"]).await?)
    }
}

struct Swap {
    connection: Connection,
    script: Vec<u8>,
    key: String,
    value: String,
}

impl Caller for Swap {
    async fn call(&mut self) -> Result<()> {
        let new = format!("{VALUE}{}", next());
        let command: [&[u8]; 6] =
            [b"EVALSHA", &self.script, b"1", self.key.as_bytes(), self.value.as_bytes(), new.as_bytes()];
        let reply = self.connection.ask(&command).await?;
        ensure!(reply == Reply::Integer(1), "a value that nobody else changes was changed");
        self.value = new;
        Ok(())
    }
}
