//! The contract of the library, on the log and the cold store.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::Embedded;
use crate::admin::{Admin, Erased, Stats};
use crate::backend::{Backend, Budget, Cursor, Info, Page, Swept};
use crate::engines::log::cold::ColdStore;
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit, Write};
use crate::provide;

/// Records of a kind without a map that one call of [`Admin::erase`] removes.
const ERASED_BY_PASS: u64 = 20_000;

impl<C: ColdStore> Embedded<C> {
    /// Retires the oldest segment at `now`, and answers whether there was one to retire.
    pub async fn retire_oldest(&self, now: Timestamp) -> Result<bool> {
        self.core.retire_oldest(now).await
    }

    /// Goes on in the next segment, if one is prepared, and answers whether it did. If not, one is prepared.
    #[must_use]
    pub fn roll(&self) -> bool {
        let rolled = self.core.log.roll();
        if !rolled {
            self.core.log.want_segment();
        }
        rolled
    }

    /// Waits until the next segment is prepared.
    pub async fn room(&self) -> Result<()> {
        self.core.log.room().await
    }

    /// The last segment that has retired.
    #[must_use]
    pub fn checkpoint(&self) -> u32 {
        self.core.log.manifest().checkpoint
    }
}

#[async_trait]
impl<C: ColdStore> Backend for Embedded<C> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        Ok(self.find(key).await?.filter(|record| record.is_live(now)))
    }

    async fn get_many(&self, keys: &[Key], now: Timestamp) -> Result<Vec<Option<Record>>> {
        let live = |record: Option<Record>| record.filter(|record| record.is_live(now));
        Ok(self.find_many(keys).await?.into_iter().map(live).collect())
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.take_record(key, now).await
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        self.alter_record(key, alteration, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.commit_batch(&batch, now).await
    }

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        self.commit_batches(&batches, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.core.log.check()?;
        let (core, prefix, after) = (Arc::clone(&self.core), prefix.clone(), after.cloned());
        let pool = if (core.options.is_listed)(prefix.kind()) { &self.walks } else { &self.passes };
        let walked = pool.run(move || core.page(&prefix, after.as_ref(), limit, now));
        let (page, rests_on) = walked.await??;
        if let Some(at) = rests_on {
            self.core.log.durable(at).await?;
        }
        Ok(page)
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let (core, budget) = (Arc::clone(&self.core), budget.clone());
        self.chores.run(move || core.sweep(until, &budget)).await?
    }

    fn info(&self) -> Info {
        Info { has_failed: self.core.log.is_poisoned(), ..Info::new(C::NAME) }
    }
}

#[async_trait]
impl<C: ColdStore> Admin for Embedded<C> {
    provide!(list count clear engine_clock);

    /// Follows the listing past pages of expired records. Where a listing begins with a pass over the log, one call removes
    /// many.
    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let most = if (self.core.options.is_listed)(prefix.kind()) { 1 } else { ERASED_BY_PASS };
        let (mut removed, mut after) = (0, None);
        loop {
            let page = self.scan(prefix, after.as_ref(), Batch::MAX_WRITES, now).await?;
            let deletes: Vec<_> = page.items.into_iter().map(|(key, _)| Write::Delete { key }).collect();
            removed += deletes.len() as u64;
            if !deletes.is_empty() {
                // A delete has no condition that could be refused.
                let _ = self.commit(Batch::new(deletes)?, now).await?;
            }
            after = page.next;
            if after.is_none() || removed >= most {
                return Ok(Erased { removed, more: after.is_some() });
            }
        }
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        let core = Arc::clone(&self.core);
        self.counts.run(move || core.count_stats(now)).await?
    }

    async fn stats_at_hand(&self, now: Timestamp) -> Result<Option<Stats>> {
        let recent = self.core.recent_stats();
        if recent.is_some() { Ok(recent) } else { self.stats(now).await.map(Some) }
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        let is_short = self.core.log.is_short();
        Ok(is_short.then(|| Error::ALMOST_FULL.to_owned()).into_iter().collect())
    }

    async fn backup(&self, dir: &Path) -> Result<()> {
        let folder = self.folder.clone().ok_or_else(|| Error::invalid("the store is in no folder"))?;
        let (core, dir) = (Arc::clone(&self.core), dir.to_owned());
        self.chores.run(move || core.copy_into(&folder, &dir)).await?
    }

    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        let mark = *self.core.mark();
        if let Some(at) = mark.at {
            self.core.log.durable(at).await?;
        }
        Ok(mark.time)
    }

    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()> {
        self.move_mark(mark).await
    }
}
