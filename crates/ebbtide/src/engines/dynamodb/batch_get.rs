//! Several gets in one request.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::KeysAndAttributes;

use super::DynamoDb;
use super::attempt::{AttemptFault, busy, fault};
use super::item::{Item, record_of};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Maximum number of keys in one request.
const MOST_KEYS: usize = 100;

impl DynamoDb {
    /// Reads live records, a hundred with a request. Keys that the engine leaves undone are asked for again.
    pub(super) async fn read_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Record>>> {
        if let [key] = keys {
            let record = self.read(key).await?;
            return Ok(vec![record.filter(|record| record.is_live(now))]);
        }
        // The engine refuses a request that names a key twice.
        let mut distinct: Vec<&Key> = keys.iter().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let mut found: HashMap<Key, Record> = HashMap::with_capacity(distinct.len());
        for some in distinct.chunks(MOST_KEYS) {
            for item in self.read_batch(some.iter().map(|key| self.space.key(key)).collect()).await? {
                found.insert(self.space.key_of(&item)?, record_of(&item)?);
            }
        }
        let live = |key: &Key| found.get(key).filter(|record| record.is_live(now)).cloned();
        Ok(keys.iter().map(live).collect())
    }

    async fn read_batch(&self, mut keys: Vec<Item>) -> Result<Vec<Item>> {
        let mut attempts = self.patience.begin();
        let mut items = Vec::with_capacity(keys.len());
        while !keys.is_empty() {
            match self.send_batch(keys.clone()).await {
                Ok((some, left)) => {
                    items.extend(some);
                    keys = left;
                    if !keys.is_empty() {
                        attempts.pause(AttemptFault::Busy(busy("UnprocessedKeys"))).await?;
                    }
                }
                Err(fault) => attempts.pause(fault).await?,
            }
        }
        Ok(items)
    }

    /// Returns the items that were found, and the keys that were not dealt with.
    async fn send_batch(&self, keys: Vec<Item>) -> Result<(Vec<Item>, Vec<Item>), AttemptFault> {
        let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        let wanted = wanted.map_err(|error| {
            AttemptFault::Failed(Error::invalid("cannot build a request for several keys").caused_by(error))
        })?;
        let answer =
            self.client.batch_get_item().request_items(&self.table, wanted).send().await.map_err(fault)?;
        let items = answer.responses.and_then(|mut tables| tables.remove(&self.table)).unwrap_or_default();
        let left = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
        Ok((items, left.map(|left| left.keys).unwrap_or_default()))
    }
}
