//! Access tokens, as the index of their subject or client lists them.

use std::collections::HashMap;
use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::{AccessTokens, StoredToken};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::stores::grants::{GrantId, GrantState, Holder, Listed, PAGE, listed_id};
use crate::stores::shared::paging::Pages;
use crate::timekeeping::Now;

/// Access token in a listing. It gives no access.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessTokenInfo {
    /// Digest of the token, in base64url: its `jti`.
    pub handle: String,
    /// Subject that it speaks for.
    pub subject: String,
    /// Client that holds it.
    pub client_id: String,
    /// OAuth scope.
    pub scope: Option<String>,
    /// Time of issue.
    pub issued_at: Timestamp,
    /// End of the token.
    pub expires_at: Timestamp,
    /// Grant that it is under.
    pub grant_id: Option<GrantId>,
    /// State of the token: that of its grant, where it is under one. Otherwise it is revoked if its subject was signed
    /// out, or everything of its client was revoked, since.
    pub state: GrantState,
}

impl fmt::Debug for AccessTokenInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessTokenInfo(expires_at {}, …)", self.expires_at)
    }
}

impl AccessTokens {
    /// Lists up to `limit` tokens of a subject that have not reached their end, and returns whether there may be more. Of
    /// a client it lists those that are under no grant.
    pub(in crate::stores) async fn list(
        &self,
        holder: Holder<'_>,
        limit: usize,
    ) -> Result<(Vec<AccessTokenInfo>, bool)> {
        let now = self.stores.now()?;
        let prefix = holder.prefix(Listed::AccessTokens, &self.scope)?;
        let page = self.stores.backend().scan(&prefix, None, limit, now).await?;
        let mut items = Vec::with_capacity(page.items.len());
        let mut grants = HashMap::new();
        for (digest, record, stored) in self.listed(page.items, holder).await? {
            let grant_id = stored.grant.map(|under| GrantId::from_bytes(*under.id));
            let state = match grant_id {
                Some(id) => match grants.get(&id) {
                    Some(&state) => state,
                    None => *grants.entry(id).or_insert(self.state_of_grant(id, now).await?),
                },
                None => Some(self.state_alone(&stored, now).await?),
            };
            // Without its grant, or while its subject is being deleted, a token is absent.
            let Some(state) = state else { continue };
            items.push(AccessTokenInfo {
                handle: Base64UrlUnpadded::encode_string(digest.as_bytes()),
                subject: stored.subject,
                client_id: stored.client_id,
                scope: stored.scope,
                issued_at: Timestamp::from_stored(stored.issued_at)?,
                expires_at: record.expires_at,
                grant_id,
                state,
            });
        }
        Ok((items, page.next.is_some()))
    }

    async fn state_of_grant(&self, id: GrantId, now: Now) -> Result<Option<GrantState>> {
        let standing = self.stores.grants(&self.scope).standing(id, now).await?;
        standing.map(|standing| standing.family.state(now)).transpose()
    }

    async fn state_alone(&self, stored: &StoredToken, now: Now) -> Result<GrantState> {
        let stamp = stored.stamp.unwrap_or_default();
        let death = self.stores.death(&self.scope, stored.parties(), stamp, now).await?;
        Ok(death.map_or(GrantState::Active, |death| GrantState::Revoked { at: death.at, why: death.why }))
    }

    /// Number of the tokens of a holder that are under no grant, among the first `most` or a few more, that a raise of its
    /// epoch from `was` has ended, and whether there may be more.
    pub(in crate::stores) async fn count_ended(
        &self,
        holder: Holder<'_>,
        was: u64,
        most: usize,
    ) -> Result<(u64, bool)> {
        let prefix = holder.prefix(Listed::AccessTokens, &self.scope)?;
        let (mut pages, mut ended) = (Pages::new(&self.stores, &prefix, PAGE).up_to(most), 0);
        while let Some(items) = pages.next().await? {
            let mut live = Vec::with_capacity(items.len());
            for (_, _, stored) in self.listed(items, holder).await? {
                let stamp = stored.stamp.unwrap_or_default();
                let ends = holder.ends(&stored.subject, &stored.client_id);
                if ends && stored.grant.is_none() && holder.epoch(&stamp) == was {
                    live.push(holder.other(&self.scope, &stored.subject, &stored.client_id, &stamp)?);
                }
            }
            ended += self.stores.count_live(live, self.stores.now()?).await?;
        }
        Ok((ended, pages.has_reached_most()))
    }

    /// Reads the tokens of index entries, a page at once.
    async fn listed(
        &self,
        entries: Vec<(Key, Record)>,
        holder: Holder<'_>,
    ) -> Result<Vec<(Digest, Record, StoredToken)>> {
        let digests: Vec<Digest> =
            entries.iter().map(|(key, _)| Ok(Digest::from_bytes(listed_id(key)?))).collect::<Result<_>>()?;
        let keys: Vec<Key> = digests.iter().map(|digest| self.key(digest)).collect::<Result<_>>()?;
        let mut tokens = Vec::with_capacity(keys.len());
        let now = self.stores.now()?;
        for (digests, keys) in digests.chunks(PAGE).zip(keys.chunks(PAGE)) {
            let records = self.stores.backend().get_many(keys, now).await?;
            for (digest, record) in digests.iter().zip(records) {
                let Some(record) = record else { continue };
                let stored: StoredToken = codec::decode(&record.value)?;
                // The key has a digest of the holder's name; the record has the name.
                if holder.has(&stored.subject, &stored.client_id) {
                    tokens.push((*digest, record, stored));
                }
            }
        }
        Ok(tokens)
    }
}
