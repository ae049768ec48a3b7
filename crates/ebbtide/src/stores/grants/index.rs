//! Grants of a subject or a client: listed, revoked and removed together.

use super::family::Family;
use super::{FamilyRecord, Grant, GrantId, GrantState, Grants, Why, describe, read_standing};
use crate::admin::AdminExt as _;
use crate::backend::Cursor;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::write::Write;
use crate::stores::registry::listed;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::client_epochs::ClientRead;
use crate::stores::shared::deletion::Removed;
use crate::stores::shared::epochs::{Death, Stamp};
use crate::stores::shared::paging::{FIRST_RECORDS, MAX_PAGE_BYTES, Pages, check_limit};
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;
use crate::timekeeping::Now;

/// Holder of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder<'a> {
    /// Subject that the grants speak for.
    Subject(&'a str),
    /// Client that holds the grants.
    Client(&'a str),
}

/// Records that an index lists.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Listed {
    Grants,
    /// Access tokens without a grant.
    AccessTokens,
}

impl Holder<'_> {
    /// Digest of the name, which is the partition: a name may be longer than a key allows.
    fn digest(self, listed: Listed) -> Digest {
        let (by, name) = match self {
            Self::Subject(subject) => ("subject", subject),
            Self::Client(client_id) => ("client", client_id),
        };
        let purpose = match listed {
            Listed::Grants => "grants",
            Listed::AccessTokens => "access tokens",
        };
        Digest::of(purpose, &[by.as_bytes(), name.as_bytes()])
    }

    pub(crate) fn key(self, listed: Listed, scope: &Scope, id: &[u8]) -> Result<Key> {
        Key::new(Kind::GrantIndex, scope, &[self.digest(listed).part()], &[id.into()])
    }

    pub(crate) fn prefix(self, listed: Listed, scope: &Scope) -> Result<Prefix> {
        Prefix::partition(Kind::GrantIndex, scope, &[self.digest(listed).part()], &[])
    }

    /// Epoch of the holder in a stamp.
    pub(crate) fn epoch(self, stamp: &Stamp) -> u64 {
        match self {
            Self::Subject(_) => stamp.subject(),
            Self::Client(_) => stamp.client(),
        }
    }

    /// Key of the epoch of the other party, and the epoch of it that `stamp` carries.
    pub(crate) fn other(
        self,
        scope: &Scope,
        subject: &str,
        client_id: &str,
        stamp: &Stamp,
    ) -> Result<(Key, u64)> {
        Ok(match self {
            Self::Client(_) if subject != client_id => {
                (Principal::Owner(subject).tombstone(scope)?, stamp.subject())
            }
            // There is no other party if subject and client are one.
            Self::Client(_) => (Principal::Client(client_id).tombstone(scope)?, u64::MAX),
            Self::Subject(_) => (Principal::Client(client_id).tombstone(scope)?, stamp.client()),
        })
    }

    /// True if a grant of `subject` and `client_id` is theirs.
    pub(crate) fn has(self, subject: &str, client_id: &str) -> bool {
        match self {
            Self::Subject(name) => name == subject,
            Self::Client(name) => name == client_id,
        }
    }

    /// True if a raise of their epoch ends what was issued to `subject` and `client_id`. Where those are one, the epoch of
    /// the client alone counts.
    pub(crate) fn ends(self, subject: &str, client_id: &str) -> bool {
        self.has(subject, client_id) && (subject != client_id || matches!(self, Self::Client(_)))
    }
}

/// Id in the key of an index entry.
pub(crate) fn listed_id<const N: usize>(key: &Key) -> Result<[u8; N]> {
    match key.sort().as_slice() {
        [Part::Bytes(bytes)] => bytes.as_ref().try_into().ok(),
        _ => None,
    }
    .ok_or_else(|| Error::corrupt("an index holds what is no id"))
}

/// Page of grants.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct GrantPage {
    /// Grants in any state that have not reached their cap, without their payloads.
    pub items: Vec<Grant>,
    /// Start of the next page; none at the end.
    pub next: Option<Cursor>,
}

pub(crate) const PAGE: usize = 100;

impl Grants {
    /// Lists up to `limit` grants of a subject or a client, after `after`. A page may hold fewer and still have a next.
    /// Payloads stay sealed; [`get`](Self::get) opens them.
    pub async fn list(&self, holder: Holder<'_>, after: Option<&Cursor>, limit: usize) -> Result<GrantPage> {
        check_limit(limit)?;
        let (mut items, mut read, mut bytes, mut next) = (Vec::new(), 0, 0, after.cloned());
        loop {
            let (ids, rest) = self.ids(holder, next.as_ref(), FIRST_RECORDS.min(limit - read)).await?;
            (next, read) = (rest, read + ids.len());
            let now = self.stores.now()?;
            let keys: Vec<Key> = ids.iter().map(|id| self.key(*id)).collect::<Result<_>>()?;
            let records =
                if keys.is_empty() { Vec::new() } else { self.stores.backend().get_many(&keys, now).await? };
            for ((id, key), record) in ids.into_iter().zip(&keys).zip(records) {
                bytes += record.as_ref().map_or(0, |record| record.value.len());
                let Some(standing) = read_standing(key, record)? else { continue };
                // The key of the index has a digest of the holder's name; the record has the name.
                if !holder.has(&standing.family.subject, &standing.family.client_id) {
                    continue;
                }
                let standing = self.judged(standing, now).await?;
                items.extend(standing.map(|standing| describe(id, standing, None, now)).transpose()?);
            }
            if next.is_none() || read >= limit || bytes >= MAX_PAGE_BYTES {
                return Ok(GrantPage { items, next });
            }
        }
    }

    /// The grant, unless its subject or its client is being deleted. One that carries an older epoch is revoked.
    pub(super) async fn judged(&self, mut standing: FamilyRecord, now: Now) -> Result<Option<FamilyRecord>> {
        let (parties, stamp) = (standing.family.parties(), standing.family.stamp());
        match self.stores.death(&self.scope, parties, stamp, now).await? {
            Some(Death { deleting: true, .. }) => return Ok(None),
            Some(Death { at, why, .. }) => standing.family.end(why, at),
            None => {}
        }
        Ok(Some(standing))
    }

    /// Reads the grant for a client that presents a token of it, with the epoch of the client where that is read.
    pub(super) async fn read_for<'a>(
        &self,
        id: GrantId,
        client_id: &'a str,
        now: Now,
    ) -> Result<Option<(FamilyRecord, ClientRead<'a>)>> {
        let key = self.key(id)?;
        let (record, read) = self.stores.get_with_client(&key, (&self.scope, client_id), now).await?;
        Ok(read_standing(&key, record)?.map(|standing| (standing, read)))
    }

    /// Number of the active grants of a holder, among the first `most` or a few more, that a raise of its epoch from `was`
    /// has ended, and whether there may be more.
    pub(in crate::stores) async fn count_ended(
        &self,
        holder: Holder<'_>,
        was: u64,
        most: usize,
    ) -> Result<(u64, bool)> {
        let prefix = holder.prefix(Listed::Grants, &self.scope)?;
        let (mut pages, mut ended) = (Pages::new(&self.stores, &prefix, PAGE).up_to(most), 0);
        while let Some(items) = pages.next().await? {
            let now = self.stores.now()?;
            let keys: Vec<Key> = items
                .iter()
                .map(|(key, _)| self.key(GrantId::from_bytes(listed_id(key)?)))
                .collect::<Result<_>>()?;
            if keys.is_empty() {
                continue;
            }
            let records = self.stores.backend().get_many(&keys, now).await?;
            let mut live = Vec::with_capacity(records.len());
            for (key, record) in keys.iter().zip(records) {
                let Some(FamilyRecord { family, .. }) = read_standing(key, record)? else { continue };
                let is_theirs = holder.ends(&family.subject, &family.client_id);
                let was_live =
                    holder.epoch(&family.stamp()) == was && family.state(now)? == GrantState::Active;
                if is_theirs && was_live {
                    live.push(holder.other(
                        &self.scope,
                        &family.subject,
                        &family.client_id,
                        &family.stamp(),
                    )?);
                }
            }
            ended += self.stores.count_live(live, now).await?;
        }
        Ok((ended, pages.has_reached_most()))
    }

    /// Revokes and then removes the grants of one page, with their provider tokens and indexes, and returns the start of
    /// the next page. For a subject or client that is being deleted.
    pub(in crate::stores) async fn remove_page(
        &self,
        holder: Holder<'_>,
        after: Option<&Cursor>,
        removed: &mut Removed,
    ) -> Result<Option<Cursor>> {
        let (ids, next) = self.ids(holder, after, PAGE).await?;
        for id in ids {
            let is_theirs = |family: &Family| holder.has(&family.subject, &family.client_id);
            // No provider token is attached to a revoked grant, so none is left behind.
            removed.revoked += u64::from(self.revoke_if(id, Why::Requested, None, is_theirs).await?);
            let attached = Prefix::partition(Kind::ProviderToken, &self.scope, &[id.as_bytes().into()], &[])?;
            let tokens = self.stores.admin().erase_all(&attached, self.stores.now()?.earliest()).await?;
            removed.add(Kind::ProviderToken, tokens);
            let parent = Parent::Grant(id.to_string());
            self.stores.belongings(&self.scope).remove(&parent, removed).await?;
            removed.add(Kind::Grant, u64::from(self.remove(id, holder).await?));
        }
        Ok(next)
    }

    /// Removes a grant with its indexes, and returns false if it was not there.
    async fn remove(&self, id: GrantId, holder: Holder<'_>) -> Result<bool> {
        let index = |holder: Holder<'_>| holder.key(Listed::Grants, &self.scope, id.as_bytes());
        let own = self.key(id)?;
        let update = self.stores.update(&own, |record, _| {
            let standing = read_standing(&own, record)?;
            let theirs =
                standing.filter(|FamilyRecord { family, .. }| holder.has(&family.subject, &family.client_id));
            let is_there = theirs.is_some();
            let writes = match theirs {
                Some(FamilyRecord { key, version, family, .. }) => vec![
                    Write::Remove { key, expected: version },
                    Write::Delete { key: index(Holder::Subject(&family.subject))? },
                    Write::Delete { key: index(Holder::Client(&family.client_id))? },
                ],
                // An index entry without a record is removed too.
                None => vec![Write::Delete { key: index(holder)? }],
            };
            Ok(Step::write(writes, is_there))
        });
        update.await
    }

    async fn ids(
        &self,
        holder: Holder<'_>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<(Vec<GrantId>, Option<Cursor>)> {
        let prefix = holder.prefix(Listed::Grants, &self.scope)?;
        let page = self.stores.backend().scan(&prefix, after, limit, self.stores.now()?).await?;
        let ids = page
            .items
            .iter()
            .map(|(key, _)| Ok(GrantId::from_bytes(listed_id(key)?)))
            .collect::<Result<_>>()?;
        Ok((ids, page.next))
    }
}

/// Record that an index record points to. The index lists ids of grants, and digests of tokens without a grant.
pub(super) fn grant_or_token(index: &Key, _: &Record) -> Option<Key> {
    let sort = index.sort();
    let [Part::Bytes(id)] = sort.as_slice() else { return None };
    match id.len() {
        GrantId::BYTES => listed(Kind::Grant, index),
        Digest::BYTES => listed(Kind::AccessToken, index),
        _ => None,
    }
}
