//! Listings of a collection: for administrators, and for cursors of 52 bits.

use super::Records;
use super::naming::{Naming, digest_of};
use super::state::OpenedRecord;
use super::types::{ListedRecord, ScanPage};
use crate::backend::Cursor;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::ttl::check_collection;
use crate::stores::shared::paging::{Listing, MAX_PAGE_BYTES, bounded, check_limit};
use crate::stores::shared::parents::MetParents;
use crate::timekeeping::Now;

/// Bits of a digest that are a cursor of [`Records::scan`]: a number that JavaScript represents exactly.
const CURSOR_BITS: u32 = 52;

impl Records {
    /// Lists the live records of a collection, without their values. It may read a whole table. A page also ends once the
    /// records that were read for it are large together, with fewer items than `limit`.
    pub async fn list(
        &self,
        collection: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<ListedRecord>> {
        check_collection(collection)?;
        check_limit(limit)?;
        let naming = self.naming().await?;
        let prefix = naming.collection(collection)?;
        let now = self.stores.now()?;
        let page = bounded(&self.stores, &prefix, after, limit, now).await?;
        let items = self.live(&naming, collection, page.items, now).await?;
        let items = items.iter().map(|(_, standing)| standing.listed()).collect::<Result<_>>()?;
        Ok(Listing { items, next: page.next })
    }

    /// Lists the live records of a collection in the order of their digests, from a cursor on, which is zero at first.
    /// A cursor is the first 52 bits of a digest; records that share them come on one page, which may therefore have
    /// more than `limit`; one whose records are large together ends with fewer. A record that is there from the first
    /// page to the last comes exactly once. Returns `Invalid` on an engine without order.
    pub async fn scan(&self, collection: &str, cursor: u64, limit: usize) -> Result<ScanPage> {
        check_collection(collection)?;
        check_limit(limit)?;
        if !self.stores.backend().info().has_order {
            return Err(Error::invalid("this engine keeps no order of records to scan them in"));
        }
        if cursor >> CURSOR_BITS != 0 {
            return Err(Error::invalid("a cursor has at most 52 bits"));
        }
        let naming = self.naming().await?;
        let prefix = naming.collection(collection)?;
        let now = self.stores.now()?;
        let mut after = Some(start(&prefix, cursor));
        let (mut items, mut seen, mut used, mut last) = (Vec::new(), 0_usize, 0_usize, None);
        loop {
            // Behind a full page one record at a time: the first that is no tie is where the next page begins.
            let is_full = seen >= limit || used >= MAX_PAGE_BYTES;
            let more = if is_full { 1 } else { limit };
            let page = bounded(&self.stores, &prefix, after.as_ref(), more, now).await?;
            let mut kept = Vec::new();
            let mut full = None;
            for (key, record) in page.items {
                let place = place(&digest_of(&key)?);
                if (is_full || seen >= limit) && last != Some(place) {
                    full = Some(place);
                    break;
                }
                (seen, last) = (seen + 1, Some(place));
                used += record.value.len();
                kept.push((key, record));
            }
            for (_, standing) in self.live(&naming, collection, kept, now).await? {
                items.push(standing.listed()?);
            }
            match (full, page.next) {
                (Some(next), _) => return Ok(ScanPage { items, next }),
                (None, None) => return Ok(ScanPage { items, next: 0 }),
                (None, next) => after = next,
            }
        }
    }

    /// Records that are neither retained nor of a revoked group.
    async fn live(
        &self,
        naming: &Naming<'_>,
        collection: &str,
        items: Vec<(Key, Record)>,
        now: Now,
    ) -> Result<Vec<(Key, OpenedRecord)>> {
        let mut standing = Vec::with_capacity(items.len());
        let mut parents = MetParents::new(&self.stores, now);
        for (key, record) in items {
            let opened = self.stores.open_record(&key, record)?;
            let is_gone = parents.ended(&self.scope, opened.state.parent_name().as_ref()).await?;
            if !is_gone && now.before(opened.ends_at()?)? {
                standing.push((key, opened));
            }
        }
        let groups = standing.iter().filter_map(|(_, standing)| standing.state.group.as_deref());
        let mut groups: Vec<String> = groups.map(str::to_owned).collect();
        groups.sort_unstable();
        groups.dedup();
        if groups.is_empty() {
            return Ok(standing);
        }
        let markers =
            groups.iter().map(|group| naming.group(collection, group)).collect::<Result<Vec<_>>>()?;
        let mut revoked = self.stores.backend().get_many(&markers, now).await?.into_iter();
        groups.retain(|_| revoked.next().flatten().is_some());
        standing.retain(|(_, standing)| {
            !standing.state.group.as_ref().is_some_and(|group| groups.contains(group))
        });
        Ok(standing)
    }
}

/// First 52 bits of a digest.
fn place(digest: &[u8; Digest::BYTES]) -> u64 {
    let (first, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first) >> (u64::BITS - CURSOR_BITS)
}

/// Position just before the first digest with these 52 bits.
fn start(prefix: &Prefix, cursor: u64) -> Cursor {
    let first = (cursor << (u64::BITS - CURSOR_BITS)).to_be_bytes();
    Cursor::from_bytes(prefix.before_bytes(&first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kind::Kind;
    use crate::model::scope::Scope;

    #[test]
    fn a_cursor_is_just_before_the_digests_that_it_names() {
        let prefix = Prefix::partitions(Kind::Record, &Scope::Global, &["c".into()]).unwrap();
        let key = |digest: &[u8; 32]| {
            Key::new(Kind::Record, &Scope::Global, &["c".into(), digest.into()], &[]).unwrap()
        };
        let mut digests = vec![[0; 32], [1; 32], [0xFF; 32], [2; 32]];
        for index in 0..8 {
            for byte in [0, 1, 2, 0x10, 0xFF] {
                let mut digest = [1; 32];
                digest[index] = byte;
                digests.push(digest);
            }
        }
        for one in &digests {
            let from = start(&prefix, place(one));
            for other in &digests {
                let behind = key(other).as_bytes() > from.as_bytes();
                assert_eq!(behind, place(other) >= place(one), "{one:?} {other:?}");
            }
        }
    }
}
