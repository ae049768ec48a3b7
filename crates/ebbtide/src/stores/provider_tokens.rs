//! An upstream provider's tokens: sealed, attached to a grant, and gone with it.

use std::convert::Infallible;

use super::grants::{GrantId, Grants, Standing};
use super::registry::Store;
use super::shared::payload::Payload;
use super::shared::update::Step;
use super::{Stores, check_length};
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;

/// The provider tokens of one scope.
///
/// They are sealed with a key that takes the keyring and a secret in the grant's record. Revoking the grant wipes
/// that secret, in the same commit: from then on they cannot be read, not even by who has the store and the keyring.
#[derive(Debug, Clone)]
pub struct ProviderTokens {
    stores: Stores,
    scope: Scope,
}

/// A provider's tokens, as they were put.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderToken {
    /// The tokens, and what came with them.
    pub tokens: Payload,
    /// When they end, if the grant lasts until then.
    pub expires_at: Timestamp,
}

/// The answer to putting a provider's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the tokens may not have been kept"]
pub enum AttachOutcome {
    /// They are kept.
    Kept {
        /// Until when: the grant's cap, or sooner.
        expires_at: Timestamp,
    },
    /// There is no such grant, or it is not active. Nothing was kept.
    Inactive,
}

impl Store for ProviderTokens {
    const KINDS: &'static [Kind] = &[Kind::ProviderToken];
    type Question = Infallible;
}

impl ProviderTokens {
    /// The longest name of a provider, in bytes.
    pub const MAX_PROVIDER_BYTES: usize = 256;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Keeps the tokens of a provider with an active grant, in place of those that were there. Without a TTL they
    /// live as long as the grant can.
    pub async fn put(
        &self,
        grant_id: GrantId,
        provider: &str,
        tokens: &Payload,
        ttl: Option<Ttl>,
    ) -> Result<AttachOutcome> {
        let key = &self.key(grant_id, provider)?;
        let update = self.stores.retry(|now| async move {
            let Some((grant, salt)) = self.active(grant_id, now).await? else {
                return Ok(Step::answer(AttachOutcome::Inactive));
            };
            let rest = Ttl::new(grant.ends_at.since(now))?;
            let ttl = self.stores.ttl(Kind::ProviderToken, &self.scope, ttl, rest)?;
            let expires_at = ttl.expires_at(now)?.min(grant.ends_at);
            let record = self.stores.record(self.stores.seal(key, &salt, tokens)?, expires_at);
            let put = Write::Put { key: key.clone(), record };
            let check = Write::Check { key: grant.key, expected: grant.version };
            Ok(Step::write(vec![put, check], AttachOutcome::Kept { expires_at }))
        });
        update.await
    }

    /// The tokens of a provider, if the grant is active.
    pub async fn get(&self, grant_id: GrantId, provider: &str) -> Result<Option<ProviderToken>> {
        let key = self.key(grant_id, provider)?;
        let now = self.stores.now();
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(None) };
        let Some((_, salt)) = self.active(grant_id, now).await? else { return Ok(None) };
        let tokens = self.stores.open(&key, &salt, &record.value)?;
        Ok(Some(ProviderToken { tokens, expires_at: record.expires_at }))
    }

    /// Removes the tokens of a provider, and says whether there were any.
    pub async fn delete(&self, grant_id: GrantId, provider: &str) -> Result<bool> {
        let key = self.key(grant_id, provider)?;
        Ok(self.stores.backend().take(&key, self.stores.now()).await?.is_some())
    }

    async fn active(&self, id: GrantId, now: Timestamp) -> Result<Option<(Standing, [u8; 32])>> {
        let grants: Grants = self.stores.grants(&self.scope);
        let standing = grants.active(id, now).await?;
        Ok(standing.and_then(|standing| standing.family.salt.map(|salt| (standing, *salt))))
    }

    fn key(&self, grant_id: GrantId, provider: &str) -> Result<Key> {
        check_length("provider", provider, Self::MAX_PROVIDER_BYTES)?;
        Key::new(Kind::ProviderToken, &self.scope, &[grant_id.as_bytes().into()], &[provider.into()])
    }
}
