//! Access tokens: opaque, active only while their grant is (RFC 7662, RFC 7009).

mod alone;
mod revocation;

use futures_util::future::try_join;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use serde::Deserialize;

use super::grants::{Family, GrantId, GrantState, Holder, Why, check_names};
use super::registry::{Store, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::Payload;
use super::shared::setters::setters;
use super::shared::token;
use super::shared::tombstones::Principal;
use super::shared::update::Step;
use super::{Field, Stores};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::timekeeping::Now;

/// Access tokens of one scope.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
/// use ebbtide::stores::grants::GrantRequest;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let grant = acme.grants().issue(GrantRequest::new("alice", "app")).await?;
/// let request = AccessRequest::under(grant.grant_id);
/// let IssueOutcome::Issued(token) = acme.access_tokens().issue(request).await? else {
///     panic!("the grant is active");
/// };
/// let introspect = async || acme.access_tokens().introspect(&token.access_token).await;
/// assert!(matches!(introspect().await?, IntrospectOutcome::Active(_)));
/// acme.grants().revoke(grant.grant_id, None).await?;
/// assert_eq!(introspect().await?, IntrospectOutcome::Inactive);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AccessTokens {
    stores: Stores,
    scope: Scope,
}

/// Request for an access token, under a grant or without one.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct AccessRequest {
    /// Grant that the token is under.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub grant_id: Option<GrantId>,
    /// Subject that the token speaks for. Under a grant this must be the subject of the grant.
    #[cfg_attr(feature = "schema", schema(example = "alice"))]
    pub subject: Option<String>,
    /// Client that holds the token. Under a grant this must be the client of the grant.
    #[cfg_attr(feature = "schema", schema(example = "app"))]
    pub client_id: Option<String>,
    /// OAuth scope. Under a grant with a scope this must be within it, and defaults to all of it.
    pub scope: Option<String>,
    /// Thumbprint of the key that the token is bound to. Under a bound grant this must be the same.
    pub dpop_jkt: Option<String>,
    /// Payload, stored sealed.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Lifetime; the cap of the grant applies if it is sooner.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
}

impl AccessRequest {
    /// Request for a token under a grant: it has the subject, the client and the key of the grant, and ends with it.
    pub fn under(grant_id: GrantId) -> Self {
        Self { grant_id: Some(grant_id), ..Self::default() }
    }

    /// Request for a token without a grant, that speaks for `subject` and is held by `client_id`.
    pub fn alone(subject: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self::default().subject(subject).client_id(client_id)
    }

    setters!(
        subject: String,
        client_id: String,
        scope: String,
        dpop_jkt: String,
        data: Payload,
        ttl: Ttl,
    );

    fn check(&self) -> Result<()> {
        if self.grant_id.is_none() && (self.subject.is_none() || self.client_id.is_none()) {
            return Err(Error::invalid("without a grant_id, subject and client_id are required"));
        }
        let (subject, client_id) = (self.subject.as_deref(), self.client_id.as_deref());
        check_names(subject, client_id, self.scope.as_deref(), self.dpop_jkt.as_deref())
    }

    /// Fills in members from the grant; the error is the field that contradicts it.
    fn inherit(&mut self, family: &Family) -> Result<(), Field> {
        if self.subject.get_or_insert_with(|| family.subject.clone()) != &family.subject {
            return Err(Field::Subject);
        }
        if self.client_id.get_or_insert_with(|| family.client_id.clone()) != &family.client_id {
            return Err(Field::ClientId);
        }
        if let Some(bound) = &family.dpop_jkt
            && self.dpop_jkt.get_or_insert_with(|| bound.clone()) != bound
        {
            return Err(Field::DpopJkt);
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

/// Issued access token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedAccessToken {
    /// The token.
    pub access_token: Secret,
    /// End of the token, if its grant does not end before.
    pub expires_at: Timestamp,
}

/// Answer to a request for an access token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a token may have been refused"]
pub enum IssueOutcome {
    /// The token is issued.
    Issued(IssuedAccessToken),
    /// The request contradicts the grant.
    Mismatch(Field),
    /// The grant was revoked.
    Revoked {
        /// Time of the revocation.
        at: Timestamp,
        /// Reason of the revocation.
        why: Why,
    },
    /// The grant was idle for too long.
    Expired,
    /// There is no such grant in this scope, or it has reached its cap.
    Unknown,
}

/// Content of an active token.
#[derive(Debug, Clone, PartialEq)]
pub struct Active {
    /// Subject that it speaks for.
    pub subject: String,
    /// Client that holds it.
    pub client_id: String,
    /// OAuth scope.
    pub scope: Option<String>,
    /// Thumbprint of the key that it is bound to.
    pub dpop_jkt: Option<String>,
    /// Payload.
    pub data: Option<Payload>,
    /// The grant that it is under.
    pub grant_id: Option<GrantId>,
    /// Time of issue.
    pub issued_at: Timestamp,
    /// End of the token, if its grant does not end before.
    pub expires_at: Timestamp,
}

/// Answer to an introspection.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an inactive token is good for nothing"]
pub enum IntrospectOutcome {
    /// Active.
    Active(Box<Active>),
    /// Unknown, expired or revoked; the answer does not say which.
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
    dpop_jkt: Option<String>,
    /// Payload, sealed for this record.
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
        let record = self.stores.backend().get(&self.key(&digest)?, self.stores.now()?).await?;
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
    /// a revoked family gets no new token.
    pub async fn issue(&self, request: AccessRequest) -> Result<IssueOutcome> {
        request.check()?;
        let Some(grant_id) = request.grant_id else { return self.issue_alone(request).await };
        let (grants, request) = (&self.stores.grants(&self.scope), &request);
        let update = self.stores.retry(|now| async move {
            let Some(grant) = grants.standing(grant_id, now).await? else {
                return Ok(Step::answer(IssueOutcome::Unknown));
            };
            match grant.family.state(now)? {
                GrantState::Active => {}
                GrantState::Revoked { at, why } => {
                    return Ok(Step::answer(IssueOutcome::Revoked { at, why }));
                }
                GrantState::Expired => return Ok(Step::answer(IssueOutcome::Expired)),
            }
            let mut request = request.clone();
            if let Err(field) = request.inherit(&grant.family) {
                return Ok(Step::answer(IssueOutcome::Mismatch(field)));
            }
            let id = (*grant_id.as_bytes()).into();
            let under = Under { id, generation: grant.family.generation() };
            let (issued, insert, ..) = self.prepare(request, Some((under, grant.ends_at)), now)?;
            let check = Write::Check { key: grant.key, expected: grant.version };
            Ok(Step::write(vec![insert, check], IssueOutcome::Issued(issued)))
        });
        update.await
    }

    fn prepare(
        &self,
        request: AccessRequest,
        grant: Option<(Under, Timestamp)>,
        now: Now,
    ) -> Result<(IssuedAccessToken, Write, Digest, StoredToken)> {
        let (subject, client_id) =
            (request.subject.unwrap_or_default(), request.client_id.unwrap_or_default());
        let default = self.stores.profile().access;
        let ttl = self.stores.ttl(Kind::AccessToken, &self.scope, request.ttl, default)?;
        let ends_at = grant.map_or(Timestamp::NEVER, |(_, ends_at)| ends_at);
        let expires_at = now.end(ttl)?.min(ends_at);
        let (access_token, digest) = token::mint(token::ACCESS, &[], self.stores.rng());
        let key = self.key(&digest)?;
        let stored = StoredToken {
            subject,
            client_id,
            scope: request.scope,
            dpop_jkt: request.dpop_jkt,
            data: request.data.map(|data| self.stores.seal(&key, &[], &data)).transpose()?,
            issued_at: now.latest().as_millis(),
            grant: grant.map(|(under, _)| under),
        };
        let record = self.stores.record(codec::encode(&stored), expires_at);
        let issued = IssuedAccessToken { access_token, expires_at };
        Ok((issued, Write::Insert { key, record }, digest, stored))
    }

    /// Introspects a token. The use of a token under a grant also proves that the answer in which the token was sent
    /// has arrived: it closes the window in which that rotation can be retried, with at most one write for each
    /// generation. Otherwise it reads the token, and then, concurrently, its grant and the tombstones of its subject
    /// and client.
    pub async fn introspect(&self, token: &Secret) -> Result<IntrospectOutcome> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else {
            return Ok(IntrospectOutcome::Inactive);
        };
        let key = self.key(&digest)?;
        let record = self.stores.backend().get(&key, self.stores.now()?).await?;
        let Some(record) = record else { return Ok(IntrospectOutcome::Inactive) };
        let stored: StoredToken = codec::decode(&record.value)?;
        let grant_id = stored.grant.map(|under| GrantId::from_bytes(*under.id));
        let whom = [Principal::Owner(&stored.subject), Principal::Client(&stored.client_id)];
        let is_deleted = self.stores.is_deleted(&self.scope, &whom, self.stores.now()?);
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
            dpop_jkt: stored.dpop_jkt,
            grant_id,
            issued_at: Timestamp::from_stored(stored.issued_at)?,
            expires_at: record.expires_at,
        })))
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::AccessToken, &self.scope, &[digest.part()], &[])
    }
}
