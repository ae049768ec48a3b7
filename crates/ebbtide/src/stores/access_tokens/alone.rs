//! Access tokens without a grant: nothing above them can be revoked, so they are listed themselves.

use super::{AccessRequest, AccessTokens, IssueOutcome, StoredToken};
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::write::{Batch, Write};
use crate::stores::grants::{Holder, Listed, PAGE, listed_id};
use crate::stores::shared::tombstones::Principal;

impl AccessTokens {
    /// Issues a token and its indexes, which end with it, in one commit.
    pub(super) async fn issue_alone(&self, request: AccessRequest) -> Result<IssueOutcome> {
        let now = self.stores.now();
        let (issued, insert, digest, stored) = self.prepare(request, None, now)?;
        let mut writes = vec![insert];
        for key in self.index_keys(&digest, &stored)? {
            writes.push(Write::Insert { key, record: self.stores.record("", issued.expires_at) });
        }
        let whom = [Principal::Owner(&stored.subject), Principal::Client(&stored.client_id)];
        let commit = self.stores.commit_for(&self.scope, &whom, writes, now).await?.unless_deleted()?;
        // The key is the digest of 32 random bytes: that it is taken means that rng is broken.
        if commit.is_applied() {
            Ok(IssueOutcome::Issued(issued))
        } else {
            Err(Error::unavailable("a new access token is taken"))
        }
    }

    /// Revokes every access token of a subject or a client that is under no grant, and says how many there were.
    /// Those under a grant are revoked with it.
    pub async fn revoke_all(&self, holder: Holder<'_>) -> Result<u64> {
        let mut revoked = 0;
        let mut after = None;
        loop {
            let (some, next) = self.revoke_page(holder, after.as_ref()).await?;
            revoked += some;
            after = next;
            if after.is_none() {
                return Ok(revoked);
            }
        }
    }

    /// Revokes those of one page, and says how many there were and where the next page begins.
    pub(in crate::stores) async fn revoke_page(
        &self,
        holder: Holder<'_>,
        after: Option<&Cursor>,
    ) -> Result<(u64, Option<Cursor>)> {
        let prefix = holder.prefix(Listed::AccessTokens, &self.scope)?;
        let page = self.stores.backend().scan(&prefix, after, PAGE, self.stores.now()).await?;
        let mut revoked = 0;
        for (key, _) in &page.items {
            let digest = Digest::from_bytes(listed_id(key)?);
            if self.revoke_listed(&digest, holder).await? {
                revoked += 1;
            } else {
                // An index whose token is gone leads to nothing; it goes too.
                let unlist = Write::Delete { key: key.clone() };
                let _ = self.stores.backend().commit(unlist.try_into()?, self.stores.now()).await?;
            }
        }
        Ok((revoked, page.next))
    }

    async fn revoke_listed(&self, digest: &Digest, holder: Holder<'_>) -> Result<bool> {
        let (key, now) = (self.key(digest)?, self.stores.now());
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(false) };
        let stored: StoredToken = codec::decode(&record.value)?;
        // The digest is the key; whose token it is says the record.
        if !holder.has(&stored.subject, &stored.client_id) {
            return Ok(false);
        }
        let mut writes = vec![Write::Remove { key, expected: record.version }];
        writes.extend(self.index_keys(digest, &stored)?.map(|key| Write::Delete { key }));
        // A token is never changed: a refusal means that another has revoked it.
        Ok(self.stores.backend().commit(Batch::new(writes)?, now).await?.is_applied())
    }

    /// Removes the indexes of a token that is gone. If this fails they stay until the token would have ended, and
    /// list nothing.
    pub(super) async fn unlist(&self, digest: &Digest, stored: &StoredToken) -> Result<()> {
        if stored.grant.is_none() {
            let deletes = self.index_keys(digest, stored)?.map(|key| Write::Delete { key });
            // A delete has no condition that could be refused.
            let _ = self.stores.backend().commit(Batch::new(deletes.into())?, self.stores.now()).await?;
        }
        Ok(())
    }

    pub(super) fn index_keys(&self, digest: &Digest, stored: &StoredToken) -> Result<[Key; 2]> {
        let key = |holder: Holder<'_>| holder.key(Listed::AccessTokens, &self.scope, digest.as_bytes());
        Ok([key(Holder::Subject(&stored.subject))?, key(Holder::Client(&stored.client_id))?])
    }
}
