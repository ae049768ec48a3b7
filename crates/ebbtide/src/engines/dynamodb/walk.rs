//! Walking the whole table, in segments side by side: what sweeping, erasing, counting and listing share.
//!
//! A walk is done in steps of a bounded number of requests. Between the steps its place is kept in the table for a day,
//! under what it is for and the time it was handed: whichever process is handed the same goes on. A walk whose place is
//! forgotten begins again, which costs reads and changes no answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::DynamoDb;
use super::attempt::{Fault, fault};
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

/// How many segments are read side by side.
pub(super) const SEGMENTS: usize = 4;

/// How many requests a step takes, each of which reads up to a megabyte: about a second of work.
const REQUESTS: u64 = 32;

/// How long a place is kept in the table.
const KEPT: Duration = Duration::from_secs(86_400);

/// How far a walk has come in one segment.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Start,
    Behind(Item),
    End,
}

/// How far a walk has come.
#[derive(Debug)]
pub(super) struct Walk {
    places: Vec<Place>,
    /// Whether its place is in the table.
    is_kept: bool,
    /// Whether another process has gone some of it.
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

    /// Whether this process has seen all of it.
    pub(super) fn is_seen_whole(&self) -> bool {
        self.is_over() && !self.is_anothers
    }

    /// How many segments are over.
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
            // A partition key is never empty: an empty one is a start or an end.
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

    /// Reads a walk as `encode` wrote it; none if it is not one of this build's.
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

/// What a walk looks at.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) filter: Asked,
    /// The attributes that are needed; all, if none are named.
    pub(super) projection: Option<String>,
    /// How many items the first request of each segment reads. Each one after it reads four times as many, since
    /// little was found.
    pub(super) at_first: Option<usize>,
    /// How many requests a step takes.
    pub(super) requests: u64,
}

impl Look {
    /// At these attributes of what the filter lets through.
    pub(super) fn new(filter: Asked, projection: String) -> Self {
        Self { filter, projection: Some(projection), at_first: None, requests: REQUESTS }
    }
}

/// How much of a page was dealt with. What was not comes again in the next step.
#[derive(Debug)]
pub(super) enum Dealt {
    All,
    UpTo(Item),
    Nothing,
}

impl Dealt {
    /// The first so many of `items`.
    pub(super) fn first(dealt: usize, items: &[Item]) -> Result<Self> {
        Ok(match dealt.checked_sub(1) {
            _ if dealt == items.len() => Self::All,
            Some(last) => Self::UpTo(only_key(&items[last])?),
            None => Self::Nothing,
        })
    }
}

/// What a walk is for: the same name goes on where the last step ended.
pub(super) type Errand = Vec<u8>;

fn walk_key(errand: &Errand) -> Result<Key> {
    let name = Digest::of("dynamodb walk", &[errand]);
    Key::new(Kind::System, &Scope::Global, &["dynamodb-walk".into(), name.part()], &[])
}

/// How much may still be dealt with, by all segments together.
#[derive(Debug)]
pub(super) struct Allowance(AtomicU64);

impl Allowance {
    pub(super) fn new(most: u64) -> Self {
        Self(AtomicU64::new(most))
    }

    /// As much of `wanted` as is left.
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
    /// The walk of that errand. Two that have it at once do the same work, and no harm.
    pub(super) async fn take_walk(&self, errand: &Errand, now: Timestamp) -> Result<Walk> {
        let kept = self.read(&walk_key(errand)?).await?.filter(|record| record.is_live(now));
        let walk = kept.as_ref().and_then(|record| {
            let (walker, places) = record.value.split_first_chunk::<16>()?;
            let is_anothers = Version::from_bytes(*walker) != self.walker;
            Some(Walk { is_kept: true, is_anothers, ..Walk::decode(places)? })
        });
        Ok(walk.unwrap_or_else(Walk::new))
    }

    /// Remembers a walk that goes on, and says whether it does.
    pub(super) async fn keep_walk(&self, errand: &Errand, walk: &Walk, now: Timestamp) -> Result<bool> {
        let key = walk_key(errand)?;
        if walk.is_over() {
            if walk.is_kept {
                // A delete has no condition that could be refused.
                let _ = self.write(Write::Delete { key }, now).await?;
            }
            return Ok(false);
        }
        // Whoever goes on with what another has begun has not seen all of it, and neither has the other then.
        let walker = if walk.is_anothers { [0; 16] } else { *self.walker.as_bytes() };
        let value = [&walker, walk.encode()?.as_slice()].concat();
        let record = Record::new(value, now.checked_add(KEPT)?, self.rng.as_ref());
        let _ = self.write(Write::Put { key, record }, now).await?;
        Ok(true)
    }

    /// Goes on with a walk. `deal` is handed each page, and answers how much of it it has dealt with.
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
            let mut most = look.at_first;
            while *place != Place::End && !allowance.is_spent() {
                let one = |left: u64| left.checked_sub(1);
                if requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
                    break;
                }
                let start = if let Place::Behind(start) = &*place { Some(start.clone()) } else { None };
                let (items, last) =
                    self.patience.repeat(|| self.send_walk(segment, start.clone(), look, most)).await?;
                most = most.map(|most| most.saturating_mul(4));
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
            // Beyond this the engine's own bound of a megabyte is met first.
            .set_limit(most.map(|most| number(most.min(100_000))))
            .set_exclusive_start_key(start)
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
