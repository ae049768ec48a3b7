//! In-memory engine: everything in one map behind one lock. For tests, and as the model that other engines are
//! compared with.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::admin::{Admin, KindStats, Stats};
use crate::backend::{Backend, Budget, Cursor, Info, Page, Swept};
use crate::model::alteration::{Alteration, Altered, Outcome};
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Effect};
use crate::provide;

type Table = BTreeMap<Box<[u8]>, Record>;

/// Records in memory, for the lifetime of the process.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<Kind, Table>>);

impl Memory {
    fn tables(&self) -> MutexGuard<'_, HashMap<Kind, Table>> {
        // Changes happen after everything that could panic, so a poisoned map is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Memory {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let tables = self.tables();
        let record = tables.get(&key.kind()).and_then(|table| table.get(key.as_bytes()));
        Ok(record.filter(|record| record.is_live(now)).cloned())
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let mut tables = self.tables();
        let record = tables.get_mut(&key.kind()).and_then(|table| table.remove(key.as_bytes()));
        Ok(record.filter(|record| record.is_live(now)))
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        alteration.check()?;
        let mut tables = self.tables();
        let table = tables.entry(key.kind()).or_default();
        let live = table.get(key.as_bytes()).filter(|record| record.is_live(now)).cloned();
        let (outcome, altered) = alteration.judge(live)?;
        match outcome {
            Outcome::Store(record) => drop(table.insert(key.as_bytes().into(), record)),
            Outcome::Erase => drop(table.remove(key.as_bytes())),
            Outcome::Nothing => {}
        }
        Ok(altered)
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        let mut tables = self.tables();
        let refused = batch.writes().iter().position(|write| {
            let key = write.key();
            let standing = tables.get(&key.kind()).and_then(|table| table.get(key.as_bytes()));
            !write.condition().holds(standing.map(|record| (record.version, record.expires_at)), now)
        });
        if let Some(index) = refused {
            return Ok(Commit::Refused { index });
        }
        for write in batch.writes() {
            let key = write.key();
            let table = tables.entry(key.kind()).or_default();
            match write.effect() {
                Effect::Store(record) => {
                    table.insert(key.as_bytes().into(), record.clone());
                }
                Effect::Erase => {
                    table.remove(key.as_bytes());
                }
                Effect::Nothing => {}
            }
        }
        Ok(Commit::Applied)
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let tables = self.tables();
        let mut page = Page::default();
        let Some(table) = tables.get(&prefix.kind()) else { return Ok(page) };
        let start = match after {
            Some(cursor) if cursor.as_bytes() >= prefix.as_bytes() => Bound::Excluded(cursor.as_bytes()),
            _ => Bound::Included(prefix.as_bytes()),
        };
        let rows = table
            .range::<[u8], _>((start, Bound::Unbounded))
            .take_while(|(bytes, _)| bytes.starts_with(prefix.as_bytes()))
            .filter(|(_, record)| record.is_live(now));
        for (bytes, record) in rows {
            if page.items.len() == limit {
                page.next = page.items.last().map(|(key, _)| Cursor::from_bytes(key.as_bytes()));
                break;
            }
            page.items.push((Key::decode(prefix.kind(), bytes)?, record.clone()));
        }
        Ok(page)
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let mut swept = Swept::default();
        for (&kind, table) in self.tables().iter_mut().filter(|(kind, _)| budget.kinds.contains(kind)) {
            table.retain(|_, record| {
                if !record.is_swept(until) {
                    return true;
                }
                if swept.total() >= budget.records {
                    swept.more = true;
                    return true;
                }
                swept.add(kind, 1);
                false
            });
        }
        Ok(swept)
    }

    provide!(get_many commit_each);

    fn info(&self) -> Info {
        Info::new("memory")
    }
}

#[async_trait]
impl Admin for Memory {
    provide!(stats_at_hand list count clear erase clock_mark set_clock_mark engine_clock warnings backup);

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        let tables = self.tables();
        let filled = tables.iter().filter(|(_, table)| !table.is_empty());
        Ok(filled.map(|(&kind, table)| (kind, table_stats(table, now))).collect())
    }
}

fn table_stats(table: &Table, now: Timestamp) -> KindStats {
    let mut stats = KindStats::default();
    for record in table.values() {
        if record.is_live(now) {
            stats.live += 1;
        } else {
            stats.expired += 1;
            stats.oldest_overdue = stats.oldest_overdue.max(Some(now.since(record.expires_at)));
        }
    }
    stats
}
