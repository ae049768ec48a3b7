//! Walking the whole table, in segments side by side: what sweeping, erasing and counting share.
//!
//! A walk is done in steps of a bounded number of requests. Between the steps its place is remembered by this
//! process, under what it is for and the time it was handed. A walk whose place is forgotten begins again, which
//! costs reads and changes no answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use futures_util::future::try_join_all;

use super::DynamoDb;
use super::attempt::{Fault, fault};
use super::condition::Asked;
use super::item::Item;
use crate::error::Result;

/// How many segments are read side by side.
const SEGMENTS: usize = 4;

/// How many requests a step takes, each of which reads up to a megabyte.
const REQUESTS: u64 = 256;

/// How many walks are remembered.
const REMEMBERED: usize = 16;

/// How far a walk has come in one segment.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Start,
    Behind(Item),
    End,
}

/// How far a walk has come.
#[derive(Debug)]
pub(super) struct Walk(Vec<Place>);

impl Walk {
    pub(super) fn new() -> Self {
        Self(vec![Place::Start; SEGMENTS])
    }

    pub(super) fn is_new(&self) -> bool {
        self.0.iter().all(|place| *place == Place::Start)
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.iter().all(|place| *place == Place::End)
    }
}

/// What a walk is for: the same name goes on where the last step ended.
pub(super) type Errand = Vec<u8>;

/// The walks that have not come to their end.
#[derive(Debug, Default)]
pub(super) struct Walks(Mutex<HashMap<Errand, Walk>>);

impl Walks {
    /// The walk of that errand. Whoever has it is alone with it: a second one begins its own.
    pub(super) fn take(&self, errand: &Errand) -> Walk {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(errand).unwrap_or_else(Walk::new)
    }

    /// Remembers a walk that goes on, and says whether it does.
    pub(super) fn keep(&self, errand: Errand, walk: Walk) -> bool {
        if walk.is_over() {
            return false;
        }
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if walks.len() >= REMEMBERED {
            walks.clear();
        }
        walks.insert(errand, walk);
        true
    }
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
    /// Goes on with a walk over the items that `filter` lets through. `deal` is handed each page, and answers whether
    /// it has dealt with all of it: if not, the page comes again in the next step.
    pub(super) async fn step<F>(
        &self,
        walk: &mut Walk,
        filter: &Asked,
        projection: &str,
        allowance: &Allowance,
        deal: impl Fn(Vec<Item>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        let requests = AtomicU64::new(REQUESTS);
        let (requests, deal) = (&requests, &deal);
        let segments = walk.0.iter_mut().enumerate().map(|(segment, place)| async move {
            while *place != Place::End && !allowance.is_spent() {
                let one = |left: u64| left.checked_sub(1);
                if requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
                    break;
                }
                let start = if let Place::Behind(start) = &*place { Some(start.clone()) } else { None };
                let (items, last) = self
                    .patience
                    .repeat(|| self.send_walk(segment, start.clone(), filter, projection))
                    .await?;
                if !items.is_empty() && !deal(items).await? {
                    break;
                }
                *place = last.map_or(Place::End, Place::Behind);
            }
            Ok(())
        });
        try_join_all(segments).await.map(drop)
    }

    async fn send_walk(
        &self,
        segment: usize,
        start: Option<Item>,
        filter: &Asked,
        projection: &str,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let answer = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .segment(number(segment))
            .total_segments(number(SEGMENTS))
            .projection_expression(projection)
            .filter_expression(&filter.expression)
            .set_expression_attribute_values(Some(filter.values.clone()))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(fault)?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}
