//! Access tokens without a grant, as the index of their subject or client lists them.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::{AccessTokens, StoredToken};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::stores::grants::{Holder, Listed, PAGE, Why, listed_id};
use crate::stores::shared::paging::Pages;

/// Access token without a grant, in a listing. It gives no access.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessTokenInfo {
    /// Digest of the token, in base64url.
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
    /// Reason why it is dead: its subject was signed out, or everything of its client was revoked, since.
    pub revoked: Option<Why>,
}

impl fmt::Debug for AccessTokenInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessTokenInfo(expires_at {}, …)", self.expires_at)
    }
}

impl AccessTokens {
    /// Lists up to `limit` live tokens of a subject or a client that are under no grant, and returns whether there may
    /// be more.
    pub(in crate::stores) async fn list(
        &self,
        holder: Holder<'_>,
        limit: usize,
    ) -> Result<(Vec<AccessTokenInfo>, bool)> {
        let now = self.stores.now()?;
        let prefix = holder.prefix(Listed::AccessTokens, &self.scope)?;
        let page = self.stores.backend().scan(&prefix, None, limit, now).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for (digest, record, stored) in self.listed(page.items, holder).await? {
            let stamp = stored.stamp.unwrap_or_default();
            let death = self.stores.death(&self.scope, stored.parties(), stamp, now).await?;
            items.push(AccessTokenInfo {
                handle: Base64UrlUnpadded::encode_string(digest.as_bytes()),
                subject: stored.subject,
                client_id: stored.client_id,
                scope: stored.scope,
                issued_at: Timestamp::from_stored(stored.issued_at)?,
                expires_at: record.expires_at,
                revoked: death.map(|death| death.why),
            });
        }
        Ok((items, page.next.is_some()))
    }

    /// Number of the tokens of a holder, up to about `most`, that a raise of its epoch from `was` has ended.
    pub(in crate::stores) async fn count_ended(
        &self,
        holder: Holder<'_>,
        was: u64,
        most: usize,
    ) -> Result<u64> {
        let prefix = holder.prefix(Listed::AccessTokens, &self.scope)?;
        let (mut pages, mut ended, mut seen) = (Pages::new(&self.stores, &prefix, PAGE), 0, 0);
        while seen < most
            && let Some(items) = pages.next().await?
        {
            seen += items.len();
            let mut live = Vec::with_capacity(items.len());
            for (_, _, stored) in self.listed(items, holder).await? {
                let stamp = stored.stamp.unwrap_or_default();
                if holder.epoch(&stamp) == was {
                    live.push(holder.other(&self.scope, &stored.subject, &stored.client_id, &stamp)?);
                }
            }
            ended += self.stores.count_live(live, self.stores.now()?).await?;
        }
        Ok(ended)
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
