//! Listings that read more than they return.

use crate::backend::Cursor;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::stores::Stores;
use crate::stores::shared::paging::{Listing, MAX_LIMIT, Pages, check_limit};

/// Most pages that one call reads.
const PAGES: usize = 50;

/// Lists the records under `prefix` that `read` returns something for. A page may have fewer items than `limit`, even
/// none, and still have a next page.
pub(crate) async fn list<T>(
    stores: &Stores,
    prefix: &Prefix,
    after: Option<&Cursor>,
    limit: usize,
    read: impl Fn(&Key, &Record) -> Result<Option<T>>,
) -> Result<Listing<T>> {
    check_limit(limit)?;
    let now = stores.now()?;
    let (mut items, mut next) = (Vec::new(), after.cloned());
    for _ in 0..PAGES {
        // No more than what is left, so that nothing is read that would have to be left out.
        let page = stores.backend().scan(prefix, next.as_ref(), limit - items.len(), now).await?;
        for (key, record) in &page.items {
            items.extend(read(key, record)?);
        }
        next = page.next;
        if next.is_none() || items.len() == limit {
            break;
        }
    }
    Ok(Listing { items, next })
}

/// Counts the records under `prefix` that `is_meant` is true for. It reads them all.
pub(crate) async fn count(
    stores: &Stores,
    prefix: &Prefix,
    is_meant: impl Fn(&Key, &Record) -> Result<bool>,
) -> Result<u64> {
    let (mut pages, mut counted) = (Pages::new(stores, prefix, MAX_LIMIT), 0);
    while let Some(items) = pages.next().await? {
        for (key, record) in &items {
            counted += u64::from(is_meant(key, record)?);
        }
    }
    Ok(counted)
}
