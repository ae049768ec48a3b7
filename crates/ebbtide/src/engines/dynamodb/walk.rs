//! Walk through the whole table in parallel segments, for sweeping, erasing, counting and listing.
//!
//! A walk proceeds in steps of a bounded number of requests. Between the steps its position is kept in the table for
//! nine days, by its purpose and its time: any process with the same two resumes it. A walk whose position is lost starts
//! again, which costs reads and changes no answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::DynamoDb;
use super::attempt::{Fault, fault};
use super::client::for_a_page;
use super::condition::Asked;
use super::item::{Item, PK, SK, bytes_of, item_key, only_key};
use crate::backend::BackendExt as _;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::Write;

/// Number of segments read in parallel.
pub(super) const SEGMENTS: usize = 4;

/// Requests per step, each of which reads up to a megabyte: about a second of work.
const REQUESTS: u64 = 32;

/// Lifetime of a position in the table: a walk goes on over several periods of a daily schedule.
const KEPT: Duration = Duration::from_secs(9 * 86_400);

/// Number of items of the first page, and of the smallest, after a page that took too long.
const SMALLER_PAGE: usize = 1_000;
const SMALLEST_PAGE: usize = 10;

/// Position of a walk in one segment.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Start,
    Behind(Item),
    End,
}

/// Position of a walk.
#[derive(Debug)]
pub(super) struct Walk {
    places: Vec<Place>,
    /// True if the position is in the table.
    is_kept: bool,
    /// True if another process has done part of the walk.
    is_anothers: bool,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self { places: vec![Place::Start; SEGMENTS], is_kept: false, is_anothers: false }
    }

    pub(super) fn is_new(&self) -> bool {
        self.places.iter().all(|place| *place == Place::Start)
    }

    pub(super) fn is_over(&self) -> bool {
        self.segments_over() == self.places.len()
    }

    /// Returns true if this process has done the whole walk.
    pub(super) fn is_seen_whole(&self) -> bool {
        self.is_over() && !self.is_anothers
    }

    /// Number of finished segments.
    pub(super) fn segments_over(&self) -> usize {
        self.places.iter().filter(|place| **place == Place::End).count()
    }

    pub(super) fn segments(&self) -> usize {
        self.places.len()
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut put = |part: &[u8]| {
            bytes.extend(u16::try_from(part.len()).expect("a key is below 65,536 bytes").to_be_bytes());
            bytes.extend(part);
        };
        for place in &self.places {
            // A partition key is never empty: an empty one marks the start or the end.
            let (partition, sort): (&[u8], &[u8]) = match place {
                Place::Start => (&[], &[]),
                Place::End => (&[], &[1]),
                Place::Behind(item) => (bytes_of(item, PK)?, bytes_of(item, SK)?),
            };
            put(partition);
            put(sort);
        }
        Ok(bytes)
    }

    /// Decodes a walk; `None` if this build did not write it.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut next = || {
            let (length, rest) = bytes.split_first_chunk::<2>()?;
            let (part, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            bytes = rest;
            Some(part)
        };
        let mut places = Vec::with_capacity(SEGMENTS);
        for _ in 0..SEGMENTS {
            places.push(match (next()?, next()?) {
                ([], []) => Place::Start,
                ([], _) => Place::End,
                (partition, sort) => Place::Behind(item_key(partition, sort)),
            });
        }
        bytes.is_empty().then_some(Self { places, is_kept: false, is_anothers: false })
    }
}

/// Parameters of a walk.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) filter: Asked,
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
    pub(super) fn new(filter: Asked, projection: String) -> Self {
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

/// Purpose of a walk: a step with the same name continues after the last one.
pub(super) type Errand = Vec<u8>;

fn walk_key(errand: &Errand) -> Result<Key> {
    let name = Digest::of("dynamodb walk", &[errand]);
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
    /// Loads the walk of this purpose. Two processes that run it at once repeat work and do no harm.
    pub(super) async fn take_walk(&self, errand: &Errand, now: Timestamp) -> Result<Walk> {
        let kept = self.read(&walk_key(errand)?).await?.filter(|record| record.is_live(now));
        let walk = kept.as_ref().and_then(|record| {
            let (walker, places) = record.value.split_first_chunk::<16>()?;
            let is_anothers = Version::from_bytes(*walker) != self.walker;
            Some(Walk { is_kept: true, is_anothers, ..Walk::decode(places)? })
        });
        Ok(walk.unwrap_or_else(Walk::new))
    }

    /// Stores an unfinished walk, and returns true if it is unfinished.
    pub(super) async fn keep_walk(&self, errand: &Errand, walk: &Walk, now: Timestamp) -> Result<bool> {
        let key = walk_key(errand)?;
        if walk.is_over() {
            if walk.is_kept {
                // An unconditional delete cannot be refused.
                let _ = self.write(Write::Delete { key }, now).await?;
            }
            return Ok(false);
        }
        // A process that resumes another's walk has not seen all of it, and neither has the other.
        let walker = if walk.is_anothers { [0; 16] } else { *self.walker.as_bytes() };
        let value = [&walker, walk.encode()?.as_slice()].concat();
        let record = Record::new(value, now.checked_add(KEPT)?, self.rng.as_ref());
        let _ = self.write(Write::Put { key, record }, now).await?;
        Ok(true)
    }

    /// Continues a walk. `deal` receives each page, and returns the part it has processed.
    pub(super) async fn step<F>(
        &self,
        walk: &mut Walk,
        look: &Look,
        allowance: &Allowance,
        deal: impl Fn(Vec<Item>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<Dealt>>,
    {
        let requests = AtomicU64::new(look.requests);
        let (requests, deal) = (&requests, &deal);
        let segments = walk.places.iter_mut().enumerate().map(|(segment, place)| async move {
            let (mut most, mut slow) = (look.at_first, false);
            while *place != Place::End && !allowance.is_spent() {
                let one = |left: u64| left.checked_sub(1);
                if requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
                    break;
                }
                let start = if let Place::Behind(start) = &*place { Some(start.clone()) } else { None };
                let Some((items, last)) = self.send_page(segment, start, look, &mut most).await? else {
                    // A smaller one is asked for, and those after it are no larger.
                    slow = true;
                    continue;
                };
                most = most.map(|most| if slow { most } else { most.saturating_mul(4) });
                let dealt = if items.is_empty() { Dealt::All } else { deal(items).await? };
                *place = match dealt {
                    Dealt::All => last.map_or(Place::End, Place::Behind),
                    Dealt::UpTo(item) => Place::Behind(item),
                    Dealt::Nothing => break,
                };
            }
            Ok(())
        });
        try_join_all(segments).await.map(drop)
    }

    /// Reads a page. None if it took too long: `most` is then smaller, until it cannot be.
    async fn send_page(
        &self,
        segment: usize,
        start: Option<Item>,
        look: &Look,
        most: &mut Option<usize>,
    ) -> Result<Option<(Vec<Item>, Option<Item>)>> {
        match self.send_walk(segment, start.clone(), look, *most).await {
            Ok(page) => Ok(Some(page)),
            Err(Fault::Lost(_)) if most.is_none_or(|most| most > SMALLEST_PAGE) => {
                *most = Some(most.map_or(SMALLER_PAGE, |most| (most / 8).clamp(SMALLEST_PAGE, SMALLER_PAGE)));
                Ok(None)
            }
            Err(fault) => {
                let mut attempts = self.patience.begin();
                attempts.pause(fault).await?;
                let again = || self.send_walk(segment, start.clone(), look, *most);
                self.patience.repeat(again).await.map(Some)
            }
        }
    }

    async fn send_walk(
        &self,
        segment: usize,
        start: Option<Item>,
        look: &Look,
        most: Option<usize>,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let answer = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .segment(number(segment))
            .total_segments(number(SEGMENTS))
            .set_projection_expression(look.projection.clone())
            .filter_expression(&look.filter.expression)
            .set_expression_attribute_values(Some(look.filter.values.clone()))
            // Beyond this, the engine's own limit of a megabyte applies first.
            .set_limit(most.map(|most| number(most.min(100_000))))
            .set_exclusive_start_key(start)
            .customize()
            .config_override(for_a_page())
            .send()
            .await
            .map_err(fault)?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_read_as_it_was_written() {
        let mut walk = Walk::new();
        walk.places[0] = Place::Behind(item_key(b"partition", b"s"));
        walk.places[1] = Place::End;
        walk.places[2] = Place::Behind(item_key(b"p", &[0xFF; 1_000]));
        let bytes = walk.encode().unwrap();
        assert_eq!(Walk::decode(&bytes).unwrap().places, walk.places);
        assert!(Walk::decode(&bytes[1..]).is_none());
        assert!(Walk::decode(&[&bytes, &b"x"[..]].concat()).is_none());
    }
}
