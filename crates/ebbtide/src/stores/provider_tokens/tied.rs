//! Provider tokens by a grant or by an access token, and the lease to refresh them.

use super::{AttachOutcome, ProviderToken, ProviderTokens};
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Version;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::access_tokens::IntrospectOutcome;
use crate::stores::check_length;
use crate::stores::grants::GrantId;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::payload::Payload;
use crate::stores::shared::update::Step;

/// Owner of provider tokens: they are gone with it.
#[derive(Debug, Clone)]
pub enum Tie {
    /// A grant.
    Grant(GrantId),
    /// An access token: its grant, or the token itself where it has none.
    AccessToken(Secret),
}

/// Answer to asking for the lease to refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "only `Acquired` may refresh"]
pub enum RefreshLease {
    /// The caller refreshes.
    Acquired {
        /// Name of the lease, for its release.
        lease: Version,
        /// End of the lease.
        expires_at: Timestamp,
    },
    /// Another caller refreshes: read the tokens again when it has ended.
    Held {
        /// End of its lease.
        expires_at: Timestamp,
    },
    /// The grant or the access token is not active.
    Inactive,
}

/// Tie that is active.
enum Active {
    Grant(GrantId),
    Token { digest: Digest, expires_at: Timestamp },
}

impl Active {
    fn part(&self) -> Part<'_> {
        match self {
            Self::Grant(id) => id.as_bytes().into(),
            Self::Token { digest, .. } => digest.part(),
        }
    }
}

impl ProviderTokens {
    /// Stores the tokens of a provider, and replaces earlier ones. They live as long as what they are tied to.
    pub async fn put_for(
        &self,
        tie: &Tie,
        provider: &str,
        tokens: &Payload,
        ttl: Option<Ttl>,
    ) -> Result<AttachOutcome> {
        self.put_tied(tie, provider, tokens, ttl, None).await
    }

    async fn put_tied(
        &self,
        tie: &Tie,
        provider: &str,
        tokens: &Payload,
        ttl: Option<Ttl>,
        parent: Option<&Parent>,
    ) -> Result<AttachOutcome> {
        let Some(active) = self.resolve(tie).await? else { return Ok(AttachOutcome::Inactive) };
        let expires_at = match &active {
            Active::Grant(id) => return self.attach(*id, provider, tokens, ttl, parent).await,
            Active::Token { expires_at, .. } => *expires_at,
        };
        let (key, now) = (self.key_of(&active, provider)?, self.stores.now()?);
        let rest = Ttl::new(expires_at.since(now.latest()))?;
        let ttl = self.stores.ttl(Kind::ProviderToken, &self.scope, ttl, rest)?;
        let expires_at = now.end(ttl)?.min(expires_at);
        let record = self.stores.record(self.stores.seal(&key, &salt(tie), tokens)?, expires_at);
        let (name, mut writes) = self.linking(&key, parent, now).await?;
        let version = record.version;
        writes.push(Write::Put { key: key.clone(), record });
        let owners: Vec<_> = parent.and_then(Parent::owner).into_iter().collect();
        // A put has no condition that could be refused.
        let _ = self.stores.commit_for(&self.scope, &owners, writes, now).await?.unless_deleted()?;
        self.keep_or_take_back(&key, Some((name, version))).await?;
        Ok(AttachOutcome::Kept { expires_at })
    }

    /// Stores the tokens of a provider that belong to a trust, a client or an owner besides: they are removed with it.
    pub async fn put_belonging(
        &self,
        tie: &Tie,
        provider: &str,
        tokens: &Payload,
        ttl: Option<Ttl>,
        parent: &Parent,
    ) -> Result<AttachOutcome> {
        self.put_tied(tie, provider, tokens, ttl, Some(parent)).await
    }

    /// Reads the tokens of a provider, if what they are tied to is active.
    pub async fn get_for(&self, tie: &Tie, provider: &str) -> Result<Option<ProviderToken>> {
        let Some(active) = self.resolve(tie).await? else { return Ok(None) };
        if let Active::Grant(id) = active {
            return self.get(id, provider).await;
        }
        let key = self.key_of(&active, provider)?;
        let Some(record) = self.read(&key, self.stores.now()?).await? else { return Ok(None) };
        let tokens = self.stores.open(&key, &salt(tie), &record.value)?;
        Ok(Some(ProviderToken { tokens, expires_at: record.expires_at }))
    }

    /// Removes the tokens of a provider, and returns false if there were none.
    pub async fn delete_for(&self, tie: &Tie, provider: &str) -> Result<bool> {
        let Some(active) = self.resolve(tie).await? else { return Ok(false) };
        let key = self.key_of(&active, provider)?;
        Ok(self.stores.backend().take(&key, self.stores.now()?).await?.is_some())
    }

    /// Asks for the lease to refresh the tokens of a provider: of any number of callers one has it at a time.
    pub async fn acquire(&self, tie: &Tie, provider: &str, ttl: Ttl) -> Result<RefreshLease> {
        let Some(active) = self.resolve(tie).await? else { return Ok(RefreshLease::Inactive) };
        let key = &self.lease_key(&active, provider)?;
        let update = self.stores.update(key, |present, now| {
            if let Some(present) = present {
                return Ok(Step::answer(RefreshLease::Held { expires_at: present.expires_at }));
            }
            let expires_at = now.end(ttl)?;
            let record = self.stores.record(Vec::new(), expires_at);
            let answer = RefreshLease::Acquired { lease: record.version, expires_at };
            let insert = Write::Insert { key: key.clone(), record };
            Ok(Step::write(vec![insert], answer))
        });
        update.await
    }

    /// Releases a lease. False if it has ended, or is another caller's.
    pub async fn release(&self, tie: &Tie, provider: &str, lease: Version) -> Result<bool> {
        let Some(active) = self.resolve(tie).await? else { return Ok(false) };
        let key = self.lease_key(&active, provider)?;
        Ok(self.stores.backend().remove(key, lease, self.stores.now()?).await?.is_applied())
    }

    async fn resolve(&self, tie: &Tie) -> Result<Option<Active>> {
        let token = match tie {
            Tie::Grant(id) => {
                let is_active = self.active(*id, self.stores.now()?).await?.is_some();
                return Ok(is_active.then_some(Active::Grant(*id)));
            }
            Tie::AccessToken(token) => token,
        };
        Ok(match self.stores.access_tokens(&self.scope).introspect(token).await? {
            IntrospectOutcome::Active(found) => Some(if let Some(id) = found.grant_id {
                Active::Grant(id)
            } else {
                let digest = Digest::of("provider-token", &[token.expose().as_bytes()]);
                Active::Token { digest, expires_at: found.expires_at }
            }),
            IntrospectOutcome::Inactive => None,
        })
    }

    fn key_of(&self, active: &Active, provider: &str) -> Result<Key> {
        check_length("provider", provider, Self::MAX_PROVIDER_BYTES)?;
        Key::new(Kind::ProviderToken, &self.scope, &[active.part()], &[provider.into()])
    }

    fn lease_key(&self, active: &Active, provider: &str) -> Result<Key> {
        check_length("provider", provider, Self::MAX_PROVIDER_BYTES)?;
        Key::new(Kind::System, &self.scope, &["refresh-lease".into(), active.part()], &[provider.into()])
    }
}

/// Part of the sealing key that only the holder of an access token has: without it, what is stored cannot be read.
fn salt(tie: &Tie) -> [u8; 32] {
    match tie {
        Tie::Grant(_) => [0; 32],
        Tie::AccessToken(token) => {
            *Digest::of("provider-token-salt", &[token.expose().as_bytes()]).as_bytes()
        }
    }
}
