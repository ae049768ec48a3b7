//! Revocation of grants and tokens, by id, by token or by holder.

use super::family::Family;
use super::refresh::Refresh;
use super::{GrantId, Grants, Holder, Why};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::shared::token;

/// Grants and tokens to revoke.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
#[must_use]
pub enum Revoke<'a> {
    /// A grant, with every access token and provider token under it.
    Grant(GrantId),
    /// A token (RFC 7009): a refresh token of any generation with its whole family, an access token alone.
    Token {
        /// The token.
        token: &'a Secret,
        /// Client that must hold the token. The token of another client is left as it is, and answered like an
        /// unknown one (RFC 7009 §2.1).
        client_id: Option<&'a str>,
    },
    /// All grants of a subject or a client, and their access tokens without a grant.
    Holder(Holder<'a>),
}

impl From<GrantId> for Revoke<'_> {
    fn from(id: GrantId) -> Self {
        Self::Grant(id)
    }
}

impl<'a> From<&'a Secret> for Revoke<'a> {
    fn from(token: &'a Secret) -> Self {
        Self::Token { token, client_id: None }
    }
}

impl<'a> From<Holder<'a>> for Revoke<'a> {
    fn from(holder: Holder<'a>) -> Self {
        Self::Holder(holder)
    }
}

impl Grants {
    /// Revokes grants and tokens, and returns the number of those that were active until now. With a context, the
    /// audit log is written too: for one grant or token in the same commit, for a holder before and after.
    ///
    /// A grant that is issued while the grants of its holder are being revoked may be left out. After an error, some
    /// may have been revoked: call it again.
    pub async fn revoke<'a>(
        &self,
        what: impl Into<Revoke<'a>>,
        context: Option<&AuditContext>,
    ) -> Result<u64> {
        match what.into() {
            Revoke::Grant(id) => Ok(self.revoke_one(id, None, context).await?.into()),
            Revoke::Token { token, client_id } if token.expose().starts_with(token::REFRESH) => {
                match Refresh::read(token, &self.stores.keyring(), &self.scope) {
                    Some(token) => Ok(self.revoke_one(token.grant_id, client_id, context).await?.into()),
                    None => Ok(0),
                }
            }
            Revoke::Token { token, client_id } => {
                let tokens = self.stores.access_tokens(&self.scope);
                Ok(tokens.revoke(token, client_id, context).await?.into())
            }
            Revoke::Holder(holder) => match context {
                Some(context) => self.revoke_held_audited(holder, context).await,
                None => self.revoke_held(holder).await,
            },
        }
    }

    async fn revoke_one(
        &self,
        id: GrantId,
        client_id: Option<&str>,
        context: Option<&AuditContext>,
    ) -> Result<bool> {
        let note = context.map(Note::revoked).transpose()?;
        let note = note.map(|note| note.about(Kind::Grant, vec![id.to_string()]));
        let is_theirs = |family: &Family| client_id.is_none_or(|client_id| family.client_id == client_id);
        self.revoke_if(id, Why::Requested, note, is_theirs).await
    }

    async fn revoke_held(&self, holder: Holder<'_>) -> Result<u64> {
        let grants = self.revoke_listed(holder).await?;
        Ok(grants + self.stores.access_tokens(&self.scope).revoke_held(holder).await?)
    }

    async fn revoke_held_audited(&self, holder: Holder<'_>, context: &AuditContext) -> Result<u64> {
        let (kind, name) = match holder {
            Holder::Subject(subject) => (Kind::Grant, subject),
            Holder::Client(client_id) => (Kind::Client, client_id),
        };
        let note = Note::revoked(context)?.about(kind, vec![name.to_owned()]);
        let audit = self.stores.audit(&self.scope);
        audit.append(&note.clone().with_detail("all, begins")).await?;
        let revoked = self.revoke_held(holder).await?;
        audit.append(&note.with_detail(format!("all, ended, {revoked} revoked"))).await?;
        Ok(revoked)
    }
}
