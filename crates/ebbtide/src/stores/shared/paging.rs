//! Pages, as the typed stores answer them.

use crate::backend::{Cursor, Page};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::stores::Stores;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// What is on the page. It may be fewer than were asked for, even none, and there still be a next page.
    pub items: Vec<T>,
    /// Where the next page begins; none at the end. Hand it back as it is, to the same listing.
    pub next: Option<Cursor>,
}

impl<T> Listing<T> {
    pub(crate) fn read(page: Page, read: impl Fn(Key, Record) -> Result<T>) -> Result<Self> {
        let items = page.items.into_iter().map(|(key, record)| read(key, record)).collect::<Result<_>>()?;
        Ok(Self { items, next: page.next })
    }
}

/// The most that can be asked for in one page.
pub const MAX_LIMIT: usize = 1_000;

/// Refuses a page of nothing, and one that is too long.
pub(crate) fn check_limit(limit: usize) -> Result<()> {
    if limit == 0 || limit > MAX_LIMIT {
        return Err(Error::invalid(format!("a page has 1 to {MAX_LIMIT} items; {limit} were asked for")));
    }
    Ok(())
}

/// How many live records there are under `prefix`. It reads them all.
pub(crate) async fn count(stores: &Stores, prefix: &Prefix) -> Result<u64> {
    let now = stores.now();
    let (mut counted, mut after) = (0, None);
    loop {
        let page = stores.backend().scan(prefix, after.as_ref(), MAX_LIMIT, now).await?;
        counted += page.items.len() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(counted);
        }
    }
}
