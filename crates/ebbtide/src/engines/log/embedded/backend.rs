//! The contract of the library, on the log and the cold store.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::Embedded;
use crate::admin::{Admin, Stats};
use crate::backend::{Backend, Budget, Cursor, Info, Page, Swept};
use crate::engines::log::cold::ColdStore;
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit};
use crate::provide;

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

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.take_record(key, now).await
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        self.alter_record(key, alteration, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.commit_batch(&batch, now).await
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
        let walked = self.walks.run(move || core.page(&prefix, after.as_ref(), limit, now));
        let (page, rests_on) = walked.await??;
        if let Some(at) = rests_on {
            self.core.log.durable(at).await?;
        }
        Ok(page)
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let (core, budget) = (Arc::clone(&self.core), budget.clone());
        self.walks.run(move || core.sweep(until, &budget)).await?
    }

    provide!(get_many commit_each);

    fn info(&self) -> Info {
        Info { has_failed: self.core.log.is_poisoned(), ..Info::new(C::NAME) }
    }
}

#[async_trait]
impl<C: ColdStore> Admin for Embedded<C> {
    provide!(list count clear erase engine_clock);

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        let core = Arc::clone(&self.core);
        self.walks.run(move || core.count_stats(now)).await?
    }

    async fn stats_at_hand(&self, now: Timestamp) -> Result<Option<Stats>> {
        self.stats(now).await.map(Some)
    }

    async fn warnings(&self) -> Result<Vec<String>> {
        let is_short = self.core.is_short.load(std::sync::atomic::Ordering::Relaxed);
        let short = "the disk is almost full: new records are refused, deletes and revocations are not";
        Ok(is_short.then(|| short.to_owned()).into_iter().collect())
    }

    async fn backup(&self, dir: &Path) -> Result<()> {
        let folder = self.folder.clone().ok_or_else(|| Error::invalid("the store is in no folder"))?;
        let (core, dir) = (Arc::clone(&self.core), dir.to_owned());
        self.walks.run(move || core.copy_into(&folder, &dir)).await?
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
