//! Walk through the whole table in parallel segments, for sweeping, erasing, counting and listing.
//!
//! A walk proceeds in steps of a bounded number of requests. Between the steps its position is kept in the table for
//! nine days, by its purpose and its time: any process with the same two resumes it. A walk whose position is lost starts
//! again, which costs reads and changes no answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::DynamoDb;
use super::attempt::{AttemptFault, fault};
use super::client::for_a_page;
use super::condition::ConditionExpression;
use super::item::{Item, PK, SK, bytes_of, item_key, only_key};
use crate::admin::{KindStats, Stats};
use crate::backend::BackendExt as _;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::Write;

/// Number of segments that are read in parallel, of a small table or one of unknown size, and at the most: each may have
/// a page of a megabyte in memory.
pub(super) const SEGMENTS: usize = 4;
const MOST_SEGMENTS: usize = 16;

/// Size of a segment of a larger table.
const SEGMENT_BYTES: u64 = 256 << 20;

/// Requests per step, each of which reads up to a megabyte: about a second of work in four segments.
const REQUESTS: u64 = 32;

/// Lifetime of a position in the table: a walk goes on over several periods of a daily schedule.
const KEPT: Duration = Duration::from_secs(9 * 86_400);

/// Number of items of the first page, and of the smallest, after a page that took too long.
const SMALLER_PAGE: usize = 1_000;
const SMALLEST_PAGE: usize = 10;

/// Position of a walk in one segment.
#[derive(Debug, Clone, PartialEq)]
enum SegmentPosition {
    Start,
    Behind(Item),
    End,
}

/// Position of a walk, and what it has found so far.
#[derive(Debug)]
pub(super) struct TableWalk {
    places: Vec<SegmentPosition>,
    /// Number of items that were read, whether they matched or not.
    looked_at: u64,
    /// Approximate number of items of the table, some hours old; zero if it is unknown.
    items: u64,
    /// Counts of a walk that reports them. They are kept with the position, so that whoever ends the walk reports the
    /// whole.
    pub(super) tally: Stats,
    /// True if the position is in the table.
    is_kept: bool,
}

impl TableWalk {
    pub(super) fn new(segments: usize) -> Self {
        Self {
            places: vec![SegmentPosition::Start; segments],
            looked_at: 0,
            items: 0,
            tally: Stats::new(),
            is_kept: false,
        }
    }

    /// Creates a walk through a table of this size.
    fn through(items: u64, bytes: u64) -> Self {
        let segments = usize::try_from(bytes / SEGMENT_BYTES).unwrap_or(MOST_SEGMENTS);
        Self { items, ..Self::new(segments.clamp(SEGMENTS, MOST_SEGMENTS)) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.segments_over() == self.places.len()
    }

    /// Percentage of the table that was walked through: by items, if their number is known. Only the end is 100.
    pub(super) fn progress(&self) -> u8 {
        let percentage = |part: u64, whole: u64| {
            u8::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u8::MAX)
        };
        if self.is_over() {
            100
        } else if self.items == 0 {
            percentage(self.segments_over() as u64, self.places.len() as u64)
        } else {
            percentage(self.looked_at, self.items).min(99)
        }
    }

    /// Number of finished segments.
    pub(super) fn segments_over(&self) -> usize {
        self.places.iter().filter(|place| **place == SegmentPosition::End).count()
    }

    pub(super) fn segments(&self) -> usize {
        self.places.len()
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![FORMAT];
        bytes.extend([self.looked_at, self.items].map(u64::to_be_bytes).concat());
        bytes.push(u8::try_from(self.tally.len()).expect("there are fewer kinds"));
        for (kind, stats) in &self.tally {
            let oldest =
                stats.oldest_overdue.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(0));
            bytes.push(kind.code());
            bytes.extend([stats.live, stats.expired, oldest].map(u64::to_be_bytes).concat());
        }
        bytes.push(u8::try_from(self.places.len()).expect("there are few segments"));
        let mut put = |part: &[u8]| {
            bytes.extend(u16::try_from(part.len()).expect("a key is below 65,536 bytes").to_be_bytes());
            bytes.extend(part);
        };
        for place in &self.places {
            // A partition key is never empty: an empty one marks the start or the end.
            let (partition, sort): (&[u8], &[u8]) = match place {
                SegmentPosition::Start => (&[], &[]),
                SegmentPosition::End => (&[], &[1]),
                SegmentPosition::Behind(item) => (bytes_of(item, PK)?, bytes_of(item, SK)?),
            };
            put(partition);
            put(sort);
        }
        Ok(bytes)
    }

    /// Decodes a walk; `None` if this build did not write it.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, mut rest) = bytes.split_first()? else { return None };
        let (looked_at, items) = (number(&mut rest)?, number(&mut rest)?);
        let (kinds, mut tally) = (take(&mut rest, 1)?[0], Stats::new());
        for _ in 0..kinds {
            let kind = Kind::from_code(take(&mut rest, 1)?[0])?;
            let (live, expired, oldest) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
            let oldest_overdue = (oldest != u64::MAX).then(|| Duration::from_millis(oldest));
            tally.insert(kind, KindStats { live, expired, oldest_overdue });
        }
        let (segments, mut places) = (take(&mut rest, 1)?[0], Vec::new());
        let mut part = || {
            let length = u16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
            take(&mut rest, usize::from(length))
        };
        for _ in 0..segments {
            places.push(match (part()?, part()?) {
                ([], []) => SegmentPosition::Start,
                ([], _) => SegmentPosition::End,
                (partition, sort) => SegmentPosition::Behind(item_key(partition, sort)),
            });
        }
        let is_whole = rest.is_empty() && !places.is_empty();
        is_whole.then_some(Self { places, looked_at, items, tally, is_kept: false })
    }
}

/// First byte of an encoded walk. A walk in another format begins again.
const FORMAT: u8 = 2;

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(part)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(take(bytes, 8)?.try_into().ok()?))
}

/// Parameters of a walk.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) filter: ConditionExpression,
    /// Attributes to read; all if `None`.
    pub(super) projection: Option<String>,
    /// Number of items that the first request of each segment reads. Each later one reads four times as many, since
    /// few items matched.
    pub(super) at_first: Option<usize>,
    /// Requests per step.
    pub(super) requests: u64,
}

impl Look {
    /// Creates a walk over these attributes of the items that match the filter.
    pub(super) fn new(filter: ConditionExpression, projection: String) -> Self {
        Self { filter, projection: Some(projection), at_first: None, requests: REQUESTS }
    }
}

/// Part of a page that was processed. The rest comes again in the next step.
#[derive(Debug)]
pub(super) enum Dealt {
    All,
    UpTo(Item),
    Nothing,
}

impl Dealt {
    /// The first `dealt` items.
    pub(super) fn first(dealt: usize, items: &[Item]) -> Result<Self> {
        Ok(match dealt.checked_sub(1) {
            _ if dealt == items.len() => Self::All,
            Some(last) => Self::UpTo(only_key(&items[last])?),
            None => Self::Nothing,
        })
    }
}

/// Identity of a walk: a step with the same one continues after the last.
pub(super) type WalkId = Vec<u8>;

fn walk_key(walk_id: &WalkId) -> Result<Key> {
    let name = Digest::of("dynamodb walk", &[walk_id]);
    Key::new(Kind::System, &Scope::Global, &["dynamodb-walk".into(), name.part()], &[])
}

/// Remaining number of items that all segments together may process.
#[derive(Debug)]
pub(super) struct Allowance(AtomicU64);

impl Allowance {
    pub(super) fn new(most: u64) -> Self {
        Self(AtomicU64::new(most))
    }

    /// Takes up to `wanted` of the rest.
    pub(super) fn draw(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        let draw = |left: u64| Some(left - left.min(wanted));
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, draw).unwrap_or_default();
        usize::try_from(left.min(wanted)).unwrap_or(usize::MAX)
    }

    fn is_spent(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl DynamoDb {
    /// Begins a walk whose segments fit the size of the table. A role that may not describe it walks in four.
    pub(super) async fn new_walk(&self) -> TableWalk {
        match self.send_find_table().await {
            Ok(Some(table)) => TableWalk::through(table.items, table.bytes),
            _ => TableWalk::new(SEGMENTS),
        }
    }

    /// Loads the walk of this purpose. Two processes that run it at once repeat work and do no harm.
    pub(super) async fn take_walk(&self, walk_id: &WalkId, now: Timestamp) -> Result<TableWalk> {
        let kept = self.read(&walk_key(walk_id)?).await?.filter(|record| record.is_live(now));
        match kept.as_ref().and_then(|record| TableWalk::decode(&record.value)) {
            Some(walk) => Ok(TableWalk { is_kept: true, ..walk }),
            None => Ok(self.new_walk().await),
        }
    }

    /// Stores an unfinished walk, and returns true if it is unfinished.
    pub(super) async fn keep_walk(&self, walk_id: &WalkId, walk: &TableWalk, now: Timestamp) -> Result<bool> {
        let key = walk_key(walk_id)?;
        if walk.is_over() {
            if walk.is_kept {
                // An unconditional delete cannot be refused.
                let _ = self.write(Write::Delete { key }, now).await?;
            }
            return Ok(false);
        }
        let record = Record::new(walk.encode()?, now.checked_add(KEPT)?, self.rng.as_ref());
        let _ = self.write(Write::Put { key, record }, now).await?;
        Ok(true)
    }

    /// Continues a walk. `deal` receives each page, and returns the part it has processed.
    pub(super) async fn step<F>(
        &self,
        walk: &mut TableWalk,
        look: &Look,
        allowance: &Allowance,
        deal: impl Fn(Vec<Item>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<Dealt>>,
    {
        let total = walk.places.len();
        let requests = AtomicU64::new(look.requests.saturating_mul(total as u64) / SEGMENTS as u64);
        let looked_at = AtomicU64::new(walk.looked_at);
        let (requests, looked, deal) = (&requests, &looked_at, &deal);
        let segments = walk.places.iter_mut().enumerate().map(|(segment, place)| async move {
            let (mut most, mut slow) = (look.at_first, false);
            while *place != SegmentPosition::End && !allowance.is_spent() {
                let one = |left: u64| left.checked_sub(1);
                if requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
                    break;
                }
                let start =
                    if let SegmentPosition::Behind(start) = &*place { Some(start.clone()) } else { None };
                let part = (segment, total);
                let Some(Scanned { items, last, count }) =
                    self.send_page(part, start, look, &mut most).await?
                else {
                    // A smaller one is asked for, and those after it are no larger.
                    slow = true;
                    continue;
                };
                looked.fetch_add(count, Ordering::SeqCst);
                most = most.map(|most| if slow { most } else { most.saturating_mul(4) });
                let dealt = if items.is_empty() { Dealt::All } else { deal(items).await? };
                *place = match dealt {
                    Dealt::All => last.map_or(SegmentPosition::End, SegmentPosition::Behind),
                    Dealt::UpTo(item) => SegmentPosition::Behind(item),
                    Dealt::Nothing => break,
                };
            }
            Ok(())
        });
        try_join_all(segments).await?;
        walk.looked_at = looked_at.into_inner();
        Ok(())
    }

    /// Reads a page. None if it took too long: `most` is then smaller, until it cannot be.
    async fn send_page(
        &self,
        part: (usize, usize),
        start: Option<Item>,
        look: &Look,
        most: &mut Option<usize>,
    ) -> Result<Option<Scanned>> {
        match self.send_walk(part, start.clone(), look, *most).await {
            Ok(page) => Ok(Some(page)),
            Err(AttemptFault::Lost(_)) if most.is_none_or(|most| most > SMALLEST_PAGE) => {
                *most = Some(most.map_or(SMALLER_PAGE, |most| (most / 8).clamp(SMALLEST_PAGE, SMALLER_PAGE)));
                Ok(None)
            }
            Err(fault) => {
                let mut attempts = self.patience.begin();
                attempts.pause(fault).await?;
                let again = || self.send_walk(part, start.clone(), look, *most);
                self.patience.repeat(again).await.map(Some)
            }
        }
    }

    async fn send_walk(
        &self,
        (segment, total): (usize, usize),
        start: Option<Item>,
        look: &Look,
        most: Option<usize>,
    ) -> Result<Scanned, AttemptFault> {
        let whole = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let answer = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .segment(whole(segment))
            .total_segments(whole(total))
            .set_projection_expression(look.projection.clone())
            .filter_expression(&look.filter.expression)
            .set_expression_attribute_values(Some(look.filter.values.clone()))
            // Beyond this, the engine's own limit of a megabyte applies first.
            .set_limit(most.map(|most| whole(most.min(100_000))))
            .set_exclusive_start_key(start)
            .customize()
            .config_override(for_a_page())
            .send()
            .await
            .map_err(fault)?;
        let count = u64::try_from(answer.scanned_count).unwrap_or_default();
        Ok(Scanned { items: answer.items.unwrap_or_default(), last: answer.last_evaluated_key, count })
    }
}

/// Page of a walk.
struct Scanned {
    items: Vec<Item>,
    /// Position behind the page; none at the end of the segment.
    last: Option<Item>,
    /// Number of items that were read, whether they matched or not.
    count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_read_as_it_was_written() {
        let mut walk = TableWalk::through(1_000, 10 * SEGMENT_BYTES);
        walk.places[0] = SegmentPosition::Behind(item_key(b"partition", b"s"));
        walk.places[1] = SegmentPosition::End;
        walk.places[2] = SegmentPosition::Behind(item_key(b"p", &[0xFF; 1_000]));
        walk.looked_at = 7;
        let late = KindStats { live: 1, expired: 2, oldest_overdue: Some(Duration::from_millis(3)) };
        walk.tally = [(Kind::Grant, late), (Kind::Code, KindStats::default())].into();
        let bytes = walk.encode().unwrap();
        let read = TableWalk::decode(&bytes).unwrap();
        assert_eq!((&read.places, &read.tally), (&walk.places, &walk.tally));
        assert_eq!((read.looked_at, read.items, read.segments()), (7, 1_000, 10));
        assert!(TableWalk::decode(&bytes[1..]).is_none());
        assert!(TableWalk::decode(&[&bytes, &b"x"[..]].concat()).is_none());
        assert!(TableWalk::decode(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn segments_grow_with_the_table() {
        let segments = |bytes: u64| TableWalk::through(1, bytes).segments();
        assert_eq!([0, SEGMENT_BYTES, 9 * SEGMENT_BYTES, u64::MAX].map(segments), [4, 4, 9, 16]);
    }

    #[test]
    fn progress_is_by_items_and_whole_at_the_end_alone() {
        let mut walk = TableWalk::through(1_000, 0);
        walk.looked_at = 250;
        assert_eq!(walk.progress(), 25);
        // The table has grown since its items were counted.
        walk.looked_at = 2_000;
        assert_eq!(walk.progress(), 99);
        walk.places.fill(SegmentPosition::End);
        assert_eq!(walk.progress(), 100);
        let mut unknown = TableWalk::new(4);
        unknown.places[0] = SegmentPosition::End;
        assert_eq!(unknown.progress(), 25);
    }
}
