//! Revocation of grants and tokens, by id, by token or by holder.

use futures_util::future::try_join;

use super::family::Family;
use super::{GrantId, GrantState, Grants, Holder, Why};
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::stores::audit::{Action, AuditContext, AuditEntry, Note};
use crate::stores::clients::RevokeReach;
use crate::stores::owners::LAST_RAISES;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::deletion::Removed;
use crate::stores::shared::epochs::Epoch;
use crate::stores::shared::token;
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;

/// Grants, and tokens, of a holder that are counted when all are revoked.
pub const MOST_COUNTED: usize = 1_000;

/// Grants and tokens to revoke.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
#[must_use]
pub enum Revoke<'a> {
    /// A grant, with every access token and provider token under it.
    Grant(GrantId),
    /// A token (RFC 7009): a refresh token of any generation with its whole family, an access token alone or with its
    /// grant.
    Token {
        /// The token.
        token: &'a Secret,
        /// Client that must hold the token. The token of another client is left as it is, and answered like an
        /// unknown one (RFC 7009 §2.1).
        client_id: Option<&'a str>,
        /// Reach of the revocation of an access token; the setting of its client by default.
        reach: Option<RevokeReach>,
    },
    /// Everything that was issued to a subject or a client.
    Holder(Holder<'a>),
}

impl From<GrantId> for Revoke<'_> {
    fn from(id: GrantId) -> Self {
        Self::Grant(id)
    }
}

impl<'a> From<&'a Secret> for Revoke<'a> {
    fn from(token: &'a Secret) -> Self {
        Self::Token { token, client_id: None, reach: None }
    }
}

impl<'a> From<Holder<'a>> for Revoke<'a> {
    fn from(holder: Holder<'a>) -> Self {
        Self::Holder(holder)
    }
}

impl Grants {
    /// Revokes grants and tokens, and returns the number of those that were active until now; of a holder's, those
    /// among the first thousand of each. With a context, the audit log is written in the same commit.
    ///
    /// For a holder it is one write, however many there are, and nothing that was issued before it returns works
    /// afterwards. For a subject it is a [sign-out](crate::stores::owners::Owners::sign_out).
    pub async fn revoke<'a>(
        &self,
        what: impl Into<Revoke<'a>>,
        context: Option<&AuditContext>,
    ) -> Result<u64> {
        match what.into() {
            Revoke::Grant(id) => Ok(self.revoke_one(id, None, context).await?.into()),
            Revoke::Token { token, client_id, .. } if token.expose().starts_with(token::REFRESH) => {
                match self.read_token(token).await? {
                    Some(token) => Ok(self.revoke_one(token.grant_id, client_id, context).await?.into()),
                    None => Ok(0),
                }
            }
            Revoke::Token { token, client_id, reach } => {
                let tokens = self.stores.access_tokens(&self.scope);
                if let Some(id) = tokens.grant_to_revoke(token, client_id, reach).await? {
                    return Ok(self.revoke_one(id, client_id, context).await?.into());
                }
                Ok(tokens.revoke(token, client_id, context).await?.into())
            }
            Revoke::Holder(holder) => self.revoke_held(holder, context).await,
        }
    }

    /// Entry of the audit log about the revocation of a grant: the key that asked for it, the claimed name and the reason.
    /// `None` if the grant is not revoked, if the log no longer has the entry, or if a session ended it. It reads the whole
    /// log.
    pub async fn revocation(&self, id: GrantId) -> Result<Option<AuditEntry>> {
        let Some(grant) = self.get(id).await? else { return Ok(None) };
        let GrantState::Revoked { why, .. } = grant.state else { return Ok(None) };
        let (kind, target) = match why {
            Why::Requested | Why::RefreshReused | Why::CodeReused => (Kind::Grant, id.to_string()),
            Why::SignedOut => (Kind::Owner, grant.subject),
            Why::ClientRevoked => (Kind::Client, grant.client_id),
            Why::SessionEnded => return Ok(None),
        };
        let entries = self.stores.audit(&self.scope).about(kind, &[target]).await?;
        // A subject signs out many times: the first time after the grant was issued ended it.
        let ended = |entry: &AuditEntry| {
            entry.at >= grant.created_at && matches!(entry.action, Action::Revoke | Action::Theft)
        };
        Ok(entries.into_iter().find(ended))
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
        let revoked = self.revoke_if(id, Why::Requested, note, is_theirs).await?;
        if revoked {
            let (belongings, parent) = (self.stores.belongings(&self.scope), Parent::Grant(id.to_string()));
            belongings.remove(&parent, &mut Removed::default()).await?;
        }
        Ok(revoked)
    }

    /// Raises the epoch of a holder: everything that was issued to it before is dead, whatever its number.
    async fn revoke_held(&self, holder: Holder<'_>, context: Option<&AuditContext>) -> Result<u64> {
        let own;
        let context = if let Some(context) = context {
            context
        } else {
            own = AuditContext::new("the library", "revoked by holder")?;
            &own
        };
        let client_id = match holder {
            Holder::Subject(subject) => {
                let ended = self.stores.owners(&self.scope).sign_out(subject, context).await?;
                return Ok(ended.grants + ended.access_tokens);
            }
            Holder::Client(client_id) => client_id,
        };
        let note = Note::revoked(context)?.about(Kind::Client, vec![client_id.to_owned()]);
        let note = &note.with_detail("everything of the client");
        let (was, mut epoch) = self.raise_client(client_id, Some(note)).await?;
        let count = async {
            let (grants, _) = self.count_ended(holder, was, MOST_COUNTED).await?;
            let (tokens, _) = self.access_tokens().count_ended(holder, was, MOST_COUNTED).await?;
            Ok::<_, Error>(grants + tokens)
        };
        let (ended, ()) = try_join(count, self.stores.spread(client_id, &self.scope, epoch)).await?;
        for _ in 0..LAST_RAISES {
            if self.stores.holds_issues_after(epoch, self.stores.client_spread())? {
                return Ok(ended);
            }
            // The count or the store took longer than the hold: what was issued meanwhile is ended too.
            (_, epoch) = self.raise_client(client_id, None).await?;
            self.stores.spread(client_id, &self.scope, epoch).await?;
        }
        Err(Error::unavailable("the store is too slow to end what is issued meanwhile; try again"))
    }

    /// Raises the epoch of a client, and returns the one before and the new one.
    async fn raise_client(&self, client_id: &str, note: Option<&Note>) -> Result<(u64, Epoch)> {
        let raise = self.stores.retry(|now| async move {
            let principal = Principal::Client(client_id);
            let (was, epoch, writes) = self.stores.raise(principal, &self.scope, None, now).await?;
            let step = Step::write(writes, (was.map_or(0, |was| was.value), epoch));
            Ok(match note {
                Some(note) => step.audited(&self.scope, note.clone()),
                None => step,
            })
        });
        raise.await
    }
}
