//! Access tokens: opaque, alive only while their grant is (RFC 7662, RFC 7009).

mod alone;
mod revocation;

use futures_util::future::try_join;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::grants::{
    Family, GrantId, GrantState, Holder, MAX_NAME_BYTES, MAX_SCOPE_BYTES, MAX_THUMBPRINT_BYTES, Why,
};
use super::registry::{Store, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::Payload;
use super::shared::token;
use super::shared::tombstones::Principal;
use super::{ATTEMPTS, Field, Stores, check_length, check_optional, contended};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Write};

/// The access tokens of one scope.
#[derive(Debug, Clone)]
pub struct AccessTokens {
    stores: Stores,
    scope: Scope,
}

/// An access token to be issued, under a grant or alone.
#[derive(Debug, Clone)]
#[must_use]
pub struct AccessRequest {
    grant_id: Option<GrantId>,
    subject: Option<String>,
    client_id: Option<String>,
    scope: Option<String>,
    thumbprint: Option<String>,
    data: Option<Payload>,
    ttl: Option<Ttl>,
}

impl AccessRequest {
    /// A token under a grant: it speaks for the grant's subject, is held by the grant's client and bound to the
    /// grant's key, and ends with the grant.
    pub fn under(grant_id: GrantId) -> Self {
        Self {
            grant_id: Some(grant_id),
            subject: None,
            client_id: None,
            scope: None,
            thumbprint: None,
            data: None,
            ttl: None,
        }
    }

    /// A token of its own, that speaks for `subject` and is held by `client_id`.
    pub fn alone(subject: impl Into<String>, client_id: impl Into<String>) -> Self {
        let (subject, client_id) = (Some(subject.into()), Some(client_id.into()));
        Self { grant_id: None, subject, client_id, scope: None, thumbprint: None, data: None, ttl: None }
    }

    /// Says whom it speaks for. Under a grant this must be the grant's subject.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Says who holds it. Under a grant this must be the grant's client.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// What it is good for. Under a grant with a scope this must be within it, and is all of it where nothing is
    /// said.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Binds it to the key with this thumbprint. Under a grant that is bound to a key this must be the same.
    pub fn thumbprint(mut self, thumbprint: impl Into<String>) -> Self {
        self.thumbprint = Some(thumbprint.into());
        self
    }

    /// Keeps this with the token, sealed.
    pub fn data(mut self, data: impl Into<Payload>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Lets it live that long, or until its grant's cap if that is sooner.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    fn check(&self) -> Result<()> {
        check_optional("subject", self.subject.as_deref(), MAX_NAME_BYTES)?;
        check_optional("client_id", self.client_id.as_deref(), MAX_NAME_BYTES)?;
        check_optional("scope", self.scope.as_deref(), MAX_SCOPE_BYTES)?;
        check_optional("key thumbprint", self.thumbprint.as_deref(), MAX_THUMBPRINT_BYTES)
    }

    /// Fills in what the grant says; the error is the field that contradicts it.
    fn inherit(&mut self, family: &Family) -> Result<(), Field> {
        if self.subject.get_or_insert_with(|| family.subject.clone()) != &family.subject {
            return Err(Field::Subject);
        }
        if self.client_id.get_or_insert_with(|| family.client_id.clone()) != &family.client_id {
            return Err(Field::ClientId);
        }
        if let Some(bound) = &family.thumbprint
            && self.thumbprint.get_or_insert_with(|| bound.clone()) != bound
        {
            return Err(Field::Thumbprint);
        }
        if let Some(granted) = &family.scope {
            let asked = self.scope.get_or_insert_with(|| granted.clone());
            if !asked.split(' ').all(|name| granted.split(' ').any(|other| name == other)) {
                return Err(Field::Scope);
            }
        }
        Ok(())
    }
}

/// An access token that was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedAccessToken {
    /// The token.
    pub access_token: Secret,
    /// When it ends, if its grant lasts until then.
    pub expires_at: Timestamp,
}

/// The answer to a request for an access token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a token may have been refused"]
pub enum IssueOutcome {
    /// Here it is.
    Issued(IssuedAccessToken),
    /// The request contradicts the grant.
    Mismatch(Field),
    /// The grant was revoked.
    Revoked {
        /// When.
        at: Timestamp,
        /// Why.
        why: Why,
    },
    /// The grant was idle for too long.
    Expired,
    /// There is no such grant in this scope, or it has reached its cap.
    Unknown,
}

/// What an active token stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Active {
    /// Whom it speaks for.
    pub subject: String,
    /// Who holds it.
    pub client_id: String,
    /// What it is good for.
    pub scope: Option<String>,
    /// The key that it is bound to.
    pub thumbprint: Option<String>,
    /// What was kept with it.
    pub data: Option<Payload>,
    /// The grant that it is under.
    pub grant_id: Option<GrantId>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it ends, if its grant lasts until then.
    pub expires_at: Timestamp,
}

/// The answer to an introspection.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an inactive token is good for nothing"]
pub enum IntrospectOutcome {
    /// It can be used.
    Active(Box<Active>),
    /// Unknown, expired or revoked: it is not told which.
    Inactive,
}

#[derive(Debug, Encode, Decode)]
struct StoredToken {
    #[n(0)]
    subject: String,
    #[n(1)]
    client_id: String,
    #[n(2)]
    scope: Option<String>,
    #[n(3)]
    thumbprint: Option<String>,
    /// Sealed for this record.
    #[cbor(n(4), with = "minicbor::bytes")]
    data: Option<Vec<u8>>,
    #[n(5)]
    issued_at: u64,
    #[n(6)]
    grant: Option<Under>,
}

#[derive(Debug, Clone, Copy, Encode, Decode)]
struct Under {
    #[n(0)]
    id: ByteArray<{ GrantId::BYTES }>,
    /// The generation of the family when the token was issued.
    #[n(1)]
    generation: u64,
}

question! {
    /// Access token to explain.
    AccessTokenQuestion {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        access_token: Secret,
    }
}

impl Store for AccessTokens {
    const KINDS: &'static [Kind] = &[Kind::AccessToken];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(900));
    type Question = AccessTokenQuestion;

    async fn explain(&self, question: &AccessTokenQuestion) -> Result<Finding> {
        let unknown =
            || Finding::unknown("not an access token of this scope, or one that was revoked or is over");
        let Some(digest) = token::read(token::ACCESS, &[], &question.access_token) else {
            return Ok(unknown());
        };
        let record = self.stores.backend().get(&self.key(&digest)?, self.stores.now()).await?;
        let Some(record) = record else { return Ok(unknown()) };
        let stored: StoredToken = codec::decode(&record.value)?;
        let grant_id = stored.grant.map(|under| GrantId::from_bytes(*under.id));
        let (state, why) = match grant_id {
            None => (RecordState::Live, "it stands alone".to_owned()),
            Some(id) => {
                let grant = self.stores.grants(&self.scope).explain_grant(id).await?;
                (grant.state, format!("of its grant: {}", grant.why))
            }
        };
        let finding = Finding::new(state, why)
            .since(Timestamp::from_stored(stored.issued_at)?)
            .until(record.expires_at);
        Ok(finding.of_grant(grant_id))
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        let page = self.revoke_page(Holder::Subject(owned.owner), progress.after.as_ref()).await?;
        Ok(progress.add_page(Kind::AccessToken, page))
    }
}

impl AccessTokens {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Issues an access token. Under a grant it is issued only if the grant is active in the step that writes it:
    /// none gets into a family that was revoked.
    pub async fn issue(&self, request: AccessRequest) -> Result<IssueOutcome> {
        request.check()?;
        let Some(grant_id) = request.grant_id else { return self.issue_alone(request).await };
        let grants = self.stores.grants(&self.scope);
        for _ in 0..ATTEMPTS {
            let now = self.stores.now();
            let Some(grant) = grants.standing(grant_id, now).await? else { return Ok(IssueOutcome::Unknown) };
            match grant.family.state(now) {
                GrantState::Active => {}
                GrantState::Revoked { at, why } => return Ok(IssueOutcome::Revoked { at, why }),
                GrantState::Expired => return Ok(IssueOutcome::Expired),
            }
            let mut request = request.clone();
            if let Err(field) = request.inherit(&grant.family) {
                return Ok(IssueOutcome::Mismatch(field));
            }
            let id = (*grant_id.as_bytes()).into();
            let under = Under { id, generation: grant.family.generation() };
            let (issued, insert, ..) = self.prepare(request, Some((under, grant.ends_at)), now)?;
            let check = Write::Check { key: grant.key, expected: grant.version };
            let batch = Batch::new(vec![insert, check])?;
            if self.stores.backend().commit(batch, now).await?.is_applied() {
                return Ok(IssueOutcome::Issued(issued));
            }
        }
        Err(contended())
    }

    fn prepare(
        &self,
        request: AccessRequest,
        grant: Option<(Under, Timestamp)>,
        now: Timestamp,
    ) -> Result<(IssuedAccessToken, Write, Digest, StoredToken)> {
        let (subject, client_id) =
            (request.subject.unwrap_or_default(), request.client_id.unwrap_or_default());
        check_length("subject", &subject, MAX_NAME_BYTES)?;
        check_length("client_id", &client_id, MAX_NAME_BYTES)?;
        let default = self.stores.profile().access;
        let ttl = self.stores.ttl(Kind::AccessToken, &self.scope, request.ttl, default)?;
        let ends_at = grant.map_or(Timestamp::NEVER, |(_, ends_at)| ends_at);
        let expires_at = ttl.expires_at(now)?.min(ends_at);
        let (access_token, digest) = token::mint(token::ACCESS, &[], self.stores.rng());
        let key = self.key(&digest)?;
        let stored = StoredToken {
            subject,
            client_id,
            scope: request.scope,
            thumbprint: request.thumbprint,
            data: request.data.map(|data| self.stores.seal(&key, &[], &data)).transpose()?,
            issued_at: now.as_millis(),
            grant: grant.map(|(under, _)| under),
        };
        let record = self.stores.record(codec::encode(&stored), expires_at);
        let issued = IssuedAccessToken { access_token, expires_at };
        Ok((issued, Write::Insert { key, record }, digest, stored))
    }

    /// What the token stands for, if it is active. Under a grant, this is also the proof that the answer in which
    /// the token was sent has arrived: it closes the window in which that rotation can be retried, with one write
    /// per generation at most. Otherwise it is a read of the token, and then, at once, those of its grant and of the
    /// tombstones of its subject and client.
    pub async fn introspect(&self, token: &Secret) -> Result<IntrospectOutcome> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else {
            return Ok(IntrospectOutcome::Inactive);
        };
        let key = self.key(&digest)?;
        let record = self.stores.backend().get(&key, self.stores.now()).await?;
        let Some(record) = record else { return Ok(IntrospectOutcome::Inactive) };
        let stored: StoredToken = codec::decode(&record.value)?;
        let grant_id = stored.grant.map(|under| GrantId::from_bytes(*under.id));
        let whom = [Principal::Owner(&stored.subject), Principal::Client(&stored.client_id)];
        let is_deleted = self.stores.is_deleted(&self.scope, &whom, self.stores.now());
        let is_active = async {
            let (Some(under), Some(grant_id)) = (stored.grant, grant_id) else { return Ok(true) };
            let grants = self.stores.grants(&self.scope);
            Ok(grants.witness(grant_id, under.generation).await?.is_some())
        };
        if let (true, _) | (_, false) = try_join(is_deleted, is_active).await? {
            return Ok(IntrospectOutcome::Inactive);
        }
        Ok(IntrospectOutcome::Active(Box::new(Active {
            data: self.stores.open_some(&key, stored.data.as_deref())?,
            subject: stored.subject,
            client_id: stored.client_id,
            scope: stored.scope,
            thumbprint: stored.thumbprint,
            grant_id,
            issued_at: Timestamp::from_stored(stored.issued_at)?,
            expires_at: record.expires_at,
        })))
    }

    /// Revokes this one token and leaves its grant alone. Says whether it was there; afterwards it is not.
    pub async fn revoke(&self, token: &Secret) -> Result<bool> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else { return Ok(false) };
        let removed = self.stores.backend().take(&self.key(&digest)?, self.stores.now()).await?;
        if let Some(record) = &removed {
            self.unlist(&digest, &codec::decode(&record.value)?).await?;
        }
        Ok(removed.is_some())
    }

    /// Revokes this one token if it is this client's.
    pub async fn revoke_of(&self, token: &Secret, client_id: &str) -> Result<bool> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else { return Ok(false) };
        let record = self.stores.backend().get(&self.key(&digest)?, self.stores.now()).await?;
        let stored: Option<StoredToken> = record.map(|record| codec::decode(&record.value)).transpose()?;
        // A token never changes hands, so that what was read stays true.
        if stored.is_some_and(|stored| stored.client_id == client_id) {
            self.revoke(token).await
        } else {
            Ok(false)
        }
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::AccessToken, &self.scope, &[digest.part()], &[])
    }
}
