//! Access tokens without a grant, and the indexes of all access tokens.

use super::{AccessRequest, AccessTokens, IssueOutcome, StoredToken};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::stores::grants::{Holder, Listed};
use crate::stores::shared::epochs::Parties;

impl AccessTokens {
    /// Issues a token and its indexes, which end with it, in one commit.
    pub(super) async fn issue_alone(&self, request: AccessRequest) -> Result<IssueOutcome> {
        let subject = request.subject.clone().unwrap_or_default();
        let client_id = request.client_id.clone().unwrap_or_default();
        let parties = Parties::new(&subject, &client_id);
        let issue = self
            .stores
            .issue(&self.scope, parties, |stamp, now| self.prepare_alone(request.clone(), None, stamp, now));
        // The key is the digest of 32 random bytes: a collision means that the random numbers are broken.
        let issued = issue.await?.ok_or_else(|| Error::unavailable("a new access token is taken"))?;
        self.stores.clients(&self.scope).note_use(&client_id);
        Ok(IssueOutcome::Issued(issued))
    }

    /// Keys of the index entries of a token. The index of its subject lists every token. The index of its client lists
    /// tokens without a grant: those under a grant are reached through the grants of the client.
    pub(super) fn index_keys(&self, digest: &Digest, stored: &StoredToken) -> Result<Vec<Key>> {
        let key = |holder: Holder<'_>| holder.key(Listed::AccessTokens, &self.scope, digest.as_bytes());
        let mut keys = vec![key(Holder::Subject(&stored.subject))?];
        if stored.grant.is_none() {
            keys.push(key(Holder::Client(&stored.client_id))?);
        }
        Ok(keys)
    }
}
