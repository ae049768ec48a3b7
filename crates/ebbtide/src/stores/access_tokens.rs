//! Access tokens: opaque, active only while their grant is (RFC 7662, RFC 7009).

mod alone;
mod draft;
mod listing;
mod moving;
mod revocation;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use serde::Deserialize;

pub use draft::AccessDraft;
pub(crate) use draft::{TokenWrites, asked};
pub use listing::AccessTokenInfo;
pub(crate) use moving::profile_of;
pub use revocation::TokenId;

use super::grants::{Family, GrantId, GrantState, Holder, Why, check_names};
use super::registry::{Store, question};
use super::shared::confirmation::{Confirmation, Resources};
use super::shared::deletion::{Owned, Progress};
use super::shared::epochs::{Death, Stamp, check_longest};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::{Payload, Resealing};
use super::shared::refusal::RefusalCause;
use super::shared::setters::setters;
use super::shared::token;
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
    /// Subject that the token speaks for; the client by default. Under a grant this must be the subject of the grant.
    #[cfg_attr(feature = "schema", schema(example = "alice"))]
    pub subject: Option<String>,
    /// Client that holds the token. Under a grant this must be the client of the grant.
    #[cfg_attr(feature = "schema", schema(example = "app"))]
    pub client_id: Option<String>,
    /// OAuth scope. Under a grant with a scope this must be within it, and defaults to all of it.
    pub scope: Option<String>,
    /// Thumbprint of the key that the token is bound to. Under a bound grant this must be the same.
    pub dpop_jkt: Option<String>,
    /// Key that the token is bound to, by `jkt` or `x5t#S256`. Under a bound grant this must be the same.
    pub cnf: Option<Confirmation>,
    /// Resources that the token is meant for (RFC 8707), answered as `aud`. Under a grant with resources these must be
    /// among them, and default to all of them.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub resource: Option<Resources>,
    /// Payload, stored sealed.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Lifetime; the cap of the grant applies if it is sooner.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Profile whose lifetime is used: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "spa"))]
    pub profile: Option<String>,
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
        cnf: Confirmation,
        resource: Resources,
        data: Payload,
        ttl: Ttl,
        profile: String,
    );

    fn check(&mut self) -> Result<()> {
        if self.grant_id.is_none() {
            let missing = Error::invalid("without a grant_id, client_id is required").about("client_id");
            self.subject.get_or_insert(self.client_id.clone().ok_or(missing)?);
        }
        self.check_lengths()
    }

    fn check_lengths(&self) -> Result<()> {
        check_names(self.subject.as_deref(), self.client_id.as_deref(), self.scope.as_deref())?;
        self.key().map(|_| ())
    }

    fn key(&self) -> Result<Confirmation> {
        Confirmation::of(self.dpop_jkt.as_ref(), self.cnf.as_ref())
    }
}

/// Issued access token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IssuedAccessToken {
    /// The token.
    pub access_token: Secret,
    /// Id, which revokes it and gives no access.
    pub jti: TokenId,
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
#[non_exhaustive]
pub struct Active {
    /// Id of the token.
    pub jti: TokenId,
    /// Subject that it speaks for.
    pub subject: String,
    /// Client that holds it.
    pub client_id: String,
    /// OAuth scope.
    pub scope: Option<String>,
    /// Thumbprint of the key that it is bound to.
    pub dpop_jkt: Option<String>,
    /// Thumbprint of the client certificate that it is bound to.
    pub x5t_s256: Option<String>,
    /// Resources that it is meant for.
    pub resource: Option<Resources>,
    /// Payload.
    pub data: Option<Payload>,
    /// The grant that it is under.
    pub grant_id: Option<GrantId>,
    /// Session that its grant or its code came from.
    pub sid: Option<String>,
    /// Time of issue.
    pub issued_at: Timestamp,
    /// End of the token, if its grant does not end before.
    pub expires_at: Timestamp,
}

/// Answer to an introspection.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an inactive token is good for nothing"]
#[non_exhaustive]
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
    #[n(7)]
    x5t_s256: Option<String>,
    #[n(8)]
    resource: Option<Resources>,
    /// Epochs of its subject and its client.
    #[n(9)]
    stamp: Option<Stamp>,
    /// Session that its grant or its code came from.
    #[n(10)]
    sid: Option<String>,
    #[n(11)]
    profile: Option<String>,
}

/// Grant that a token is issued under.
#[derive(Clone, Copy)]
pub(super) struct Above<'a> {
    under: Under,
    ends_at: Timestamp,
    family: &'a Family,
}

/// Origin of a token.
enum TokenSource<'a> {
    Grant(Above<'a>),
    /// Session that the code came from, if it came from one. There is no grant.
    Session(Option<String>),
}

#[derive(Debug, Clone, Copy, Encode, Decode)]
struct Under {
    #[n(0)]
    id: ByteArray<{ GrantId::BYTES }>,
    /// The generation of the family when the token was issued.
    #[n(1)]
    generation: u64,
}

impl Under {
    fn of(id: GrantId, family: &Family) -> Self {
        Self { id: (*id.as_bytes()).into(), generation: family.generation() }
    }
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

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: StoredToken = codec::decode(value)?;
        let moved = stores.reseal_some(at, &mut stored.data)?;
        Ok(moved.then(|| codec::encode(&stored)))
    }

    async fn explain(&self, question: &AccessTokenQuestion) -> Result<Finding> {
        let unknown =
            || Finding::unknown("not an access token of this scope, or one that was revoked or is over");
        let Some(digest) = token::read(token::ACCESS, &[], &question.access_token) else {
            return Ok(unknown());
        };
        let now = self.stores.now()?;
        let record = self.stores.backend().get(&self.key(&digest)?, now).await?;
        let Some(record) = record else { return Ok(unknown()) };
        let stored: StoredToken = codec::decode(&record.value)?;
        let grant_id = stored.grant.map(|under| GrantId::from_bytes(*under.id));
        let finding = match grant_id {
            None => {
                let stamp = stored.stamp.unwrap_or_default();
                let death = self.stores.death(&self.scope, stored.parties(), stamp, now).await?;
                death.map_or_else(|| Finding::new(RecordState::Live, "it belongs to no grant"), Finding::dead)
            }
            Some(id) => {
                let grant = self.stores.grants(&self.scope).explain_grant(id).await?;
                Finding::new(grant.state, format!("of its grant: {}", grant.why))
            }
        };
        let finding = finding.since(Timestamp::from_stored(stored.issued_at)?).until(record.expires_at);
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
    pub async fn issue(&self, mut request: AccessRequest) -> Result<IssueOutcome> {
        request.check()?;
        let Some(grant_id) = request.grant_id else { return self.issue_alone(request).await };
        let (grants, request) = (&self.stores.grants(&self.scope), &request);
        let update = self.stores.retry(|now| async move {
            let Some(grant) = grants.read(grant_id, now).await? else {
                return Ok(Step::answer(IssueOutcome::Unknown));
            };
            match grant.family.state(now)? {
                GrantState::Active => {}
                GrantState::Revoked { at, why } => {
                    RefusalCause::Revoked(grant_id).note();
                    return Ok(Step::answer(IssueOutcome::Revoked { at, why }));
                }
                GrantState::Expired => {
                    RefusalCause::Idle.note();
                    return Ok(Step::answer(IssueOutcome::Expired));
                }
            }
            let mut request = request.clone();
            if let Err(field) = request.inherit(&grant.family) {
                return Ok(Step::answer(IssueOutcome::Mismatch(field)));
            }
            let under = Under::of(grant_id, &grant.family);
            let above = Above { under, ends_at: grant.ends_at, family: &grant.family };
            let stamp = grant.family.stamp();
            let (issued, mut writes) = self.prepare(request, TokenSource::Grant(above), stamp, now)?;
            writes.push(Write::Check { key: grant.key.clone(), expected: grant.version });
            let step = Step::write(writes, IssueOutcome::Issued(issued));
            step.while_live(&self.scope, grant.family.parties(), stamp, move |death| match death {
                Death { deleting: true, .. } => IssueOutcome::Unknown,
                Death { at, why, .. } => {
                    RefusalCause::Revoked(grant_id).note();
                    IssueOutcome::Revoked { at, why }
                }
            })
        });
        update.await
    }

    /// New token, and the writes of its record and its index entries.
    fn prepare(
        &self,
        request: AccessRequest,
        from: TokenSource<'_>,
        stamp: Stamp,
        now: Now,
    ) -> Result<(IssuedAccessToken, Vec<Write>)> {
        let (grant, sid) = match from {
            TokenSource::Grant(above) => (Some(above), above.family.sid.clone()),
            TokenSource::Session(sid) => (None, sid),
        };
        let cnf = request.key()?;
        let (subject, client_id) =
            (request.subject.unwrap_or_default(), request.client_id.unwrap_or_default());
        let default = match (&request.profile, grant.and_then(|grant| grant.family.access())) {
            (None, Some(default)) => Ttl::new(default)?,
            (profile, _) => self.stores.profile_or_default(profile.as_deref())?.access,
        };
        let asked = (request.ttl, request.profile.is_some());
        let ttl = self.stores.ttl_of_profile(Kind::AccessToken, &self.scope, asked, default)?;
        check_longest("an access token", ttl, "ttl_seconds")?;
        let ends_at = grant.map_or(Timestamp::NEVER, |grant| grant.ends_at);
        let expires_at = now.end(ttl)?.min(ends_at);
        let (access_token, digest) = token::mint(token::ACCESS, &[], self.stores.rng());
        let key = self.key(&digest)?;
        let stored = StoredToken {
            subject,
            client_id,
            scope: request.scope,
            dpop_jkt: cnf.jkt,
            data: request.data.map(|data| self.stores.seal(&key, &[], &data)).transpose()?,
            issued_at: now.latest().as_millis(),
            grant: grant.map(|grant| grant.under),
            stamp: Some(stamp),
            sid,
            x5t_s256: cnf.x5t_s256,
            resource: request.resource,
            profile: request.profile.or_else(|| grant.and_then(|grant| grant.family.profile.clone())),
        };
        let record = self.stores.record(codec::encode(&stored), expires_at);
        let mut writes = vec![Write::Insert { key, record }];
        for key in self.index_keys(&digest, &stored)? {
            writes.push(Write::Insert { key, record: self.stores.record("", expires_at) });
        }
        Ok((IssuedAccessToken { access_token, jti: TokenId::of(digest), expires_at }, writes))
    }

    /// Introspects a token. The use of a token under a grant also proves that the answer in which the token was sent
    /// has arrived: beside the answer, and not before it, the family notes that its last rotation needs no retry, with
    /// at most one write for each generation. Otherwise it reads the token, and then its grant and the epochs of its
    /// subject and client together.
    pub async fn introspect(&self, token: &Secret) -> Result<IntrospectOutcome> {
        let Some(digest) = token::read(token::ACCESS, &[], token) else {
            return Ok(IntrospectOutcome::Inactive);
        };
        let key = self.key(&digest)?;
        let now = self.stores.now()?;
        let record = self.stores.backend().get(&key, now).await?;
        let Some(record) = record else { return Ok(IntrospectOutcome::Inactive) };
        let stored: StoredToken = codec::decode(&record.value)?;
        let grant_id = stored.grant.map(|under| GrantId::from_bytes(*under.id));
        let grants = self.stores.grants(&self.scope);
        let grant_key = grant_id.map(|id| grants.key(id)).transpose()?;
        let stamp = stored.stamp.unwrap_or_default();
        let read = self.stores.read_live(grant_key, &self.scope, stored.parties(), stamp, now);
        let (grant, death) = read.await?;
        if death.is_some() {
            return Ok(IntrospectOutcome::Inactive);
        }
        if let (Some(under), Some(id)) = (stored.grant, grant_id)
            && !grants.witness(id, grant, under.generation, now)?
        {
            return Ok(IntrospectOutcome::Inactive);
        }
        Ok(IntrospectOutcome::Active(Box::new(Active {
            jti: TokenId::of(digest),
            data: self.stores.open_some(&key, stored.data.as_deref())?,
            subject: stored.subject,
            client_id: stored.client_id,
            scope: stored.scope,
            dpop_jkt: stored.dpop_jkt,
            x5t_s256: stored.x5t_s256,
            resource: stored.resource,
            grant_id,
            sid: stored.sid,
            issued_at: Timestamp::from_stored(stored.issued_at)?,
            expires_at: record.expires_at,
        })))
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::AccessToken, &self.scope, &[digest.part()], &[])
    }
}
