//! Revocations that the audit log is told of.

use super::family::Family;
use super::refresh::Refresh;
use super::{GrantId, Grants, Why};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::stores::Stores;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::shared::token;

impl Grants {
    /// Revokes a grant as [`revoke`](Self::revoke) does, and tells the audit log in the same commit.
    pub async fn revoke_audited(&self, id: GrantId, context: &AuditContext) -> Result<bool> {
        self.revoke_audited_if(id, context, |_| true).await
    }

    /// Revokes a family as [`revoke_token`](Self::revoke_token) does, and tells the audit log in the same commit.
    pub async fn revoke_token_audited(&self, token: &Secret, context: &AuditContext) -> Result<bool> {
        match Refresh::read(token, self.stores.keyring(), &self.scope) {
            Some(token) => self.revoke_audited(token.grant_id, context).await,
            None => Ok(false),
        }
    }

    /// Revokes a family as [`revoke_token_of`](Self::revoke_token_of) does, and tells the audit log in the same commit.
    pub async fn revoke_token_of_audited(
        &self,
        token: &Secret,
        client_id: &str,
        context: &AuditContext,
    ) -> Result<bool> {
        match Refresh::read(token, self.stores.keyring(), &self.scope) {
            Some(token) => {
                let is_theirs = |family: &Family| family.client_id == client_id;
                self.revoke_audited_if(token.grant_id, context, is_theirs).await
            }
            None => Ok(false),
        }
    }

    async fn revoke_audited_if(
        &self,
        id: GrantId,
        context: &AuditContext,
        condition: impl Fn(&Family) -> bool,
    ) -> Result<bool> {
        let note = Note::revoked(context)?.about(Kind::Grant, vec![id.to_string()]);
        self.revoke_if(id, Why::Requested, Some(note), condition).await
    }
}

impl Stores {
    /// Revokes a token of either kind as [`revoke_token`](Self::revoke_token) does, or where a client is named as
    /// [`revoke_token_of`](Self::revoke_token_of) does, and tells the audit log in the same commit.
    pub async fn revoke_token_audited(
        &self,
        scope: &Scope,
        token: &Secret,
        client_id: Option<&str>,
        context: &AuditContext,
    ) -> Result<bool> {
        if !token.expose().starts_with(token::REFRESH) {
            return self.access_tokens(scope).revoke_audited(token, client_id, context).await;
        }
        match client_id {
            Some(client_id) => self.grants(scope).revoke_token_of_audited(token, client_id, context).await,
            None => self.grants(scope).revoke_token_audited(token, context).await,
        }
    }
}
