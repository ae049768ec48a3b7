//! Listing: a partition by `Query`, scopes by a walk with a filter.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;

use super::DynamoDb;
use super::attempt::{Fault, fault};
use super::condition::{begins_with, live};
use super::item::{Item, PK, SK, binary, record_of};
use super::walk::{Allowance, Dealt, Look, SEGMENTS, Walk};
use crate::backend::{BackendExt as _, Cursor, Page};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::Write;

/// How many requests one page may take where nothing is found, since what has expired and what belongs to others is
/// read too. Each reads up to a megabyte.
const REQUESTS: u64 = 16;

/// How long a bookmark is kept.
const BOOKMARK: Duration = Duration::from_secs(86_400);

/// Where the listing of a partition goes on: behind a record of it.
const BEHIND: u8 = 1;
/// Where a walk goes on: at the places, one for each segment, that are kept in the table. They may be behind somebody
/// else's records, and the names of those are nobody's business.
const WALK: u8 = 3;

impl DynamoDb {
    /// A page of a partition, in the order of its keys.
    pub(super) async fn list_partition(
        &self,
        prefix: &Prefix,
        sort: &[u8],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let mut page = Page::default();
        if limit == 0 {
            return Ok(page);
        }
        let mut start = after.map(|cursor| self.place(prefix, cursor)).transpose()?;
        // What is asked for first is what is wanted; where little of it is found, more is read at a time.
        let mut examined = limit;
        for _ in 0..REQUESTS {
            let (items, last) =
                self.patience.repeat(|| self.send_list(prefix, sort, start.as_ref(), examined, now)).await?;
            let full = items.len() > limit;
            for item in items.into_iter().take(limit) {
                page.items.push((self.space.key_of(&item)?, record_of(&item)?));
            }
            let listed = page.items.last().map(|(key, _)| Self::behind(key));
            match (listed, last) {
                (listed, Some(_)) if listed.is_some() => {
                    page.next = listed;
                    return Ok(page);
                }
                (listed, None) => {
                    page.next = listed.filter(|_| full);
                    return Ok(page);
                }
                (_, last) => start = last,
            }
            examined = examined.saturating_mul(4);
        }
        // Behind what has expired.
        page.next = start.map(|start| self.space.key_of(&start)).transpose()?.map(|key| Self::behind(&key));
        Ok(page)
    }

    async fn send_list(
        &self,
        prefix: &Prefix,
        sort: &[u8],
        start: Option<&Item>,
        examined: usize,
        now: Timestamp,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        // Beyond this the engine's own bound of a megabyte is met first.
        let examined = i32::try_from(examined.min(100_000)).unwrap_or(100_000);
        let filter = live(now);
        let mut query = self.partition_query(prefix, sort);
        for (name, value) in filter.values {
            query = query.expression_attribute_values(name, value);
        }
        let answer = query
            .filter_expression(filter.expression)
            .limit(examined)
            .set_exclusive_start_key(start.cloned())
            .send()
            .await
            .map_err(fault)?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }

    /// A page of what is live under these prefixes, by one walk through the table for all of them.
    pub(super) async fn list_scopes(
        &self,
        prefixes: &[Prefix],
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        if limit == 0 || prefixes.is_empty() {
            return Ok(Page::default());
        }
        let beginnings = self.beginnings_of(prefixes);
        let mut walk = self.walk_at(&beginnings, after, now).await?;
        let look = Look {
            filter: begins_with(&beginnings).and(live(now)),
            projection: None,
            at_first: Some(limit.div_ceil(SEGMENTS)),
            requests: REQUESTS,
        };
        let most = u64::try_from(limit).unwrap_or(u64::MAX);
        let (allowance, found) = (Allowance::new(most), Mutex::new(Vec::new()));
        let deal = |items: Vec<Item>| {
            let drawn = allowance.draw(items.len());
            let found = &found;
            async move {
                let read = |item: &Item| Ok((self.space.key_of(item)?, record_of(item)?));
                let drawn_ones = items[..drawn].iter().map(read).collect::<Result<Vec<_>>>()?;
                found.lock().unwrap_or_else(PoisonError::into_inner).extend(drawn_ones);
                Dealt::first(drawn, &items)
            }
        };
        self.step(&mut walk, &look, &allowance, deal).await?;
        let items = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Page { items, next: self.bookmark_walk(&beginnings, &walk, now).await? })
    }

    /// What the partition keys under these prefixes begin with.
    pub(super) fn beginnings_of(&self, prefixes: &[Prefix]) -> Vec<Vec<u8>> {
        prefixes.iter().map(|prefix| self.space.begin(prefix)).collect()
    }

    /// Asks for the items of a partition whose sort keys begin with `sort`, which may be empty.
    pub(super) fn partition_query(&self, prefix: &Prefix, sort: &[u8]) -> QueryFluentBuilder {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .expression_attribute_values(":pk", binary(&self.space.begin(prefix)));
        if sort.is_empty() {
            return query.key_condition_expression(format!("{PK} = :pk"));
        }
        query
            .key_condition_expression(format!("{PK} = :pk AND begins_with({SK}, :sk)"))
            .expression_attribute_values(":sk", binary(sort))
    }

    fn behind(key: &Key) -> Cursor {
        let mut bytes = vec![BEHIND];
        bytes.extend(key.as_bytes());
        Cursor::from_bytes(bytes)
    }

    /// Keeps the place of a walk through these beginnings that goes on, and answers with its name.
    pub(super) async fn bookmark_walk(
        &self,
        beginnings: &[Vec<u8>],
        walk: &Walk,
        now: Timestamp,
    ) -> Result<Option<Cursor>> {
        if walk.is_over() {
            return Ok(None);
        }
        let value = [walk_of(beginnings).as_bytes().as_slice(), &walk.encode()?].concat();
        let name = Version::mint(self.rng.as_ref());
        let record = Record::new(value, now.checked_add(BOOKMARK)?, self.rng.as_ref());
        // A name of rng is nobody else's.
        let _ = self.write(Write::Put { key: bookmark_key(name)?, record }, now).await?;
        Ok(Some(Cursor::from_bytes([&[WALK], name.as_bytes().as_slice()].concat())))
    }

    /// The walk that a cursor names; without one, from the start. It comes from a caller, and may be anything.
    pub(super) async fn walk_at(
        &self,
        beginnings: &[Vec<u8>],
        cursor: Option<&Cursor>,
        now: Timestamp,
    ) -> Result<Walk> {
        let Some(cursor) = cursor else { return Ok(Walk::new()) };
        let Some((&WALK, name)) = cursor.as_bytes().split_first() else { return Err(unknown()) };
        let name = Version::from_bytes(name.try_into().map_err(|_| unknown())?);
        let kept = self.read(&bookmark_key(name)?).await?;
        let kept = kept.filter(|record| record.is_live(now)).ok_or_else(unknown)?;
        let walk = kept.value.strip_prefix(walk_of(beginnings).as_bytes().as_slice());
        walk.and_then(Walk::decode).ok_or_else(unknown)
    }

    /// The place that a cursor of a partition names. It comes from a caller, and may be anything.
    fn place(&self, prefix: &Prefix, cursor: &Cursor) -> Result<Item> {
        let Some((&BEHIND, bytes)) = cursor.as_bytes().split_first() else { return Err(unknown()) };
        let key = Key::decode(prefix.kind(), bytes).map_err(|_| unknown())?;
        if prefix.contains(&key) { Ok(self.space.key(&key)) } else { Err(unknown()) }
    }
}

fn unknown() -> Error {
    Error::invalid("this cursor is not one of this listing, or is too old")
}

/// What a walk goes through, so that the cursor of one is none of another.
pub(super) fn walk_of(beginnings: &[Vec<u8>]) -> Digest {
    let parts: Vec<&[u8]> = beginnings.iter().map(Vec::as_slice).collect();
    Digest::of("dynamodb beginnings", &parts)
}

fn bookmark_key(name: Version) -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["dynamodb-bookmark".into(), name.as_bytes().into()], &[])
}
