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
        return Err(Error::invalid(format!("a page has 1 to {MAX_LIMIT} items; {limit} were asked for")));
    }
    Ok(())
}

/// Bytes of values after which a page ends, for kinds whose records may be large.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// Records that are read before their size is known.
const FIRST_RECORDS: usize = 16;

/// Reads a page of records that may be large: of at most `limit` records, and of about [`MAX_PAGE_BYTES`].
pub(crate) async fn bounded(
    stores: &Stores,
    prefix: &Prefix,
    after: Option<&Cursor>,
    limit: usize,
    now: Now,
) -> Result<Page> {
    let mut page = stores.backend().scan(prefix, after, limit.min(FIRST_RECORDS), now).await?;
    let bytes = |items: &[(Key, Record)]| items.iter().map(|(_, record)| record.value.len()).sum::<usize>();
    loop {
        let (count, used) = (page.items.len(), bytes(&page.items));
        let Some(next) = page.next.clone().filter(|_| count < limit && used < MAX_PAGE_BYTES) else {
            return Ok(page);
        };
        // As many as fit, if they are as large as those before.
        let each = (used / count.max(1)).max(1);
        let fit = ((MAX_PAGE_BYTES - used) / each).clamp(1, limit - count);
        let more = stores.backend().scan(prefix, Some(&next), fit, now).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
}

/// All pages of the live records under a prefix, as of one time.
pub(crate) struct Pages<'a> {
    stores: &'a Stores,
    prefix: &'a Prefix,
    limit: usize,
    /// Taken for the first page, unless it is given.
    now: Option<Now>,
    after: Option<Cursor>,
    ended: bool,
}

impl<'a> Pages<'a> {
    /// Pages of `limit` records at most.
    pub(crate) fn new(stores: &'a Stores, prefix: &'a Prefix, limit: usize) -> Self {
        Self { stores, prefix, limit, now: None, after: None, ended: false }
    }

    /// Reads the records that are live at `now`.
    pub(crate) fn at(mut self, now: Now) -> Self {
        self.now = Some(now);
        self
    }

    /// Returns the next page, which may be empty; none after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<(Key, Record)>>> {
        if self.ended {
            return Ok(None);
        }
        let now = self.now.map_or_else(|| self.stores.now(), Ok)?;
        self.now = Some(now);
        let page = self.stores.backend().scan(self.prefix, self.after.as_ref(), self.limit, now).await?;
        (self.ended, self.after) = (page.next.is_none(), page.next);
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
