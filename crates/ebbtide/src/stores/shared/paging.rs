//! Pages of a listing, and the loop that reads all of them.

use crate::backend::{Cursor, Page};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::stores::Stores;
use crate::timekeeping::Now;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// Items of the page. There may be fewer than the limit, even none, and still be a next page.
    pub items: Vec<T>,
    /// Start of the next page; none at the end. Pass it back unchanged, to the same listing.
    pub next: Option<Cursor>,
}

impl<T> Listing<T> {
    pub(crate) fn read(page: Page, read: impl Fn(Key, Record) -> Result<T>) -> Result<Self> {
        let items = page.items.into_iter().map(|(key, record)| read(key, record)).collect::<Result<_>>()?;
        Ok(Self { items, next: page.next })
    }
}

/// Highest limit of a page.
pub const MAX_LIMIT: usize = 1_000;

/// Refuses a limit of zero, and one above [`MAX_LIMIT`].
pub(crate) fn check_limit(limit: usize) -> Result<()> {
    if limit == 0 || limit > MAX_LIMIT {
        return Err(Error::invalid(format!("a page has 1 to {MAX_LIMIT} items")).about("limit"));
    }
    Ok(())
}

/// Bytes of values after which a page ends, for kinds whose records may be large.
pub(crate) const MAX_PAGE_BYTES: usize = 2 << 20;

/// Records that are read before their size is known.
pub(crate) const FIRST_RECORDS: usize = 16;

/// Records of the first of several pages, before their size is known.
const FIRST_PAGE: usize = 100;

/// Records that are read at a time at the most: they may be larger than those before.
const MOST_RECORDS: usize = 128;

/// Reads a page of records that may be large: of at most `limit` records, and of about [`MAX_PAGE_BYTES`]. It ends where
/// the engine answers with fewer than it was asked for, which may have read a large part of a table for them.
pub(crate) async fn bounded(
    stores: &Stores,
    prefix: &Prefix,
    after: Option<&Cursor>,
    limit: usize,
    now: Now,
) -> Result<Page> {
    let mut asked = limit.min(FIRST_RECORDS);
    let mut page = stores.backend().scan(prefix, after, asked, now).await?;
    let mut got = page.items.len();
    loop {
        let (count, used) = (page.items.len(), size(&page.items));
        let Some(next) = page.next.clone().filter(|_| got == asked && count < limit && used < MAX_PAGE_BYTES)
        else {
            return Ok(page);
        };
        // As many as fit, if they are as large as those before.
        let each = (used / count.max(1)).max(1);
        asked = ((MAX_PAGE_BYTES - used) / each).clamp(1, MOST_RECORDS.min(limit - count));
        let more = stores.backend().scan(prefix, Some(&next), asked, now).await?;
        got = more.items.len();
        page.items.extend(more.items);
        page.next = more.next;
    }
}

/// Bytes of the values of records.
pub(crate) fn size(items: &[(Key, Record)]) -> usize {
    items.iter().map(|(_, record)| record.value.len()).sum()
}

/// All pages of the live records under a prefix, as of one time.
pub(crate) struct Pages<'a> {
    stores: &'a Stores,
    prefix: &'a Prefix,
    limit: usize,
    /// Most records of the next page, by the size of those before.
    fit: usize,
    /// Taken for the first page, unless it is given.
    now: Option<Now>,
    after: Option<Cursor>,
    /// Records after which no more pages are read.
    left: usize,
    ended: bool,
}

impl<'a> Pages<'a> {
    /// Pages of `limit` records at most, and of about [`MAX_PAGE_BYTES`].
    pub(crate) fn new(stores: &'a Stores, prefix: &'a Prefix, limit: usize) -> Self {
        Self {
            stores,
            prefix,
            limit,
            fit: FIRST_PAGE,
            now: None,
            after: None,
            left: usize::MAX,
            ended: false,
        }
    }

    /// Reads the records that are live at `now`.
    pub(crate) fn at(mut self, now: Now) -> Self {
        self.now = Some(now);
        self
    }

    /// Ends with the page that reaches so many records.
    pub(crate) fn up_to(mut self, most: usize) -> Self {
        self.left = most;
        self
    }

    /// Returns true if it has ended with the number of records of [`up_to`](Self::up_to): there may be more.
    pub(crate) fn has_reached_most(&self) -> bool {
        self.left == 0
    }

    /// Returns the next page, which may be empty; none after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<(Key, Record)>>> {
        if self.ended || self.left == 0 {
            return Ok(None);
        }
        let now = self.now.map_or_else(|| self.stores.now(), Ok)?;
        self.now = Some(now);
        let limit = self.limit.min(self.fit);
        let page = self.stores.backend().scan(self.prefix, self.after.as_ref(), limit, now).await?;
        if !page.items.is_empty() {
            let each = (size(&page.items) / page.items.len()).max(1);
            self.fit = (MAX_PAGE_BYTES / each).max(1);
        }
        (self.ended, self.after) = (page.next.is_none(), page.next);
        self.left = self.left.saturating_sub(page.items.len());
        Ok(Some(page.items))
    }
}

/// Number of live records under `prefix`. It reads them all.
pub(crate) async fn count(stores: &Stores, prefix: &Prefix) -> Result<u64> {
    let (mut pages, mut counted) = (Pages::new(stores, prefix, MAX_LIMIT), 0);
    while let Some(items) = pages.next().await? {
        counted += items.len() as u64;
    }
    Ok(counted)
}
