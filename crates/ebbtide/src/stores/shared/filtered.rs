//! Searches that read more than they return.

use super::tombstones::Principal;
use crate::backend::Cursor;
use crate::model::error::Result;
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::stores::Stores;
use crate::stores::shared::paging::{Listing, MAX_LIMIT, MAX_PAGE_BYTES, Pages, bounded, check_limit};
use crate::stores::shared::parents::{MetParents, ParentName};

/// Most pages that one call reads.
const PAGES: usize = 50;

/// Filter of the records of a store.
pub(crate) trait Filter {
    type Item;

    /// Smallest range that has all that it finds.
    fn prefix(&self, scope: &Scope) -> Result<Prefix>;

    /// Reads a record, if the filter finds it.
    fn read(&self, key: &Key, record: &Record) -> Result<Option<Self::Item>>;

    /// Record that a record belongs to: without that one, it is not found.
    fn parent(&self, _record: &Record) -> Result<Option<ParentName>> {
        Ok(None)
    }

    /// Scope of an item, and its owners.
    fn whose(item: &Self::Item) -> (&Scope, Vec<Principal<'_>>);
}

/// Lists the records that a filter finds, without those of owners that are being deleted. A page may have fewer items
/// than `limit`, even none, and still have a next page.
pub(crate) async fn find<F: Filter>(
    stores: &Stores,
    scope: &Scope,
    filter: &F,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Listing<F::Item>> {
    let prefix = filter.prefix(scope)?;
    check_limit(limit)?;
    let now = stores.now()?;
    let (mut items, mut next, mut bytes) = (Vec::new(), after.cloned(), 0);
    let mut parents = MetParents::new(stores, now);
    for _ in 0..PAGES {
        // No more than what is left, so that nothing is read that would have to be left out.
        let page = bounded(stores, &prefix, next.as_ref(), limit - items.len(), now).await?;
        for (key, record) in &page.items {
            if let Some(found) = filter.read(key, record)?
                && !parents.ended(&key.scope(), filter.parent(record)?.as_ref()).await?
            {
                items.push(found);
                bytes += record.value.len();
            }
        }
        next = page.next;
        if next.is_none() || items.len() == limit || bytes >= MAX_PAGE_BYTES {
            break;
        }
    }
    let (now, mut deleted) = (stores.now()?, Vec::with_capacity(items.len()));
    for (at, item) in items.iter().enumerate() {
        let (scope, owners) = F::whose(item);
        // Items of one owner follow each other.
        let before = at.checked_sub(1).filter(|before| F::whose(&items[*before]) == (scope, owners.clone()));
        deleted.push(match before {
            Some(before) => deleted[before],
            None => stores.is_deleted(scope, &owners, now).await?,
        });
    }
    let mut deleted = deleted.into_iter();
    items.retain(|_| deleted.next() == Some(false));
    Ok(Listing { items, next })
}

/// Returns one of the records that a filter finds. It reads on until it has found one.
pub(crate) async fn first<F: Filter>(stores: &Stores, scope: &Scope, filter: &F) -> Result<Option<F::Item>> {
    let mut after = None;
    loop {
        let page = find(stores, scope, filter, after.as_ref(), 100).await?;
        after = page.next;
        let found = page.items.into_iter().next();
        if found.is_some() || after.is_none() {
            return Ok(found);
        }
    }
}

/// Counts the records that a filter finds. It reads them all.
pub(crate) async fn count<F: Filter>(stores: &Stores, scope: &Scope, filter: &F) -> Result<u64> {
    let prefix = filter.prefix(scope)?;
    let mut parents = MetParents::new(stores, stores.now()?);
    let (mut pages, mut counted) = (Pages::new(stores, &prefix, MAX_LIMIT), 0);
    while let Some(items) = pages.next().await? {
        for (key, record) in &items {
            let is_found = filter.read(key, record)?.is_some()
                && !parents.ended(&key.scope(), filter.parent(record)?.as_ref()).await?;
            counted += u64::from(is_found);
        }
    }
    Ok(counted)
}
