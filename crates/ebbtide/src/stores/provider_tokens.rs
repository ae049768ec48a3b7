//! Tokens of an upstream provider: sealed, attached to a grant, unreadable once it is revoked.

mod tied;

use std::convert::Infallible;

pub use tied::{RefreshLease, Tie};

use super::grants::{FamilyRecord, GrantId, Grants};
use super::registry::Store;
use super::shared::belongings::{Belongings, Parent};
use super::shared::parents::ParentName;
use super::shared::payload::Payload;
use super::shared::update::Step;
use super::{Stores, check_length};
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::timekeeping::Now;

/// Provider tokens of one scope.
///
/// They are sealed with a key that is derived from the keyring and a secret in the grant's record. Revoking the grant
/// removes that secret in the same commit: from then on they cannot be read, even with the store and the keyring.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::grants::GrantRequest;
/// use ebbtide::stores::provider_tokens::AttachOutcome;
/// use ebbtide::stores::shared::payload::Payload;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let grant = acme.grants().issue(GrantRequest::new("alice", "app")).await?.grant_id;
/// let tokens = Payload::new("ya29.a0Af");
/// let put = acme.provider_tokens().put(grant, "google", &tokens, None).await?;
/// assert!(matches!(put, AttachOutcome::Kept { .. }));
/// assert!(acme.provider_tokens().get(grant, "google").await?.is_some());
/// acme.grants().revoke(grant, None).await?;
/// assert!(acme.provider_tokens().get(grant, "google").await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ProviderTokens {
    stores: Stores,
    scope: Scope,
}

/// Tokens of a provider.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProviderToken {
    /// Tokens, and the members that came with them.
    pub tokens: Payload,
    /// End of the tokens, if the grant does not end before.
    pub expires_at: Timestamp,
}

/// Answer to storing the tokens of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the tokens may not have been kept"]
pub enum AttachOutcome {
    /// The tokens are stored.
    Kept {
        /// End of the tokens: the cap of the grant, or sooner.
        expires_at: Timestamp,
    },
    /// There is no such grant, or it is not active. Nothing is stored.
    Inactive,
}

impl Store for ProviderTokens {
    const KINDS: &'static [Kind] = &[Kind::ProviderToken];
    type Question = Infallible;
}

impl ProviderTokens {
    /// Longest name of a provider, in bytes.
    pub const MAX_PROVIDER_BYTES: usize = 256;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Stores the tokens of a provider with an active grant, and replaces earlier ones. Without a TTL they live as long
    /// as the grant.
    pub async fn put(
        &self,
        grant_id: GrantId,
        provider: &str,
        tokens: &Payload,
        ttl: Option<Ttl>,
    ) -> Result<AttachOutcome> {
        self.attach(grant_id, provider, tokens, ttl, None).await
    }

    /// Stores the tokens of a provider with an active grant, linked to what they belong to besides.
    async fn attach(
        &self,
        grant_id: GrantId,
        provider: &str,
        tokens: &Payload,
        ttl: Option<Ttl>,
        parent: Option<&Parent>,
    ) -> Result<AttachOutcome> {
        let key = &self.key(grant_id, provider)?;
        let update = self.stores.retry(|now| async move {
            let Some((grant, salt)) = self.active(grant_id, now).await? else {
                return Ok(Step::answer((AttachOutcome::Inactive, None)));
            };
            let (name, links) = self.linking(key, parent, now).await?;
            let rest = Ttl::new(grant.ends_at.since(now.latest()))?;
            let ttl = self.stores.ttl(Kind::ProviderToken, &self.scope, ttl, rest)?;
            let expires_at = now.end(ttl)?.min(grant.ends_at);
            let record = self.stores.record(self.stores.seal(key, &salt, tokens)?, expires_at);
            let kept = (AttachOutcome::Kept { expires_at }, Some((name, record.version)));
            let put = Write::Put { key: key.clone(), record };
            let check = Write::Check { key: grant.key, expected: grant.version };
            let owners: Vec<_> = parent.and_then(Parent::owner).into_iter().collect();
            Step::write(vec![put, check], kept).and(links).unless_deleted(&self.scope, &owners)
        });
        let (outcome, kept) = update.await?;
        self.keep_or_take_back(key, kept).await?;
        Ok(outcome)
    }

    /// Name of what tokens belong to, and the writes that link them to it; without one, those that end an earlier link.
    async fn linking(
        &self,
        key: &Key,
        parent: Option<&Parent>,
        now: Now,
    ) -> Result<(ParentName, Vec<Write>)> {
        let belongings = self.stores.belongings(&self.scope);
        let Some(parent) = parent else {
            return Ok((ParentName::default(), vec![Write::Delete { key: belongings.up(key)? }]));
        };
        let name = belongings.name_of(parent, now).await?;
        let links = belongings.links(&name, key)?;
        Ok((name, links))
    }

    async fn keep_or_take_back(&self, key: &Key, kept: Option<(ParentName, Version)>) -> Result<()> {
        let Some((name, version)) = kept else { return Ok(()) };
        let belongings = self.stores.belongings(&self.scope);
        belongings.keep_or_take_back(&name, std::slice::from_ref(key), version).await
    }

    /// Record at `key`, unless it has ended with what it belongs to besides. One trip, where it belongs to nothing.
    async fn read(&self, key: &Key, now: Now) -> Result<Option<Record>> {
        let belongings = self.stores.belongings(&self.scope);
        let keys = [key.clone(), belongings.up(key)?];
        let mut found = self.stores.backend().get_many(&keys, now).await?.into_iter();
        let (record, link) = (found.next().flatten(), found.next().flatten());
        let ended = match &link {
            Some(link) => belongings.has_ended(&Belongings::name_in(link)?, now).await?,
            None => false,
        };
        Ok(record.filter(|_| !ended))
    }

    /// Reads the tokens of a provider, if the grant is active.
    pub async fn get(&self, grant_id: GrantId, provider: &str) -> Result<Option<ProviderToken>> {
        let key = self.key(grant_id, provider)?;
        let now = self.stores.now()?;
        let Some(record) = self.read(&key, now).await? else { return Ok(None) };
        let Some((_, salt)) = self.active(grant_id, now).await? else { return Ok(None) };
        let tokens = self.stores.open(&key, &salt, &record.value)?;
        Ok(Some(ProviderToken { tokens, expires_at: record.expires_at }))
    }

    /// Removes the tokens of a provider, and returns false if there were none.
    pub async fn delete(&self, grant_id: GrantId, provider: &str) -> Result<bool> {
        let key = self.key(grant_id, provider)?;
        Ok(self.stores.backend().take(&key, self.stores.now()?).await?.is_some())
    }

    async fn active(&self, id: GrantId, now: Now) -> Result<Option<(FamilyRecord, [u8; 32])>> {
        let grants: Grants = self.stores.grants(&self.scope);
        let standing = grants.active(id, now).await?;
        Ok(standing.and_then(|standing| standing.family.salt.map(|salt| (standing, *salt))))
    }

    fn key(&self, grant_id: GrantId, provider: &str) -> Result<Key> {
        check_length("provider", provider, Self::MAX_PROVIDER_BYTES)?;
        Key::new(Kind::ProviderToken, &self.scope, &[grant_id.as_bytes().into()], &[provider.into()])
    }
}
