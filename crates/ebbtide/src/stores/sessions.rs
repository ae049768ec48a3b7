//! Sessions: state that a server keeps between two requests of a browser, such as an unfinished sign-in with a
//! provider. The contents are sealed. A touch renews a session up to a cap, and a claim takes its contents once.
//!
//! ```
//! use ebbtide::Ebbtide;
//! use ebbtide::stores::sessions::{SessionOutcome, SessionRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let sessions = Ebbtide::in_memory().scope("tenant:acme")?.sessions();
//! let request = SessionRequest::new().subject("alice").provider("google").state("af0ifjsldkj");
//! let created = sessions.create(request).await?;
//! let SessionOutcome::Live(session) = sessions.claim(&created.session_id).await? else { panic!() };
//! assert_eq!(session.fields.provider.as_deref(), Some("google"));
//! assert_eq!(sessions.claim(&created.session_id).await?, SessionOutcome::Used);
//! # Ok(())
//! # }
//! ```

mod listing;
mod moving;
mod request;
mod stored;

use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};

pub use listing::SessionInfo;
pub(crate) use moving::profile_of;
pub use request::{SessionFields, SessionRequest};
use stored::StoredSession;

use super::audit::{AuditContext, Note};
use super::registry::{Store, listed, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::epochs::{Carried, Death, Parties, check_longest};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::Resealing;
use super::shared::refusal::RefusalCause;
use super::shared::token;
use super::shared::update::Step;
use super::{Stores, check_optional};
use crate::backend::IndexTarget;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::grants::MAX_NAME_BYTES;
use crate::timekeeping::Now;

/// Shortest time for which an ended session is remembered.
const LEAST_RETENTION: Duration = Duration::from_secs(10);

/// Sessions of one scope.
///
/// The record outlives the session by its TTL, so that `Expired` and `Used` differ from `Unknown`, also after a sweep.
#[derive(Debug, Clone)]
pub struct Sessions {
    stores: Stores,
    scope: Scope,
}

/// Name of a session: its id, which is a secret, or the handle that listings have.
#[derive(Debug, Clone, Copy)]
pub enum SessionName<'a> {
    /// Id of the session.
    Id(&'a Secret),
    /// Handle of the session.
    Handle(&'a str),
}

impl<'a> From<&'a Secret> for SessionName<'a> {
    fn from(session_id: &'a Secret) -> Self {
        Self::Id(session_id)
    }
}

impl SessionName<'_> {
    /// Digest that the session is stored under; none if the name is not that of a session.
    fn digest(self) -> Option<Digest> {
        match self {
            Self::Id(session_id) => token::read(token::SESSION, &[], session_id),
            Self::Handle(handle) => {
                let mut digest = [0; Digest::BYTES];
                let decoded = Base64UrlUnpadded::decode(handle, &mut digest).ok()?.len();
                (decoded == Digest::BYTES).then(|| Digest::from_bytes(digest))
            }
        }
    }
}

/// Handle of the session with that digest. It is no secret: no id can be derived from it.
fn handle(digest: &Digest) -> String {
    Base64UrlUnpadded::encode_string(digest.as_bytes())
}

/// Created session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedSession {
    /// Id of the session: a bearer secret, of which only a digest is stored.
    pub session_id: Secret,
    /// Handle of the session, as listings have it.
    pub handle: String,
    /// Name that codes and grants refer to the session by: the one that was given, else the handle.
    pub sid: String,
    /// End of the session unless it is touched.
    pub expires_at: Timestamp,
    /// End of the session that touches cannot exceed.
    pub ends_at: Timestamp,
}

/// Session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Session {
    /// Handle of the session, as listings have it.
    pub handle: String,
    /// Name that codes and grants refer to the session by.
    pub sid: String,
    /// Owner of the session.
    pub subject: Option<String>,
    /// Contents of the session.
    pub fields: SessionFields,
    /// Time of creation.
    pub created_at: Timestamp,
    /// End of the session unless it is touched.
    pub expires_at: Timestamp,
    /// End of the session that touches cannot exceed.
    pub ends_at: Timestamp,
}

/// Answer to a session id.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "only a live session may be honoured"]
#[non_exhaustive]
pub enum SessionOutcome {
    /// The session is live; after `claim`, no other caller gets it.
    Live(Box<Session>),
    /// The session was claimed before.
    Used,
    /// The session has expired.
    Expired,
    /// Not a session of this scope, or deleted, or one that expired long ago.
    Unknown,
}

/// Answer to a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only a touched session lives on"]
#[non_exhaustive]
pub enum TouchOutcome {
    /// The session is renewed.
    Touched {
        /// End of the session unless it is touched again.
        expires_at: Timestamp,
    },
    /// The session was claimed before.
    Used,
    /// The session has expired; a touch does not revive it.
    Expired,
    /// Not a session of this scope, or deleted, or one that expired long ago.
    Unknown,
}

/// Live session that was read, with the key and the version for a conditional write.
struct FoundSession {
    key: Key,
    digest: Digest,
    stored: StoredSession,
    version: Version,
}

/// Reason why there is no live session.
#[derive(Clone, Copy)]
enum Gone {
    Used,
    Expired,
    Unknown,
}

impl From<Gone> for SessionOutcome {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Used => Self::Used,
            Gone::Expired => Self::Expired,
            Gone::Unknown => Self::Unknown,
        }
    }
}

impl From<Gone> for TouchOutcome {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Used => Self::Used,
            Gone::Expired => Self::Expired,
            Gone::Unknown => Self::Unknown,
        }
    }
}

question! {
    /// Session to explain.
    SessionQuestion {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        session_id: Secret,
    }
}

impl Store for Sessions {
    const KINDS: &'static [Kind] = &[Kind::Session, Kind::SessionIndex];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(600));
    const INDEXES: &'static [(Kind, IndexTarget)] =
        &[(Kind::SessionIndex, |index, _| listed(Kind::Session, index))];
    type Question = SessionQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: StoredSession = codec::decode(value)?;
        let moved = stores.reseal_some(at, &mut stored.fields)?;
        Ok(moved.then(|| codec::encode(&stored)))
    }

    async fn explain(&self, question: &SessionQuestion) -> Result<Finding> {
        let now = self.stores.now()?;
        Ok(match self.find((&question.session_id).into(), now).await? {
            Ok(FoundSession { stored, .. }) => {
                if let Some(death) = self.death(&stored, now).await? {
                    return Ok(Finding::dead(death));
                }
                let finding = Finding::new(RecordState::Live, "it was not claimed, and a touch renews it")
                    .since(Timestamp::from_stored(stored.created_at)?)
                    .until(Timestamp::from_stored(stored.valid_until)?);
                Finding { cap_at: Some(Timestamp::from_stored(stored.ends_at)?), ..finding }
            }
            Err(Gone::Used) => Finding::new(RecordState::Used, "it was claimed"),
            Err(Gone::Expired) => Finding::new(RecordState::Expired, "it was not touched in its time"),
            Err(Gone::Unknown) => {
                Finding::unknown("not a session of this scope, or deleted, or one from long ago")
            }
        })
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        let page = self.revoke_page(owned.owner, progress.after.as_ref()).await?;
        Ok(progress.add_page(Kind::Session, page))
    }
}

impl Sessions {
    /// Default cap of the lifetime, in seconds.
    pub const DEFAULT_MAX_SECONDS: u64 = 24 * 3600;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Creates a session and its index in one commit. The lifetime is ten minutes unless the profile or the request
    /// has another.
    pub async fn create(&self, request: SessionRequest) -> Result<CreatedSession> {
        check_optional("subject", request.subject.as_deref(), MAX_NAME_BYTES)?;
        check_optional("sid", request.sid.as_deref(), MAX_NAME_BYTES)?;
        let profile = self.stores.profile_or_default(request.profile.as_deref())?;
        let asked = (request.ttl, request.profile.is_some());
        let ttl = self.stores.ttl_of_profile(Kind::Session, &self.scope, asked, profile.session)?;
        let max = request.max_ttl.unwrap_or(ttl.max(Ttl::secs(Self::DEFAULT_MAX_SECONDS)));
        if ttl > max {
            return Err(Error::invalid(format!("a TTL of {ttl} is longer than its cap of {max}"))
                .about("ttl_seconds"));
        }
        let member = if request.max_ttl.is_some() { "max_ttl_seconds" } else { "ttl_seconds" };
        check_longest("a session", max, member)?;
        let (session_id, digest) = token::mint(token::SESSION, &[], self.stores.rng());
        let key = &self.key(&digest)?;
        let fields = self.stores.seal(key, &[], &request.payload())?;
        let subject = request.subject.as_deref();
        let parties = Parties::subject(subject).session(request.sid.as_deref());
        let issue = self.stores.issue(&self.scope, parties, |stamp, now| {
            let ends_at = self.stores.cap(Kind::Session, &self.scope, now.latest(), Some(now.end(max)?))?;
            let expires_at = now.end(ttl)?.min(ends_at);
            let stored = StoredSession {
                subject: request.subject.clone(),
                fields: Some(fields.clone()),
                valid_until: expires_at.as_millis(),
                ttl_millis: u64::try_from(ttl.duration().as_millis()).unwrap_or(u64::MAX),
                created_at: now.latest().as_millis(),
                ends_at: ends_at.as_millis(),
                stamp: Some(stamp),
                sid: request.sid.clone(),
                profile: request.profile.clone(),
                sliding: request.sliding,
            };
            let mut writes = vec![Write::Insert { key: key.clone(), record: self.record(&stored)? }];
            if let Some(subject) = subject {
                let key = self.index_key(subject, &digest)?;
                writes.push(Write::Insert { key, record: self.stores.record("", ends_at) });
            }
            Ok(((expires_at, ends_at), writes))
        });
        // The key is the digest of 32 random bytes: it is taken only if the RNG is broken.
        let Some((expires_at, ends_at)) = issue.await? else {
            return Err(Error::unavailable("the id of a new session is taken"));
        };
        let handle = handle(&digest);
        let sid = request.sid.unwrap_or_else(|| handle.clone());
        Ok(CreatedSession { session_id, handle, sid, expires_at, ends_at })
    }

    /// Reads a session. A sliding one is renewed, unless less than a tenth of its TTL has passed since the last time.
    pub async fn get<'a>(&self, name: impl Into<SessionName<'a>>) -> Result<SessionOutcome> {
        let (name, now) = (name.into(), self.stores.now()?);
        let mut found = match self.find(name, now).await? {
            Ok(found) => found,
            Err(gone) => return Ok(gone.into()),
        };
        if self.death(&found.stored, now).await?.is_some() {
            return Ok(SessionOutcome::Unknown);
        }
        if found.stored.is_due(now)?
            && let TouchOutcome::Touched { expires_at } = self.touch(name, None).await?
        {
            found.stored.valid_until = expires_at.as_millis();
        }
        Ok(SessionOutcome::Live(Box::new(self.open(&found)?)))
    }

    /// Renews a session for `ttl` from now, or for the TTL that it was created with. The session never ends after
    /// its cap, nor earlier than before.
    pub async fn touch<'a>(
        &self,
        name: impl Into<SessionName<'a>>,
        ttl: Option<Ttl>,
    ) -> Result<TouchOutcome> {
        let name = name.into();
        let touch = self.stores.retry(|now| async move {
            let mut found = match self.find(name, now).await? {
                Ok(found) => found,
                Err(gone) => return Ok(Step::answer(gone.into())),
            };
            let stored = &mut found.stored;
            let own = Ttl::new(Duration::from_millis(stored.ttl_millis))?;
            let ttl = self.stores.ttl(Kind::Session, &self.scope, ttl, own)?;
            let present = Timestamp::from_stored(stored.valid_until)?;
            let (created_at, ends_at) =
                (Timestamp::from_stored(stored.created_at)?, Timestamp::from_stored(stored.ends_at)?);
            let cap = self.stores.cap(Kind::Session, &self.scope, created_at, Some(ends_at))?;
            let expires_at = now.end(ttl)?.min(cap).max(present);
            stored.valid_until = expires_at.as_millis();
            let carried = self.carried(&found.stored)?;
            let write = if expires_at == present {
                Write::Check { key: found.key, expected: found.version }
            } else {
                self.replacement(found)?
            };
            let touched = TouchOutcome::Touched { expires_at };
            Ok(Step::write(vec![write], touched).while_carried(carried, |_| TouchOutcome::Unknown))
        });
        touch.await
    }

    /// Takes the contents of a session, once: of any number of callers, one is answered `Live`, and the others
    /// `Used`.
    pub async fn claim<'a>(&self, name: impl Into<SessionName<'a>>) -> Result<SessionOutcome> {
        let name = name.into();
        let claim = self.stores.retry(|now| async move {
            let mut found = match self.find(name, now).await? {
                Ok(found) => found,
                Err(gone) => return Ok(Step::answer(gone.into())),
            };
            let session = self.open(&found)?;
            found.stored.fields = None;
            let carried = self.carried(&found.stored)?;
            let claimed = SessionOutcome::Live(Box::new(session));
            let step = Step::write(vec![self.replacement(found)?], claimed);
            Ok(step.while_carried(carried, |_| SessionOutcome::Unknown))
        });
        claim.await
    }

    /// Deletes a session, and returns whether it was live.
    pub async fn delete<'a>(&self, name: impl Into<SessionName<'a>>) -> Result<bool> {
        let Some(digest) = name.into().digest() else { return Ok(false) };
        self.remove(&digest, None, false, |_, lives| lives).await
    }

    /// Deletes a session as [`delete`](Self::delete) does, and writes to the audit log in the same commit.
    pub async fn delete_audited<'a>(
        &self,
        name: impl Into<SessionName<'a>>,
        context: &AuditContext,
    ) -> Result<bool> {
        let Some(digest) = name.into().digest() else { return Ok(false) };
        let note = Note::revoked(context)?.about(Kind::Session, vec![handle(&digest)]);
        self.remove(&digest, Some(note), false, |_, lives| lives).await
    }

    /// Deletes a session and ends every grant and token that came from it, in one commit, and returns whether it was
    /// there: it may have been claimed or have expired before. The audit log has an entry.
    pub async fn delete_with_grants<'a>(
        &self,
        name: impl Into<SessionName<'a>>,
        context: &AuditContext,
    ) -> Result<bool> {
        let Some(digest) = name.into().digest() else { return Ok(false) };
        let note = Note::revoked(context)?.about(Kind::Session, vec![handle(&digest)]);
        self.remove(&digest, Some(note.with_detail("with its grants")), true, |_, _| true).await
    }

    /// Returns why a session is dead, if it is.
    async fn death(&self, stored: &StoredSession, now: Now) -> Result<Option<Death>> {
        let parties = Parties::subject(stored.subject.as_deref());
        self.stores.death(&self.scope, parties, stored.stamp.unwrap_or_default(), now).await
    }

    fn carried(&self, stored: &StoredSession) -> Result<Vec<Carried>> {
        let parties = Parties::subject(stored.subject.as_deref());
        Stores::carried(&self.scope, parties, stored.stamp.unwrap_or_default())
    }

    async fn find(&self, name: SessionName<'_>, now: Now) -> Result<Result<FoundSession, Gone>> {
        let Some(digest) = name.digest() else { return Ok(Err(Gone::Unknown)) };
        let key = self.key(&digest)?;
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(Err(Gone::Unknown)) };
        let stored: StoredSession = codec::decode(&record.value)?;
        Ok(if stored.fields.is_none() {
            Err(Gone::Used)
        } else if stored.lives(now)? {
            Ok(FoundSession { key, digest, stored, version: record.version })
        } else {
            // Before its cap, another touch would have kept it.
            if stored.valid_until < stored.ends_at {
                RefusalCause::Idle.note();
            }
            Err(Gone::Expired)
        })
    }

    fn open(&self, standing: &FoundSession) -> Result<Session> {
        let FoundSession { key, digest, stored, .. } = standing;
        let fields = self.stores.open_some(key, stored.fields.as_deref())?;
        Ok(Session {
            handle: handle(digest),
            sid: stored.sid(digest),
            subject: stored.subject.clone(),
            fields: SessionFields::open(fields.unwrap_or_default())?,
            created_at: Timestamp::from_stored(stored.created_at)?,
            expires_at: Timestamp::from_stored(stored.valid_until)?,
            ends_at: Timestamp::from_stored(stored.ends_at)?,
        })
    }

    /// Write that replaces a session that was read.
    fn replacement(&self, found: FoundSession) -> Result<Write> {
        let FoundSession { key, stored, version, .. } = found;
        Ok(Write::Replace { key, expected: version, record: self.record(&stored)? })
    }

    /// Record of a session. It outlives the session by its TTL, and by ten seconds at least.
    fn record(&self, stored: &StoredSession) -> Result<Record> {
        let valid_until = Timestamp::from_stored(stored.valid_until)?;
        let retained = Duration::from_millis(stored.ttl_millis).max(LEAST_RETENTION);
        let expires_at = valid_until.checked_add(retained)?;
        Ok(self.stores.record(codec::encode(stored), expires_at))
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::Session, &self.scope, &[digest.part()], &[])
    }
}
