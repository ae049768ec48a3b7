//! Sweeping, erasing and counting.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use futures_util::future::try_join_all;

use super::DynamoDb;
use super::attempt::{AttemptFault, busy, fault};
use super::condition::{ConditionExpression, begins_with, live, overdue, same_version};
use super::item::{EXPIRES, Item, PK, SK, VALUE, VERSION, expiry_of, only_key, record_of, version_of};
use super::scan::walk_of;
use super::walk::{Allowance, Dealt, Look, TableWalk, WalkId};
use crate::admin::{Cleared, Counted, Erased, KindStats, Stats};
use crate::backend::{Budget, Cursor, Swept};
use crate::model::error::{Error, Result};
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::time::Timestamp;

/// Concurrent deletes in each segment.
const TOGETHER: usize = 16;

/// Maximum number of records that one call of `erase` removes.
const ERASED_AT_ONCE: u64 = 10_000;

/// Maximum number of deletes in one request.
const BATCH: usize = 25;

/// Time past its end after which a target is as good as absent. No clock is wrong by so much without being noticed.
const LONG_PAST: Duration = Duration::from_secs(31 * 86_400);

/// Minimum interval between two full scans by a process that does not delete.
const LOOK_EVERY: Duration = Duration::from_secs(86_400);

impl DynamoDb {
    /// Prefixes of the partition keys of these kinds.
    fn beginnings(&self, kinds: &[Kind]) -> Vec<Vec<u8>> {
        kinds.iter().map(|&kind| self.space.partition(kind, &[])).collect()
    }

    /// Deletes overdue records, each with a condition on its own expiry.
    pub(super) async fn sweep_overdue(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        if budget.kinds.is_empty() {
            return Ok(Swept::default());
        }
        let filter = begins_with(&self.beginnings(&budget.kinds)).and(overdue(until));
        let walk_id = walk_id(b's', &budget.kinds, &[], until);
        let mut walk = self.take_walk(&walk_id, until).await?;
        let (allowance, swept) = (Allowance::new(budget.records), Mutex::new(Swept::default()));
        let deal = |items: Vec<Item>| {
            let (allowance, swept) = (&allowance, &swept);
            async move {
                let drawn = allowance.draw(items.len());
                for some in items[..drawn].chunks(TOGETHER) {
                    let removed = some.iter().map(|item| async move {
                        let kind = self.space.kind_of(item)?;
                        Ok(self.delete_if(item, &overdue(until)).await?.then_some(kind))
                    });
                    let removed: Vec<Option<Kind>> = try_join_all(removed).await?;
                    let mut swept = swept.lock().unwrap_or_else(PoisonError::into_inner);
                    removed.into_iter().flatten().for_each(|kind| swept.add(kind, 1));
                }
                Dealt::first(drawn, &items)
            }
        };
        let look = Look::new(filter, format!("{PK}, {SK}"));
        self.step(&mut walk, &look, &allowance, deal).await?;
        let mut swept = swept.into_inner().unwrap_or_else(PoisonError::into_inner);
        swept.more = self.keep_walk(&walk_id, &walk, until).await?;
        swept.progress = Some(walk.progress());
        Ok(swept)
    }

    /// Removes index records whose record is gone, and reports records that the engine's TTL has left overdue. It
    /// reads the whole table, so a process does it once a day, however often it is called.
    pub(super) async fn reconcile(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let walk_id = walk_id(b'r', &budget.kinds, &[], until);
        if budget.kinds.is_empty() || !self.is_due(&budget.kinds, until) {
            return Ok(Swept::default());
        }
        let filter = begins_with(&self.beginnings(&budget.kinds));
        let mut walk = self.take_walk(&walk_id, until).await?;
        let (swept, tally) =
            (Mutex::new(Swept::default()), Mutex::new(Tally(std::mem::take(&mut walk.tally))));
        // The value holds the record's key if the index record's own key does not.
        let projection = if self.links.is_empty() { wanted(&[]) } else { wanted(&[SK, VALUE, VERSION]) };
        let deal = |items: Vec<Item>| {
            let (swept, tally) = (&swept, &tally);
            async move {
                for some in items.chunks(TOGETHER) {
                    let looked = some.iter().map(|item| self.remove_orphan(item, tally, until));
                    let removed: Vec<Option<Kind>> = try_join_all(looked).await?;
                    let mut swept = swept.lock().unwrap_or_else(PoisonError::into_inner);
                    removed.into_iter().flatten().for_each(|kind| swept.add(kind, 1));
                }
                Ok(Dealt::All)
            }
        };
        let look = Look::new(filter, projection);
        self.step(&mut walk, &look, &Allowance::new(budget.records), deal).await?;
        let mut swept = swept.into_inner().unwrap_or_else(PoisonError::into_inner);
        walk.tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner).0;
        swept.more = self.keep_walk(&walk_id, &walk, until).await?;
        if !swept.more {
            self.looked.lock().unwrap_or_else(PoisonError::into_inner).insert(budget.kinds.clone(), until);
        }
        swept.progress = Some(walk.progress());
        self.report(walk);
        Ok(swept)
    }

    fn is_due(&self, kinds: &[Kind], until: Timestamp) -> bool {
        let looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        looked.get(kinds).is_none_or(|&last| until.since(last) >= LOOK_EVERY)
    }

    /// Updates the metrics from the first step of a walk on: a large table takes days.
    fn report(&self, walk: TableWalk) {
        let whole = walk.is_over();
        metrics::gauge!("ebbtide_walk_progress").set(f64::from(walk.progress()) / 100.0);
        let found = walk.tally;
        for (kind, stats) in &found {
            let seconds = stats.oldest_overdue.unwrap_or_default().as_secs_f64();
            let overdue = u32::try_from(stats.expired).unwrap_or(u32::MAX);
            metrics::gauge!("ebbtide_overdue_records", "kind" => kind.name()).set(f64::from(overdue));
            metrics::gauge!("ebbtide_oldest_overdue_seconds", "kind" => kind.name()).set(seconds);
            if whole && stats.expired > 0 {
                tracing::info!(
                    kind = kind.name(),
                    overdue = stats.expired,
                    oldest_seconds = seconds,
                    "overdue"
                );
            }
        }
        let mut last = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // Until a walk was whole, the part of it that is known.
        if whole || !last.as_ref().is_some_and(|(_, whole)| *whole) {
            *last = Some((found, whole));
        }
    }

    /// Removes an index record whose record is absent or long past, and returns its kind; counts any other. Both are
    /// written in one commit, so a record that is missing after its index was read has been removed. One that has just
    /// expired by this clock may be live by another: the engine's TTL removes it, and then the index record goes.
    async fn remove_orphan(&self, item: &Item, tally: &Mutex<Tally>, now: Timestamp) -> Result<Option<Kind>> {
        let kind = self.space.kind_of(item)?;
        if let Some((_, target)) = self.links.iter().find(|(index, _)| *index == kind)
            && let Some(target) = target(&self.space.key_of(item)?, &record_of(item)?)
            && self.read(&target).await?.is_none_or(|record| is_long_past(&record, now))
            && self.delete_if(item, &same_version(version_of(item)?)).await?
        {
            return Ok(Some(kind));
        }
        tally.lock().unwrap_or_else(PoisonError::into_inner).note(kind, item, now)?;
        Ok(None)
    }

    async fn delete_if(&self, item: &Item, condition: &ConditionExpression) -> Result<bool> {
        let key = only_key(item)?;
        self.patience.repeat(|| self.send_delete(&key, condition)).await
    }

    async fn send_delete(&self, key: &Item, condition: &ConditionExpression) -> Result<bool, AttemptFault> {
        let request = self.client.delete_item().table_name(&self.table).set_key(Some(key.clone()));
        let answer = request
            .condition_expression(&condition.expression)
            .set_expression_attribute_values(Some(condition.values.clone()))
            .send()
            .await;
        match answer {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                Ok(false)
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// Removes the records of a partition, expired or not. The cost grows with their number.
    pub(super) async fn erase_partition(
        &self,
        prefix: &Prefix,
        sort: &[u8],
        now: Timestamp,
    ) -> Result<Erased> {
        let (mut removed, mut dealt, mut start) = (0, 0, None);
        while dealt < ERASED_AT_ONCE {
            let (items, last) =
                self.patience.repeat(|| self.send_partition(prefix, sort, start.clone())).await?;
            dealt += items.len() as u64;
            for some in items.iter().collect::<Vec<_>>().chunks(BATCH) {
                self.delete_all(some).await?;
                for item in some {
                    removed += u64::from(now < expiry_of(item)?);
                }
            }
            start = last;
            if start.is_none() {
                break;
            }
        }
        Ok(Erased { removed, more: start.is_some() })
    }

    async fn send_partition(
        &self,
        prefix: &Prefix,
        sort: &[u8],
        start: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), AttemptFault> {
        let query = self.partition_query(prefix, sort).projection_expression(wanted(&[SK]));
        let answer = query.set_exclusive_start_key(start).send().await.map_err(fault)?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }

    /// Removes the records of a scope, expired or not, in requests of 25. The cost is a walk through the table.
    pub(super) async fn erase_scope(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let walk_id = walk_id(b'e', &[prefix.kind()], prefix.as_bytes(), now);
        let mut walk = self.take_walk(&walk_id, now).await?;
        let look = Look::new(begins_with(&[self.space.begin(prefix)]), wanted(&[SK]));
        let (removed, _) = self.erase_step(&mut walk, &look, |_| false, now).await?;
        Ok(Erased { removed: removed.values().sum(), more: self.keep_walk(&walk_id, &walk, now).await? })
    }

    /// Removes the records under these prefixes in one walk, and tombstones that are still live in a second one: the
    /// records they cover go first. The positions are kept in the table, by the purpose of the walk and its time.
    pub(super) async fn clear_scopes(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        now: Timestamp,
    ) -> Result<Cleared> {
        if prefixes.is_empty() {
            return Ok(Cleared::default());
        }
        let stage = Stage::read(after)?;
        let of_stage = |prefix: &&Prefix| stage != Stage::Tombstones || prefix.kind().is_tombstone();
        let prefixes: Vec<_> = prefixes.iter().filter(of_stage).cloned().collect();
        let kinds: Vec<_> = prefixes.iter().map(Prefix::kind).collect();
        let beginnings = self.beginnings_of(&prefixes);
        let walk_id = walk_id(b'c', &kinds, walk_of(&beginnings).as_bytes(), now);
        let mut walk = match after {
            Some(_) => self.take_walk(&walk_id, now).await?,
            None => self.new_walk().await,
        };
        let look = Look::new(begins_with(&beginnings), wanted(&[SK]));
        let spares = |kind: Kind| stage != Stage::Tombstones && kind.is_tombstone();
        let (removed, spared) = self.erase_step(&mut walk, &look, spares, now).await?;
        let more = self.keep_walk(&walk_id, &walk, now).await?;
        let spared = spared || stage == Stage::Spared;
        let next = match stage {
            _ if more && spared => Some(Stage::Spared),
            _ if more => Some(stage),
            Stage::Tombstones => None,
            Stage::All | Stage::Spared => spared.then_some(Stage::Tombstones),
        };
        let walks = if spared || stage == Stage::Tombstones { 2 } else { 1 };
        let behind = if stage == Stage::Tombstones { walk.segments() } else { 0 };
        Ok(Cleared {
            removed,
            done: (number(behind + walk.segments_over()), number(walks * walk.segments())),
            next: next.map(|stage| Cursor::from_bytes([CLEARING, stage as u8])),
        })
    }

    /// Deletes a page of a walk, except live records of the spared kinds. Returns the number of live ones by kind,
    /// and whether some were spared.
    async fn erase_step(
        &self,
        walk: &mut TableWalk,
        look: &Look,
        spares: impl Fn(Kind) -> bool,
        now: Timestamp,
    ) -> Result<(BTreeMap<Kind, u64>, bool)> {
        let allowance = Allowance::new(ERASED_AT_ONCE);
        let (removed, spared) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
        let deal = |items: Vec<Item>| {
            let (removed, spared, spares) = (&removed, &spared, &spares);
            let drawn = allowance.draw(items.len());
            async move {
                let mut going = Vec::with_capacity(drawn);
                for item in &items[..drawn] {
                    if spares(self.space.kind_of(item)?) && now < expiry_of(item)? {
                        spared.store(true, Ordering::SeqCst);
                    } else {
                        going.push(item);
                    }
                }
                for some in going.chunks(BATCH) {
                    self.delete_all(some).await?;
                    let mut removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
                    for item in some {
                        if now < expiry_of(item)? {
                            *removed.entry(self.space.kind_of(item)?).or_default() += 1;
                        }
                    }
                }
                Dealt::first(drawn, &items)
            }
        };
        self.step(walk, look, &allowance, deal).await?;
        Ok((removed.into_inner().unwrap_or_else(PoisonError::into_inner), spared.into_inner()))
    }

    async fn delete_all(&self, items: &[&Item]) -> Result<()> {
        let mut requests = Vec::with_capacity(items.len());
        for item in items {
            let delete = DeleteRequest::builder().set_key(Some(only_key(item)?)).build();
            let delete =
                delete.map_err(|error| Error::invalid("cannot build a delete request").caused_by(error))?;
            requests.push(WriteRequest::builder().delete_request(delete).build());
        }
        let mut attempts = self.patience.begin();
        while !requests.is_empty() {
            let batch = HashMap::from([(self.table.clone(), requests.clone())]);
            match self.client.batch_write_item().set_request_items(Some(batch)).send().await {
                Ok(output) => {
                    let left = output.unprocessed_items.and_then(|mut left| left.remove(&self.table));
                    requests = left.unwrap_or_default();
                    if !requests.is_empty() {
                        attempts.pause(AttemptFault::Busy(busy("UnprocessedItems"))).await?;
                    }
                }
                Err(error) => attempts.pause(fault(error)).await?,
            }
        }
        Ok(())
    }

    /// Counts all records by a walk through the whole table.
    pub(super) async fn count_all(&self, now: Timestamp) -> Result<Stats> {
        let look = Look::new(begins_with(&self.beginnings(Kind::ALL)), wanted(&[]));
        let (tally, mut walk) = (Mutex::new(Tally::default()), self.new_walk().await);
        while !walk.is_over() {
            self.count_step(&mut walk, &look, &tally, now).await?;
        }
        Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Counts live records under these prefixes in one walk through the table. The position is kept in the table, and
    /// the cursor names only that.
    pub(super) async fn count_scope(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        now: Timestamp,
    ) -> Result<Counted> {
        if prefixes.is_empty() {
            return Ok(Counted::default());
        }
        let beginnings = self.beginnings_of(prefixes);
        let look = Look::new(begins_with(&beginnings).and(live(now)), wanted(&[]));
        let mut walk = self.walk_at(&beginnings, after, now).await?;
        let tally = Mutex::new(Tally::default());
        self.count_step(&mut walk, &look, &tally, now).await?;
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner).0;
        Ok(Counted {
            live: tally.into_iter().map(|(kind, stats)| (kind, stats.live)).collect(),
            done: (number(walk.segments_over()), number(walk.segments())),
            next: self.bookmark_walk(&beginnings, &walk, now).await?,
        })
    }

    async fn count_step(
        &self,
        walk: &mut TableWalk,
        look: &Look,
        tally: &Mutex<Tally>,
        now: Timestamp,
    ) -> Result<()> {
        let deal = |items: Vec<Item>| async move {
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            for item in &items {
                tally.note(self.space.kind_of(item)?, item, now)?;
            }
            Ok(Dealt::All)
        };
        self.step(walk, look, &Allowance::new(u64::MAX), deal).await
    }
}

fn is_long_past(record: &Record, now: Timestamp) -> bool {
    !record.is_live(now) && now.since(record.expires_at) >= LONG_PAST
}

/// Cursor tag of a deletion whose positions are kept in the table.
const CLEARING: u8 = 4;

/// Stage of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// All records; no tombstone was found yet.
    All = 0,
    /// All records; some tombstones were spared.
    Spared = 1,
    /// Tombstones.
    Tombstones = 2,
}

impl Stage {
    fn read(after: Option<&Cursor>) -> Result<Self> {
        match after.map(Cursor::as_bytes) {
            None | Some([CLEARING, 0]) => Ok(Self::All),
            Some([CLEARING, 1]) => Ok(Self::Spared),
            Some([CLEARING, 2]) => Ok(Self::Tombstones),
            Some(_) => Err(Error::invalid("the cursor does not belong to this deletion")),
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Attributes that a walk reads: partition key, expiry and `more`.
fn wanted(more: &[&str]) -> String {
    [&[PK, EXPIRES], more].concat().join(", ")
}

fn walk_id(purpose: u8, kinds: &[Kind], prefix: &[u8], time: Timestamp) -> WalkId {
    let mut walk_id = vec![purpose];
    walk_id.extend(time.as_millis().to_be_bytes());
    walk_id.extend(kinds.iter().map(|kind| kind.code()));
    // No kind has the code zero.
    walk_id.push(0);
    walk_id.extend(prefix);
    walk_id
}

/// Counts by kind.
#[derive(Debug, Default)]
pub(super) struct Tally(Stats);

impl Tally {
    fn note(&mut self, kind: Kind, item: &Item, now: Timestamp) -> Result<()> {
        let expires_at = expiry_of(item)?;
        let stats: &mut KindStats = self.0.entry(kind).or_default();
        if now < expires_at {
            stats.live += 1;
        } else {
            stats.expired += 1;
            stats.oldest_overdue = stats.oldest_overdue.max(Some(now.since(expires_at)));
        }
        Ok(())
    }
}
