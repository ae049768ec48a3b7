//! Revocation of access tokens: one by one, and those that the index of a holder lists.

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::{AccessTokens, StoredToken};
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::model::write::Write;
use crate::stores::audit::{Action, AuditContext, Note};
use crate::stores::clients::RevokeReach;
use crate::stores::grants::{GrantId, Holder, Listed, PAGE, listed_id};
use crate::stores::shared::token;
use crate::stores::shared::update::Step;

/// Id of an access token: the digest that it is stored under, in base64url. It revokes the token, and gives no access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenId(Digest);

impl TokenId {
    pub(super) const fn of(digest: Digest) -> Self {
        Self(digest)
    }

    pub(in crate::stores) const fn digest(&self) -> &Digest {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Base64UrlUnpadded::encode_string(self.0.as_bytes()))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

impl FromStr for TokenId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = [0; Digest::BYTES];
        match Base64UrlUnpadded::decode(text, &mut bytes) {
            Ok(read) if read.len() == Digest::BYTES => Ok(Self(Digest::from_bytes(bytes))),
            _ => Err(Error::invalid("jti: expected the `jti` of an access token").about("jti")),
        }
    }
}

impl AccessTokens {
    /// Revokes the token with an id, and leaves its grant as it is. Appends to the audit log. Returns false if there is
    /// none.
    pub async fn revoke_by_id(&self, id: TokenId, context: &AuditContext) -> Result<bool> {
        self.revoke_if(&id.0, Some(&Note::revoked(context)?), |_| true).await
    }

    /// Revokes the token without a grant that came from a code which was redeemed twice.
    pub(in crate::stores) async fn revoke_reused(&self, digest: &Digest, code: &str) -> Result<()> {
        let note = Note::automatic(Action::Theft, "a code was redeemed again; its access token is revoked")?;
        if self.revoke_if(digest, Some(&note), |_| true).await? {
            tracing::warn!("{code} was redeemed twice; its access token is revoked");
        }
        Ok(())
    }

    /// Revokes one token, if it is held by `client_id`, and leaves its grant as it is. With a context, the audit log
    /// names its subject and client. Returns false if it was not there.
    pub(in crate::stores) async fn revoke(
        &self,
        token: &Secret,
        client_id: Option<&str>,
        context: Option<&AuditContext>,
    ) -> Result<bool> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else { return Ok(false) };
        let is_theirs = |stored: &StoredToken| client_id.is_none_or(|id| stored.client_id == id);
        let note = context.map(Note::revoked).transpose()?;
        self.revoke_if(&digest, note.as_ref(), is_theirs).await
    }

    /// Grant that the revocation of a token reaches; none if it reaches the token alone. Every token of a revoked grant
    /// is dead.
    pub(in crate::stores) async fn grant_to_revoke(
        &self,
        token: &Secret,
        client_id: Option<&str>,
        reach: Option<RevokeReach>,
    ) -> Result<Option<GrantId>> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else { return Ok(None) };
        if reach == Some(RevokeReach::Token) {
            return Ok(None);
        }
        let record = self.stores.backend().get(&self.key(&digest)?, self.stores.now()?).await?;
        let Some(record) = record else { return Ok(None) };
        let stored: StoredToken = codec::decode(&record.value)?;
        let is_theirs = client_id.is_none_or(|id| stored.client_id == id);
        let Some(under) = stored.grant.filter(|_| is_theirs) else { return Ok(None) };
        let reach = match reach {
            Some(reach) => reach,
            None => self.stores.clients(&self.scope).revoke_reach(&stored.client_id).await?,
        };
        Ok((reach == RevokeReach::Grant).then(|| GrantId::from_bytes(*under.id)))
    }

    async fn revoke_if(
        &self,
        digest: &Digest,
        note: Option<&Note>,
        condition: impl Fn(&StoredToken) -> bool,
    ) -> Result<bool> {
        let key = self.key(digest)?;
        let update = self.stores.update(&key, |record, _| {
            let Some(record) = record else { return Ok(Step::answer(false)) };
            let stored: StoredToken = codec::decode(&record.value)?;
            if !condition(&stored) {
                return Ok(Step::answer(false));
            }
            let mut writes = vec![Write::Remove { key: key.clone(), expected: record.version }];
            writes.extend(self.index_keys(digest, &stored)?.into_iter().map(|key| Write::Delete { key }));
            let under = stored.grant.map(|under| GrantId::from_bytes(*under.id));
            let detail = under.map(|id| format!("under the grant {id}"));
            let step = Step::write(writes, true);
            let Some(note) = note else { return Ok(step) };
            let note = note.clone().about(Kind::AccessToken, vec![stored.subject, stored.client_id]);
            let note = if let Some(detail) = detail { note.with_detail(detail) } else { note };
            Ok(step.audited(&self.scope, note))
        });
        update.await
    }

    /// Revokes the tokens of one page. Returns their number, and the start of the next page.
    pub(in crate::stores) async fn revoke_page(
        &self,
        holder: Holder<'_>,
        after: Option<&Cursor>,
    ) -> Result<(u64, Option<Cursor>)> {
        let prefix = holder.prefix(Listed::AccessTokens, &self.scope)?;
        let page = self.stores.backend().scan(&prefix, after, PAGE, self.stores.now()?).await?;
        let mut revoked = 0;
        for (key, _) in page.items {
            revoked += u64::from(self.revoke_listed(key, holder).await?);
        }
        Ok((revoked, page.next))
    }

    /// Revokes the token of an index entry. An entry without a token is removed.
    async fn revoke_listed(&self, index: Key, holder: Holder<'_>) -> Result<bool> {
        let digest = Digest::from_bytes(listed_id(&index)?);
        // The key has a digest of the holder's name; the record has the name.
        let is_theirs = |stored: &StoredToken| holder.has(&stored.subject, &stored.client_id);
        let revoked = self.revoke_if(&digest, None, is_theirs).await?;
        if !revoked {
            // A delete has no condition that could be refused.
            let unlist = Write::Delete { key: index };
            let _ = self.stores.backend().commit(unlist.try_into()?, self.stores.now()?).await?;
        }
        Ok(revoked)
    }
}
