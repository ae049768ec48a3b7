//! Revocations that the audit log is told of.

use super::{AccessTokens, StoredToken};
use crate::model::codec;
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::model::write::Write;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::grants::GrantId;
use crate::stores::shared::token;

impl AccessTokens {
    /// Revokes this one token as [`revoke`](Self::revoke) does, or where a client is named as
    /// [`revoke_of`](Self::revoke_of) does, and tells the audit log in the same commit whose it was.
    pub async fn revoke_audited(
        &self,
        token: &Secret,
        client_id: Option<&str>,
        context: &AuditContext,
    ) -> Result<bool> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else { return Ok(false) };
        let key = self.key(&digest)?;
        let audit = self.stores.audit(&self.scope);
        let mut changes = audit.changes().await;
        loop {
            let now = changes.attempt()?;
            let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(false) };
            let stored: StoredToken = codec::decode(&record.value)?;
            if client_id.is_some_and(|client_id| client_id != stored.client_id) {
                return Ok(false);
            }
            let whose = vec![stored.subject.clone(), stored.client_id.clone()];
            let mut note = Note::revoked(context)?.about(Kind::AccessToken, whose);
            let mut writes = vec![Write::Remove { key: key.clone(), expected: record.version }];
            if let Some(under) = &stored.grant {
                note = note.with_detail(format!("under the grant {}", GrantId::from_bytes(*under.id)));
            } else {
                writes.extend(self.index_keys(&digest, &stored)?.map(|key| Write::Delete { key }));
            }
            if changes.commit(writes, &note, now).await? {
                return Ok(true);
            }
        }
    }
}
