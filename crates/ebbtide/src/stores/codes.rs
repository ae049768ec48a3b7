//! Authorization codes: short-lived, bound, redeemed once (RFC 6749 §4.1.2 and §10.5, RFC 7636, RFC 9449 §10).

mod binding;
mod moving;
mod request;

use std::time::Duration;

use futures_util::future::try_join;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use binding::{Binding, Marker};
pub(crate) use moving::profile_of;
pub use request::{CodeRequest, Redeem};

use super::access_tokens::{AccessDraft, AccessRequest, IssuedAccessToken};
use super::grants::{GrantId, GrantRequest, GrantTtls, Grants, IssuedGrant};
use super::registry::{Store, question};
use super::shared::client_epochs::ClientRead;
use super::shared::confirmation::{Confirmation, Resources};
use super::shared::epochs::{Parties, Stamp};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::{Payload, Resealing};
use super::shared::token;
use super::shared::update::Step;
use super::{Field, MEMORY, Stores};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::timekeeping::Now;

/// Authorization codes of one scope.
///
/// The state of a code is kept for a day after its end, or until the end of what it gave, whichever is later: a late or
/// second redemption is told from an unknown code, before and after a sweep.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let uri = "https://app.example/cb";
/// let code = acme.codes().issue(CodeRequest::new("app", "alice", uri)).await?;
/// let redeem = Redeem::new(code, "app").redirect_uri(uri).with_grant();
/// let first = acme.codes().redeem(redeem.clone()).await?;
/// assert!(matches!(first, RedeemOutcome::Redeemed(_)));
/// // The second redemption revokes the grant of the first.
/// let second = acme.codes().redeem(redeem).await?;
/// assert!(matches!(second, RedeemOutcome::Reused { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Codes {
    stores: Stores,
    scope: Scope,
}

/// Issued code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IssuedCode {
    /// The code.
    pub code: Secret,
    /// End of the code.
    pub expires_at: Timestamp,
}

/// Content of a redeemed code.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Redeemed {
    /// Subject that it speaks for.
    pub subject: String,
    /// Client that redeemed it.
    pub client_id: String,
    /// Granted OAuth scope.
    pub scope: Option<String>,
    /// Payload.
    pub data: Option<Payload>,
    /// Thumbprint of the key that was presented with it.
    pub dpop_jkt: Option<String>,
    /// Thumbprint of the client certificate that was presented with it.
    pub x5t_s256: Option<String>,
    /// Resources that its access tokens are meant for.
    pub resource: Option<Resources>,
    /// Grant, if one was requested.
    pub grant: Option<IssuedGrant>,
    /// Access token, if one was requested.
    pub access_token: Option<IssuedAccessToken>,
    /// Session that it came from.
    pub sid: Option<String>,
}

impl Redeemed {
    /// Adds the requested grant and access token, and returns the writes that issue them; the error is the field of the
    /// access token that contradicts the code.
    pub(super) fn give(
        &mut self,
        ttls: Option<GrantTtls>,
        draft: Option<&AccessDraft>,
        grants: &Grants,
        (stamp, now): (Stamp, Now),
    ) -> Result<Result<Vec<Write>, Field>> {
        let mut cnf = Confirmation::default();
        (cnf.jkt, cnf.x5t_s256) = (self.dpop_jkt.clone(), self.x5t_s256.clone());
        let Some(ttls) = ttls else {
            let Some(draft) = draft else { return Ok(Ok(Vec::new())) };
            return self.give_token_alone(draft, cnf, grants, (stamp, now));
        };
        let mut request = GrantRequest::new(&self.subject, &self.client_id).ttls(ttls).cnf(cnf);
        request.scope.clone_from(&self.scope);
        request.resource.clone_from(&self.resource);
        request.data.clone_from(&self.data);
        request.sid.clone_from(&self.sid);
        let (grant, family, mut writes) = grants.prepare(request, stamp, now)?;
        if let Some(draft) = draft {
            let under = (grant.grant_id, &family, grant.ends_at);
            // The grant is bound to the key, and its token with it.
            let bound = (draft, &family.cnf());
            match grants.access_tokens().prepare_under(bound, under, now)? {
                Ok((issued, inserts)) => {
                    self.access_token = Some(issued);
                    writes.extend(inserts);
                }
                Err(field) => return Ok(Err(field)),
            }
        }
        self.grant = Some(grant);
        Ok(Ok(writes))
    }

    /// Ids of what a second redemption revokes: the grant, or the access token without one.
    pub(super) fn given(&self) -> (Option<StoredGrantId>, Option<StoredDigest>) {
        let grant = self.grant.as_ref().map(|grant| (*grant.grant_id.as_bytes()).into());
        let token = self.access_token.as_ref().filter(|_| grant.is_none());
        (grant, token.map(|token| (*token.jti.digest().as_bytes()).into()))
    }

    /// End of what was given.
    pub(super) fn given_until(&self) -> Option<Timestamp> {
        let grant = self.grant.as_ref().map(|grant| grant.ends_at);
        grant.or(self.access_token.as_ref().map(|token| token.expires_at))
    }

    fn give_token_alone(
        &mut self,
        draft: &AccessDraft,
        cnf: Confirmation,
        grants: &Grants,
        (stamp, now): (Stamp, Now),
    ) -> Result<Result<Vec<Write>, Field>> {
        let request = AccessRequest::alone(&self.subject, &self.client_id).cnf(cnf);
        let request = match request.narrowed(draft, self.scope.as_ref(), self.resource.as_ref()) {
            Ok(request) => request,
            Err(field) => return Ok(Err(field)),
        };
        let (issued, writes) = grants.access_tokens().prepare_alone(request, self.sid.clone(), stamp, now)?;
        self.access_token = Some(issued);
        Ok(Ok(writes))
    }
}

/// Answer to a redemption.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only a redeemed code may be honoured"]
pub enum RedeemOutcome {
    /// The code was valid, and is now redeemed.
    Redeemed(Box<Redeemed>),
    /// The code was presented before. Its grant, or its access token without one, is revoked if everything that was
    /// presented fits the code.
    Reused {
        /// Grant that is revoked, if any.
        grant_id: Option<GrantId>,
    },
    /// A field does not match. The code is invalidated, unless the request keeps it.
    Mismatch(Field),
    /// The code has expired.
    Expired,
    /// Not a code of this scope, or forgotten, or its subject or client was deleted. Nothing is changed.
    Unknown,
}

/// Id of a grant, as a code keeps it.
pub(super) type StoredGrantId = ByteArray<{ GrantId::BYTES }>;

/// Digest of an access token, as a code keeps it.
pub(super) type StoredDigest = ByteArray<{ Digest::BYTES }>;

#[derive(Debug, Encode, Decode)]
struct Code {
    #[n(0)]
    valid_until: u64,
    #[n(1)]
    state: CodeState,
    /// Profile that was named for it, once it is no longer open.
    #[n(2)]
    profile: Option<String>,
}

#[derive(Debug, Encode, Decode)]
#[expect(clippy::large_enum_variant, reason = "one is decoded at a time, and lives for one judgement")]
enum CodeState {
    #[n(0)]
    Open(#[n(0)] Binding),
    /// Redeemed, with the grant that was issued for it, or the access token without one, if any.
    #[n(1)]
    Redeemed(#[n(0)] Option<StoredGrantId>, #[n(1)] Option<Marker>, #[n(2)] Option<StoredDigest>),
    /// Presented with a field that did not match.
    #[n(2)]
    Burned,
}

/// Answer to a presented code, and the access token without a grant that it revokes.
type Judged = (RedeemOutcome, Option<Digest>);

/// Answer to a valid code, the record that replaces it, and the writes that issue its grant.
type Honoured = (RedeemOutcome, Record, Vec<Write>);

question! {
    /// Code to explain.
    CodeQuestion {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        code: Secret,
    }
}

impl Store for Codes {
    const KINDS: &'static [Kind] = &[Kind::Code];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(60));
    type Question = CodeQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut code: Code = codec::decode(value)?;
        let moved = match &mut code.state {
            CodeState::Open(binding) => stores.reseal_some(at, &mut binding.data)?,
            _ => false,
        };
        Ok(moved.then(|| codec::encode(&code)))
    }

    fn spent(value: &[u8]) -> Result<Option<Vec<u8>>> {
        let code: Code = codec::decode(value)?;
        let spent = || codec::encode(&Code { state: CodeState::Burned, ..code });
        Ok(if matches!(code.state, CodeState::Burned) { None } else { Some(spent()) })
    }

    async fn explain(&self, question: &CodeQuestion) -> Result<Finding> {
        let unknown = || Finding::unknown("not a code of this scope, or one from long ago");
        let Some(digest) = token::read(token::CODE, &[], &question.code) else { return Ok(unknown()) };
        let now = self.stores.now()?;
        let record = self.stores.backend().get(&self.key(&digest)?, now).await?;
        let Some(record) = record else { return Ok(unknown()) };
        let code: Code = codec::decode(&record.value)?;
        let valid_until = Timestamp::from_stored(code.valid_until)?;
        let finding = match code.state {
            CodeState::Open(binding) if now.before(valid_until)? => {
                let parties = Parties::new(&binding.subject, &binding.client_id);
                let parties = parties.session(binding.sid.as_deref());
                let death = self.stores.death(&self.scope, parties, binding.stamp(), now).await?;
                death
                    .map_or_else(|| Finding::new(RecordState::Live, "it was not redeemed yet"), Finding::dead)
            }
            CodeState::Open(_) => Finding::new(RecordState::Expired, "it was not redeemed in its time"),
            CodeState::Redeemed(id, ..) => Finding::new(RecordState::Used, "it was redeemed")
                .of_grant(id.map(|id| GrantId::from_bytes(*id))),
            CodeState::Burned => {
                Finding::new(RecordState::Used, "it was presented with something that did not fit")
            }
        };
        Ok(finding.until(valid_until))
    }
}

impl Codes {
    /// Longest lifetime of a code (RFC 6749 §4.1.2).
    pub const MAX_TTL_SECONDS: u64 = 600;

    /// Longest redirect URI, in bytes.
    pub const MAX_URI_BYTES: usize = 4_096;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Issues a code. Its lifetime is 60 seconds unless the profile or the request sets another.
    pub async fn issue(&self, request: CodeRequest) -> Result<IssuedCode> {
        request.check()?;
        let challenge_missing = || {
            Error::invalid("code_challenge is required: this server or client accepts no code without PKCE")
                .about("code_challenge")
        };
        if request.code_challenge.is_none() && self.stores.requires_pkce() {
            return Err(challenge_missing());
        }
        let profile = self.stores.profile_or_default(request.profile.as_deref())?;
        let asked = (request.ttl, request.profile.is_some());
        let ttl = self.stores.ttl_of_profile(Kind::Code, &self.scope, asked, profile.code)?;
        if ttl.duration() > Duration::from_secs(Self::MAX_TTL_SECONDS) {
            return Err(Error::invalid(format!("a code lives at most {} s", Self::MAX_TTL_SECONDS))
                .about("ttl_seconds"));
        }
        let (code, digest) = token::mint(token::CODE, &[], self.stores.rng());
        let key = &self.key(&digest)?;
        let data = request.data.as_ref().map(|data| self.stores.seal(key, &[], data)).transpose()?;
        let parties = Parties::new(&request.subject, &request.client_id).session(request.sid.as_deref());
        let issue = self.stores.issue(&self.scope, parties, |stamp, now| {
            let expires_at = now.end(ttl)?;
            let state = CodeState::Open(Binding::new(&request, data.clone(), stamp, now)?);
            let record = self.remember(expires_at, (state, None), expires_at)?;
            let issued = IssuedCode { code: code.clone(), expires_at };
            // The key is the digest of 32 random bytes: no record is overwritten.
            Ok((issued, vec![Write::Put { key: key.clone(), record }]))
        });
        // Beside the commit, so that it costs no time: nobody learns of a code that must not be.
        let (issued, refused) = try_join(issue, self.lacks_challenge(&request)).await?;
        if refused {
            return Err(challenge_missing());
        }
        self.stores.clients(&self.scope).note_use(&request.client_id);
        issued.ok_or_else(|| Error::unavailable("a new code is taken"))
    }

    /// Redeems a code. Of any number of redemptions of one code at most one is answered `Redeemed`; every later one
    /// revokes the grant, or the access token without one, if everything that is presented fits the code, since two
    /// parties have it then. Who has only the code revokes nothing.
    ///
    /// After an error the code may have been redeemed, and its grant is then unknown to the caller. A retry is
    /// answered `Reused`: the grant is revoked, and the user signs in again.
    pub async fn redeem(&self, presented: Redeem) -> Result<RedeemOutcome> {
        let Some(digest) = token::read(token::CODE, &[], &presented.code) else {
            return Ok(RedeemOutcome::Unknown);
        };
        if let Some(ttls) = &presented.grant {
            ttls.check(&self.stores)?;
        }
        let cnf = &Confirmation::of(presented.dpop_jkt.as_ref(), presented.cnf.as_ref())?;
        let key = self.key(&digest)?;
        let judge = |standing: Option<Record>, read: ClientRead<'_>, now: Now| -> Result<Step<Judged>> {
            let answered = |answer| Ok(Step::answer((answer, None)));
            let Some(standing) = standing else { return answered(RedeemOutcome::Unknown) };
            let code: Code = codec::decode(&standing.value)?;
            let valid_until = Timestamp::from_stored(code.valid_until)?;
            let binding = match code.state {
                CodeState::Redeemed(id, marker, token) => {
                    // A marker of an earlier version does not tell: it revokes.
                    let fits = marker.is_none_or(|marker| marker.fits(&presented, cnf));
                    let grant_id = id.filter(|_| fits).map(|id| GrantId::from_bytes(*id));
                    let token = token.filter(|_| fits).map(|token| Digest::from_bytes(*token));
                    return Ok(Step::answer((RedeemOutcome::Reused { grant_id }, token)));
                }
                CodeState::Burned => {
                    self.stores.note_fence(valid_until, self.stores.profile().code);
                    return answered(RedeemOutcome::Reused { grant_id: None });
                }
                CodeState::Open(_) if !now.before(valid_until)? => {
                    return answered(RedeemOutcome::Expired);
                }
                CodeState::Open(binding) => binding,
            };
            let (subject, client_id, sid) =
                (binding.subject.clone(), binding.client_id.clone(), binding.sid.clone());
            let (stamp, profile) = (binding.stamp(), binding.profile.clone());
            let (answer, record, mut writes) = match binding.check(&presented, cnf) {
                Err(field) if presented.keep_on_mismatch => {
                    return answered(RedeemOutcome::Mismatch(field));
                }
                Err(field) => {
                    let burned = self.remember(valid_until, (CodeState::Burned, profile), valid_until)?;
                    (RedeemOutcome::Mismatch(field), burned, Vec::new())
                }
                Ok(()) => match self.honour(&key, binding, (&presented, cnf), valid_until, now)? {
                    Ok(honoured) => honoured,
                    Err(field) => return answered(RedeemOutcome::Mismatch(field)),
                },
            };
            writes.insert(0, Write::Replace { key: key.clone(), expected: standing.version, record });
            let parties = Parties::new(&subject, &client_id).session(sid.as_deref()).with_read(read);
            Step::write(writes, (answer, None))
                .while_live(&self.scope, parties, stamp, |_| (RedeemOutcome::Unknown, None))
        };
        let (judge, key, by) = (&judge, &key, (&self.scope, presented.client_id.as_str()));
        let update = self.stores.retry(|now| async move {
            let (standing, read) = self.stores.get_with_client(key, by, now).await?;
            judge(standing, read, now)
        });
        let (answer, token) = update.await?;
        if let RedeemOutcome::Reused { grant_id: Some(id) } = answer {
            self.stores.grants(&self.scope).revoke_reused(id, "authorization code").await?;
        }
        if let Some(token) = token {
            self.stores.access_tokens(&self.scope).revoke_reused(&token, "authorization code").await?;
        }
        Ok(answer)
    }

    /// Answer to a valid code, the record that replaces it, and the writes that issue its grant.
    fn honour(
        &self,
        key: &Key,
        binding: Binding,
        (presented, cnf): (&Redeem, &Confirmation),
        valid_until: Timestamp,
        now: Now,
    ) -> Result<Result<Honoured, Field>> {
        let (marker, stamp, named) = (binding.marker(), binding.stamp(), binding.profile.clone());
        let mut redeemed = Redeemed {
            data: self.stores.open_some(key, binding.data.as_deref())?,
            subject: binding.subject,
            client_id: binding.client_id,
            scope: binding.scope,
            dpop_jkt: cnf.jkt.clone(),
            x5t_s256: cnf.x5t_s256.clone(),
            resource: binding.resource,
            grant: None,
            access_token: None,
            sid: binding.sid,
        };
        let (mut ttls, mut draft) = (presented.grant.clone(), presented.access_token.clone());
        let profile = binding.profile.filter(|name| self.stores.profile_named(name).is_ok());
        if let Some(ttls) = &mut ttls {
            ttls.profile = ttls.profile.take().or(profile);
        } else if let Some(draft) = &mut draft {
            draft.profile = draft.profile.take().or(profile);
        }
        let grants = self.stores.grants(&self.scope);
        let writes = match redeemed.give(ttls, draft.as_ref(), &grants, (stamp, now))? {
            Ok(writes) => writes,
            Err(field) => return Ok(Err(field)),
        };
        let keep_until = redeemed.given_until().map_or(valid_until, |until| until.max(valid_until));
        let (grant, token) = redeemed.given();
        let state = CodeState::Redeemed(grant, Some(marker), token);
        let record = self.remember(valid_until, (state, named), keep_until)?;
        Ok(Ok((RedeemOutcome::Redeemed(Box::new(redeemed)), record, writes)))
    }

    /// Returns whether the code has no PKCE challenge and its client must have one.
    async fn lacks_challenge(&self, request: &CodeRequest) -> Result<bool> {
        if request.code_challenge.is_some() {
            return Ok(false);
        }
        self.stores.clients(&self.scope).requires_pkce(&request.client_id).await
    }

    /// Record of a code, kept for a day after the end of the code, or until `keep_until` if that is later.
    fn remember(
        &self,
        valid_until: Timestamp,
        (state, profile): (CodeState, Option<String>),
        keep_until: Timestamp,
    ) -> Result<Record> {
        let value = codec::encode(&Code { valid_until: valid_until.as_millis(), state, profile });
        Ok(self.stores.record(value, valid_until.checked_add(MEMORY)?.max(keep_until)))
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::Code, &self.scope, &[digest.part()], &[])
    }
}
