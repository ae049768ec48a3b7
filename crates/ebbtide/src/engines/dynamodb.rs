//! Records in one table of DynamoDB, by the official SDK.
//!
//! Every foreground operation is one request: a consistent read, a conditional write, or a transaction. Opening sends
//! none. The engine's TTL deletes expired records, an hour or more after their expiry; every read and every condition
//! uses the expiry itself.

mod alter;
mod attempt;
mod batch_get;
mod client;
mod commit;
mod condition;
mod item;
mod location;
mod reclaim;
mod scan;
pub mod table;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;

use attempt::{AttemptFault, Patience, fault};
use client::DateOfAnswer;
use item::{Item, Space, record_of};
use location::Location;
use table::SeenTtl;

use crate::admin::{Admin, Cleared, Counted, Erased, Stats};
use crate::backend::{Backend, Budget, Cursor, IndexTarget, Info, Page, Swept};
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::Rng;
use crate::model::time::{Stopwatch, Timestamp};
use crate::model::write::{Batch, Commit};
use crate::provide;

/// Store in a table of DynamoDB, which it may share with other stores by a prefix.
pub struct DynamoDb {
    client: Client,
    table: String,
    space: Space,
    rng: Arc<dyn Rng>,
    patience: Patience,
    /// If true, every sweep deletes overdue records.
    sweeps: bool,
    links: Vec<(Kind, IndexTarget)>,
    /// Time of the last scan of the table, by the kinds it covered.
    looked: Mutex<HashMap<Vec<Kind>, Timestamp>>,
    /// Counts of the last whole scan, or of a part of the first one.
    found: Mutex<Option<(Stats, bool)>>,
    /// Last answer about the engine's TTL, and its age.
    ttl_seen: Mutex<Option<(Stopwatch, SeenTtl)>>,
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoDb({})", self.table)
    }
}

impl DynamoDb {
    /// Opens `dynamodb:TABLE?region=…&endpoint=…&prefix=…&sweep=…`. Nothing is sent, and nothing is created. `rng`
    /// names transactions and spreads the pauses between attempts.
    pub async fn open(url: &str, rng: impl Rng) -> Result<Self> {
        let location = Location::parse(url)?;
        let rng: Arc<dyn Rng> = Arc::new(rng);
        Ok(Self {
            client: client::connect(&location).await?,
            space: Space::new(&location.prefix),
            table: location.table,
            patience: Patience::new(Arc::clone(&rng)),
            rng,
            sweeps: location.sweeps,
            links: Vec::new(),
            looked: Mutex::default(),
            found: Mutex::default(),
            ttl_seen: Mutex::default(),
        })
    }

    /// Makes sweeps remove records of kind `index` whose target is gone: the engine's TTL may delete a record long
    /// before its index.
    #[must_use]
    pub fn reconciling(mut self, index: Kind, target: IndexTarget) -> Self {
        self.links.push((index, target));
        self
    }

    /// Reads the record at the key, expired or not.
    async fn read(&self, key: &Key) -> Result<Option<Record>> {
        let key = self.space.key(key);
        let item = self.patience.repeat(|| self.send_read(&key)).await?;
        item.map(|item| record_of(&item)).transpose()
    }

    async fn send_read(&self, key: &Item) -> Result<Option<Item>, AttemptFault> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(key.clone()));
        Ok(request.consistent_read(true).send().await.map_err(fault)?.item)
    }
}

#[async_trait]
impl Backend for DynamoDb {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        Ok(self.read(key).await?.filter(|record| record.is_live(now)))
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.take_one(key, now).await
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        alteration.check()?;
        self.alter_one(key, alteration, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        match batch.writes() {
            [write] => self.commit_one(write, now).await,
            _ => self.commit_all(&batch, now).await,
        }
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        match prefix.within_partition() {
            Some((_, sort)) => self.list_partition(prefix, sort, after, limit, now).await,
            None => self.list_scopes(std::slice::from_ref(prefix), after, limit, now).await,
        }
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        if self.sweeps || budget.force {
            self.sweep_overdue(until, budget).await
        } else {
            self.reconcile(until, budget).await
        }
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Record>>> {
        self.read_many(keys, now).await
    }

    provide!(commit_each);

    fn info(&self) -> Info {
        // The engine's TTL begins an hour after the expiry, and may take some days.
        let within = Duration::from_secs(if self.sweeps { 2 * 3_600 } else { 3 * 86_400 });
        let info = Info::new("dynamodb").shared().without_order().reclaiming_itself(within);
        info.with_clock_of(Duration::from_secs(1))
    }
}

#[async_trait]
impl Admin for DynamoDb {
    provide!(clock_mark set_clock_mark backup);

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.count_all(now).await
    }

    /// Counts of the last scan of the table; of the part that is known, during the first.
    async fn stats_at_hand(&self, _now: Timestamp) -> Result<Option<Stats>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(found.as_ref().map(|(stats, _)| stats.clone()))
    }

    async fn list(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.list_scopes(prefixes, after, limit, now).await
    }

    async fn clear(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Cleared> {
        self.clear_scopes(prefixes, after, now).await
    }

    async fn count(&self, prefixes: &[Prefix], after: Option<&Cursor>, now: Timestamp) -> Result<Counted> {
        self.count_scope(prefixes, after, now).await
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        match prefix.within_partition() {
            Some((_, sort)) => self.erase_partition(prefix, sort, now).await,
            None => self.erase_scope(prefix, now).await,
        }
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        Ok(self.table_warnings().await)
    }

    async fn engine_clock(&self) -> Result<Option<Timestamp>> {
        let date = DateOfAnswer::default();
        // A key that no record has: the smallest possible answer.
        let key = item::item_key(&[u8::MAX], &[0]);
        let ask = || async {
            let request = self.client.get_item().table_name(&self.table).set_key(Some(key.clone()));
            request.customize().interceptor(date.clone()).send().await.map_err(fault)
        };
        self.patience.repeat(ask).await?;
        Ok(date.read())
    }
}
