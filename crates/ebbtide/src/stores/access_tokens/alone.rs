//! Access tokens without a grant. No grant can be revoked for them, so indexes list them by subject and client.

use super::{AccessRequest, AccessTokens, IssueOutcome, StoredToken};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::write::Write;
use crate::stores::grants::{Holder, Listed};
use crate::stores::shared::tombstones::Principal;

impl AccessTokens {
    /// Issues a token and its indexes, which end with it, in one commit.
    pub(super) async fn issue_alone(&self, request: AccessRequest) -> Result<IssueOutcome> {
        let now = self.stores.now()?;
        let (issued, insert, digest, stored) = self.prepare(request, None, now)?;
        let mut writes = vec![insert];
        for key in self.index_keys(&digest, &stored)? {
            writes.push(Write::Insert { key, record: self.stores.record("", issued.expires_at) });
        }
        let whom = [Principal::Owner(&stored.subject), Principal::Client(&stored.client_id)];
        let commit = self.stores.commit_for(&self.scope, &whom, writes, now).await?.unless_deleted()?;
        // The key is the digest of 32 random bytes: a collision means that the random numbers are broken.
        if commit.is_applied() {
            Ok(IssueOutcome::Issued(issued))
        } else {
            Err(Error::unavailable("a new access token is taken"))
        }
    }

    pub(super) fn index_keys(&self, digest: &Digest, stored: &StoredToken) -> Result<[Key; 2]> {
        let key = |holder: Holder<'_>| holder.key(Listed::AccessTokens, &self.scope, digest.as_bytes());
        Ok([key(Holder::Subject(&stored.subject))?, key(Holder::Client(&stored.client_id))?])
    }
}
