//! Listing: a partition by `Query`, scopes by a walk with a filter.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;

use super::DynamoDb;
use super::attempt::{AttemptFault, fault};
use super::condition::{begins_with, live};
use super::item::{Item, PK, SK, binary, record_of};
use super::walk::{Allowance, Dealt, Look, SEGMENTS, TableWalk};
use crate::backend::{BackendExt as _, Cursor, Page};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::Write;

/// Maximum number of requests for one page if little is found: expired and other stores' items are read too. Each
/// reads up to a megabyte.
const REQUESTS: u64 = 16;

/// Lifetime of a bookmark.
const BOOKMARK: Duration = Duration::from_secs(86_400);

/// Cursor tag of a listing of a partition: continues after a record of it.
const BEHIND: u8 = 1;
/// Cursor tag of a walk: continues at the positions, one for each segment, that are kept in the table. They may be
/// keys of other stores' records, so the cursor must not reveal them.
const WALK: u8 = 3;

impl DynamoDb {
    /// Lists a page of a partition, in the order of its keys.
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
        // Read as many items as were requested at first, and more at a time if few of them match.
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
        // Continue after expired records.
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
    ) -> Result<(Vec<Item>, Option<Item>), AttemptFault> {
        // Beyond this, the engine's own limit of a megabyte applies first.
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

    /// Lists a page of live records under these prefixes, in one walk through the table.
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

    /// Common prefixes of the partition keys under these prefixes.
    pub(super) fn beginnings_of(&self, prefixes: &[Prefix]) -> Vec<Vec<u8>> {
        prefixes.iter().map(|prefix| self.space.begin(prefix)).collect()
    }

    /// Builds a query for the items of a partition whose sort keys begin with `sort`, which may be empty.
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

    /// Stores the position of an unfinished walk, and returns the name of the bookmark.
    pub(super) async fn bookmark_walk(
        &self,
        beginnings: &[Vec<u8>],
        walk: &TableWalk,
        now: Timestamp,
    ) -> Result<Option<Cursor>> {
        if walk.is_over() {
            return Ok(None);
        }
        let value = [walk_of(beginnings).as_bytes().as_slice(), &walk.encode()?].concat();
        let name = Version::mint(self.rng.as_ref());
        let record = Record::new(value, now.checked_add(BOOKMARK)?, self.rng.as_ref());
        // A random name is not taken.
        let _ = self.write(Write::Put { key: bookmark_key(name)?, record }, now).await?;
        Ok(Some(Cursor::from_bytes([&[WALK], name.as_bytes().as_slice()].concat())))
    }

    /// Loads the walk that a cursor names, or starts a new one. The cursor is untrusted input.
    pub(super) async fn walk_at(
        &self,
        beginnings: &[Vec<u8>],
        cursor: Option<&Cursor>,
        now: Timestamp,
    ) -> Result<TableWalk> {
        let Some(cursor) = cursor else { return Ok(TableWalk::new(SEGMENTS)) };
        let Some((&WALK, name)) = cursor.as_bytes().split_first() else { return Err(unknown()) };
        let name = Version::from_bytes(name.try_into().map_err(|_| unknown())?);
        let kept = self.read(&bookmark_key(name)?).await?;
        let kept = kept.filter(|record| record.is_live(now)).ok_or_else(unknown)?;
        let walk = kept.value.strip_prefix(walk_of(beginnings).as_bytes().as_slice());
        walk.and_then(TableWalk::decode).ok_or_else(unknown)
    }

    /// Decodes the position in a partition that a cursor names. The cursor is untrusted input.
    fn place(&self, prefix: &Prefix, cursor: &Cursor) -> Result<Item> {
        let Some((&BEHIND, bytes)) = cursor.as_bytes().split_first() else { return Err(unknown()) };
        let key = Key::decode(prefix.kind(), bytes).map_err(|_| unknown())?;
        if prefix.contains(&key) { Ok(self.space.key(&key)) } else { Err(unknown()) }
    }
}

fn unknown() -> Error {
    Error::invalid("the cursor does not belong to this listing, or is too old")
}

/// Identity of a walk, so that the cursor of one is not valid for another.
pub(super) fn walk_of(beginnings: &[Vec<u8>]) -> Digest {
    let parts: Vec<&[u8]> = beginnings.iter().map(Vec::as_slice).collect();
    Digest::of("dynamodb beginnings", &parts)
}

fn bookmark_key(name: Version) -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["dynamodb-bookmark".into(), name.as_bytes().into()], &[])
}
