//! Listing: a partition by `Query`, a scope by `Scan` with a filter.

use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;

use super::DynamoDb;
use super::attempt::{Fault, fault};
use super::condition::{begins_with, live};
use super::item::{Item, PK, SK, binary, bytes_of, item_key, record_of};
use super::walk::Walk;
use crate::backend::{BackendExt as _, Cursor, Page};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::key::{Key, Prefix};
use crate::kind::Kind;
use crate::record::{Record, Version};
use crate::scope::Scope;
use crate::time::Timestamp;
use crate::write::Write;

/// How many requests one page may take where nothing is found, since what has expired and what belongs to others is
/// read too. Each reads up to a megabyte.
const REQUESTS: usize = 16;

/// How long a bookmark is kept.
const BOOKMARK: Duration = Duration::from_secs(86_400);

/// Where a listing goes on: behind a record that it has listed.
const BEHIND: u8 = 1;
/// Where a listing goes on: at a place that is kept in the table, since it is behind somebody else's record, and the
/// name of that is nobody's business.
const BOOKMARKED: u8 = 2;
/// Where a count goes on: at the places, one for each segment, that are kept in the table.
const WALK: u8 = 3;

impl DynamoDb {
    pub(super) async fn list(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        let mut page = Page::default();
        if limit == 0 {
            return Ok(page);
        }
        let mut start = match after {
            Some(cursor) => Some(self.place(prefix, cursor, now).await?),
            None => None,
        };
        // What is asked for first is what is wanted; where little of it is found, more is read at a time.
        let mut examined = limit;
        for _ in 0..REQUESTS {
            let (items, last) =
                self.patience.repeat(|| self.send_list(prefix, start.as_ref(), examined, now)).await?;
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
        if let Some(start) = start {
            page.next = Some(self.bookmark(&start, now).await?);
        }
        Ok(page)
    }

    async fn send_list(
        &self,
        prefix: &Prefix,
        start: Option<&Item>,
        examined: usize,
        now: Timestamp,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        // Beyond this the engine's own bound of a megabyte is met first.
        let examined = i32::try_from(examined.min(100_000)).unwrap_or(100_000);
        if let Some((_, sort)) = prefix.within_partition() {
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
            return Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key));
        }
        let filter = begins_with(&[self.space.begin(prefix)]).and(live(now));
        let answer = self
            .client
            .scan()
            .table_name(&self.table)
            .consistent_read(true)
            .filter_expression(filter.expression)
            .set_expression_attribute_values(Some(filter.values))
            .limit(examined)
            .set_exclusive_start_key(start.cloned())
            .send()
            .await
            .map_err(fault)?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
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

    /// Keeps a place in the table, and answers with its name.
    async fn bookmark(&self, place: &Item, now: Timestamp) -> Result<Cursor> {
        let (partition, sort) = (bytes_of(place, PK)?, bytes_of(place, SK)?);
        let length = u16::try_from(partition.len()).expect("a partition key is below 65,536 bytes");
        self.keep_bookmark(BOOKMARKED, [&length.to_be_bytes(), partition, sort].concat(), now).await
    }

    async fn keep_bookmark(&self, form: u8, value: Vec<u8>, now: Timestamp) -> Result<Cursor> {
        let name = Version::mint(self.chance.as_ref());
        let record = Record::new(value, now.checked_add(BOOKMARK)?, self.chance.as_ref());
        // A name of chance is nobody else's.
        let _ = self.write(Write::Put { key: bookmark_key(name)?, record }, now).await?;
        let mut bytes = vec![form];
        bytes.extend(name.as_bytes());
        Ok(Cursor::from_bytes(bytes))
    }

    async fn bookmarked(&self, name: &[u8], now: Timestamp) -> Result<Record> {
        let name = Version::from_bytes(name.try_into().map_err(|_| unknown())?);
        let kept = self.read(&bookmark_key(name)?).await?;
        kept.filter(|record| record.is_live(now)).ok_or_else(unknown)
    }

    /// Keeps the place of a walk through these beginnings, and answers with its name.
    pub(super) async fn bookmark_walk(
        &self,
        beginnings: &[Vec<u8>],
        walk: &Walk,
        now: Timestamp,
    ) -> Result<Cursor> {
        let value = [walk_of(beginnings).as_bytes().as_slice(), &walk.encode()?].concat();
        self.keep_bookmark(WALK, value, now).await
    }

    /// The walk that a cursor names. It comes from a caller, and may be anything.
    pub(super) async fn walk_at(
        &self,
        beginnings: &[Vec<u8>],
        cursor: &Cursor,
        now: Timestamp,
    ) -> Result<Walk> {
        let Some((&WALK, name)) = cursor.as_bytes().split_first() else { return Err(unknown()) };
        let kept = self.bookmarked(name, now).await?;
        let walk = kept.value.strip_prefix(walk_of(beginnings).as_bytes().as_slice());
        walk.and_then(Walk::decode).ok_or_else(unknown)
    }

    /// The place that a cursor names. It comes from a caller, and may be anything.
    async fn place(&self, prefix: &Prefix, cursor: &Cursor, now: Timestamp) -> Result<Item> {
        match cursor.as_bytes().split_first() {
            Some((&BEHIND, bytes)) => {
                let key = Key::decode(prefix.kind(), bytes).map_err(|_| unknown())?;
                if prefix.contains(&key) { Ok(self.space.key(&key)) } else { Err(unknown()) }
            }
            Some((&BOOKMARKED, name)) if prefix.within_partition().is_none() => {
                let kept = self.bookmarked(name, now).await?;
                let (length, rest) = kept.value.split_first_chunk::<2>().ok_or_else(unknown)?;
                let place = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)));
                let (partition, sort) = place.ok_or_else(unknown)?;
                Ok(item_key(partition, sort))
            }
            _ => Err(unknown()),
        }
    }
}

fn unknown() -> Error {
    Error::invalid("this cursor is not one of this listing, or is too old")
}

/// What a walk goes through, so that the cursor of one is none of another.
fn walk_of(beginnings: &[Vec<u8>]) -> Digest {
    let parts: Vec<&[u8]> = beginnings.iter().map(Vec::as_slice).collect();
    Digest::of("dynamodb count", &parts)
}

fn bookmark_key(name: Version) -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["dynamodb-bookmark".into(), name.as_bytes().into()], &[])
}
