//! Revocations that the audit log is told of.

use super::refresh::Refresh;
use super::{GrantId, GrantState, Grants, Why};
use crate::audit::{Because, Note};
use crate::error::Result;
use crate::kind::Kind;
use crate::secret::Secret;

impl Grants {
    /// Revokes a grant as [`revoke`](Self::revoke) does, and tells the audit log in the same commit.
    pub async fn revoke_audited(&self, id: GrantId, because: &Because) -> Result<bool> {
        let note = Note::revoked(because)?.about(Kind::Grant, vec![id.to_string()]);
        let audit = self.stores.audit(&self.scope);
        let mut changes = audit.changes().await;
        loop {
            let now = changes.attempt()?;
            let Some(mut standing) = self.read(id, now).await? else { return Ok(false) };
            if standing.family.state(now) != GrantState::Active {
                return Ok(false);
            }
            standing.family.revoke(Why::Requested, now);
            if changes.commit(vec![self.replacement(&standing)], &note, now).await? {
                return Ok(true);
            }
        }
    }

    /// Revokes a family as [`revoke_token`](Self::revoke_token) does, and tells the audit log in the same commit.
    pub async fn revoke_token_audited(&self, token: &Secret, because: &Because) -> Result<bool> {
        match Refresh::read(token, self.stores.keyring(), &self.scope) {
            Some(token) => self.revoke_audited(token.grant_id, because).await,
            None => Ok(false),
        }
    }
}
