//! Listings, counts and removals over several kinds, for engines that keep each kind apart: one after the other.

use std::collections::BTreeMap;

use super::{Admin, COUNTED_AT_ONCE, Cleared, Counted};
use crate::backend::{Cursor, Page};
use crate::model::error::{Error, Result};
use crate::model::key::Prefix;
use crate::model::time::Timestamp;

/// Position of a walk: the index of the prefix, and the cursor within it.
struct Position {
    index: u8,
    inner: Option<Cursor>,
}

impl Position {
    fn read(after: Option<&Cursor>) -> Result<Self> {
        let Some(cursor) = after else { return Ok(Self { index: 0, inner: None }) };
        let Some((&index, inner)) = cursor.as_bytes().split_first() else {
            return Err(Error::invalid("this cursor is not one of this listing"));
        };
        Ok(Self { index, inner: (!inner.is_empty()).then(|| Cursor::from_bytes(inner)) })
    }

    /// The place behind what was dealt with: in the same prefix, or at the next.
    fn onwards(self, more: bool, inner: Option<Cursor>) -> Self {
        Self { index: self.index + u8::from(!more), inner }
    }

    fn next(&self, prefixes: &[Prefix]) -> Option<Cursor> {
        let inner = self.inner.as_ref().map_or(&[][..], Cursor::as_bytes);
        let goes_on = usize::from(self.index) < prefixes.len();
        goes_on.then(|| Cursor::from_bytes([&[self.index], inner].concat()))
    }

    fn done(&self, prefixes: &[Prefix]) -> (u32, u32) {
        (self.index.into(), u32::try_from(prefixes.len()).unwrap_or(u32::MAX))
    }
}

async fn page<B: Admin + ?Sized>(
    backend: &B,
    prefixes: &[Prefix],
    after: Option<&Cursor>,
    limit: usize,
    now: Timestamp,
) -> Result<(Page, Position)> {
    let place = Position::read(after)?;
    let Some(prefix) = prefixes.get(usize::from(place.index)) else { return Ok((Page::default(), place)) };
    let mut page = backend.scan(prefix, place.inner.as_ref(), limit, now).await?;
    let place = place.onwards(page.next.is_some(), page.next);
    page.next = place.next(prefixes);
    Ok((page, place))
}

pub(crate) async fn list<B: Admin + ?Sized>(
    backend: &B,
    prefixes: &[Prefix],
    after: Option<&Cursor>,
    limit: usize,
    now: Timestamp,
) -> Result<Page> {
    Ok(page(backend, prefixes, after, limit, now).await?.0)
}

pub(crate) async fn count<B: Admin + ?Sized>(
    backend: &B,
    prefixes: &[Prefix],
    after: Option<&Cursor>,
    now: Timestamp,
) -> Result<Counted> {
    let (page, place) = page(backend, prefixes, after, COUNTED_AT_ONCE, now).await?;
    let mut live = BTreeMap::new();
    for (key, _) in &page.items {
        *live.entry(key.kind()).or_default() += 1;
    }
    Ok(Counted { live, done: place.done(prefixes), next: page.next })
}

pub(crate) async fn clear<B: Admin + ?Sized>(
    backend: &B,
    prefixes: &[Prefix],
    after: Option<&Cursor>,
    now: Timestamp,
) -> Result<Cleared> {
    let place = Position::read(after)?;
    let (last, first): (Vec<_>, Vec<_>) = prefixes.iter().partition(|prefix| prefix.kind().is_tombstone());
    let Some(prefix) = first.iter().chain(&last).nth(usize::from(place.index)) else {
        return Ok(Cleared::default());
    };
    let step = backend.erase(prefix, now).await?;
    let removed = (step.removed > 0).then_some((prefix.kind(), step.removed)).into_iter().collect();
    let place = place.onwards(step.more, None);
    Ok(Cleared { removed, done: place.done(prefixes), next: place.next(prefixes) })
}
