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
mod request;

use std::time::Duration;

use minicbor::{Decode, Encode};

pub use listing::SessionInfo;
pub use request::{SessionFields, SessionRequest};

use super::registry::{Store, listed, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::finding::{Finding, RecordState};
use super::shared::token;
use super::shared::tombstones::Principal;
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

/// Sessions of one scope.
///
/// The record outlives the session by its TTL, so that `Expired` and `Used` differ from `Unknown`, also after a sweep.
#[derive(Debug, Clone)]
pub struct Sessions {
    stores: Stores,
    scope: Scope,
}

/// Created session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedSession {
    /// Id of the session: a bearer secret, of which only a digest is stored.
    pub session_id: Secret,
    /// End of the session unless it is touched.
    pub expires_at: Timestamp,
    /// End of the session that touches cannot exceed.
    pub ends_at: Timestamp,
}

/// Session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Session {
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

#[derive(Encode, Decode)]
struct StoredSession {
    #[n(0)]
    subject: Option<String>,
    /// Contents, sealed for this record; `None` once they are claimed.
    #[cbor(n(1), with = "minicbor::bytes")]
    fields: Option<Vec<u8>>,
    #[n(2)]
    valid_until: u64,
    #[n(3)]
    ttl_millis: u64,
    #[n(4)]
    created_at: u64,
    #[n(5)]
    ends_at: u64,
}

/// Live session that was read, with the key and the version for a conditional write.
struct FoundSession {
    key: Key,
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

    async fn explain(&self, question: &SessionQuestion) -> Result<Finding> {
        Ok(match self.find(&question.session_id, self.stores.now()?).await? {
            Ok(FoundSession { stored, .. }) => {
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
        let now = self.stores.now()?;
        let ttl = self.stores.ttl(Kind::Session, &self.scope, request.ttl, self.stores.profile().session)?;
        let max = request.max_ttl.unwrap_or(ttl.max(Ttl::secs(Self::DEFAULT_MAX_SECONDS)));
        if ttl > max {
            return Err(Error::invalid(format!("a TTL of {ttl} is longer than its cap of {max}")));
        }
        let ends_at = self.stores.cap(Kind::Session, &self.scope, now.latest(), Some(now.end(max)?))?;
        let expires_at = now.end(ttl)?.min(ends_at);
        let (session_id, digest) = token::mint(token::SESSION, &[], self.stores.rng());
        let key = self.key(&digest)?;
        let fields = self.stores.seal(&key, &[], &request.payload())?;
        let stored = StoredSession {
            subject: request.subject,
            fields: Some(fields),
            valid_until: expires_at.as_millis(),
            ttl_millis: u64::try_from(ttl.duration().as_millis()).unwrap_or(u64::MAX),
            created_at: now.latest().as_millis(),
            ends_at: ends_at.as_millis(),
        };
        let mut writes = vec![Write::Insert { key, record: self.record(&stored)? }];
        if let Some(subject) = &stored.subject {
            let key = self.index_key(subject, &digest)?;
            writes.push(Write::Insert { key, record: self.stores.record("", ends_at) });
        }
        let whom: Vec<_> = stored.subject.iter().map(|subject| Principal::Owner(subject)).collect();
        let commit = self.stores.commit_for(&self.scope, &whom, writes, now).await?.unless_deleted()?;
        // The key is the digest of 32 random bytes: it is taken only if the RNG is broken.
        if commit.is_applied() {
            Ok(CreatedSession { session_id, expires_at, ends_at })
        } else {
            Err(Error::unavailable("the id of a new session is taken"))
        }
    }

    /// Reads a session, without renewing it.
    pub async fn get(&self, session_id: &Secret) -> Result<SessionOutcome> {
        Ok(match self.find(session_id, self.stores.now()?).await? {
            Ok(found) => SessionOutcome::Live(Box::new(self.open(&found)?)),
            Err(gone) => gone.into(),
        })
    }

    /// Renews a session for `ttl` from now, or for the TTL that it was created with. The session never ends after
    /// its cap, nor earlier than before.
    pub async fn touch(&self, session_id: &Secret, ttl: Option<Ttl>) -> Result<TouchOutcome> {
        let touch = self.stores.retry(|now| async move {
            let mut found = match self.find(session_id, now).await? {
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
            let writes = if expires_at == present { Vec::new() } else { vec![self.replacement(found)?] };
            Ok(Step::write(writes, TouchOutcome::Touched { expires_at }))
        });
        touch.await
    }

    /// Takes the contents of a session, once: of any number of callers, one is answered `Live`, and the others
    /// `Used`.
    pub async fn claim(&self, session_id: &Secret) -> Result<SessionOutcome> {
        let claim = self.stores.retry(|now| async move {
            let mut found = match self.find(session_id, now).await? {
                Ok(found) => found,
                Err(gone) => return Ok(Step::answer(gone.into())),
            };
            let session = self.open(&found)?;
            found.stored.fields = None;
            Ok(Step::write(vec![self.replacement(found)?], SessionOutcome::Live(Box::new(session))))
        });
        claim.await
    }

    /// Deletes a session, and returns whether it was live.
    pub async fn delete(&self, session_id: &Secret) -> Result<bool> {
        let Some(digest) = token::read(token::SESSION, &[], session_id) else { return Ok(false) };
        self.remove(&digest, |_| true).await
    }

    async fn find(&self, session_id: &Secret, now: Now) -> Result<Result<FoundSession, Gone>> {
        let Some(digest) = token::read(token::SESSION, &[], session_id) else {
            return Ok(Err(Gone::Unknown));
        };
        let key = self.key(&digest)?;
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(Err(Gone::Unknown)) };
        let stored: StoredSession = codec::decode(&record.value)?;
        if let Some(subject) = &stored.subject
            && self.stores.is_deleted(&self.scope, &[Principal::Owner(subject)], now).await?
        {
            return Ok(Err(Gone::Unknown));
        }
        Ok(if stored.fields.is_none() {
            Err(Gone::Used)
        } else if stored.lives(now)? {
            Ok(FoundSession { key, stored, version: record.version })
        } else {
            Err(Gone::Expired)
        })
    }

    fn open(&self, standing: &FoundSession) -> Result<Session> {
        let FoundSession { key, stored, .. } = standing;
        let fields = self.stores.open_some(key, stored.fields.as_deref())?;
        Ok(Session {
            subject: stored.subject.clone(),
            fields: SessionFields::open(fields.unwrap_or_default())?,
            created_at: Timestamp::from_stored(stored.created_at)?,
            expires_at: Timestamp::from_stored(stored.valid_until)?,
            ends_at: Timestamp::from_stored(stored.ends_at)?,
        })
    }

    /// Write that replaces a session that was read.
    fn replacement(&self, found: FoundSession) -> Result<Write> {
        let FoundSession { key, stored, version } = found;
        Ok(Write::Replace { key, expected: version, record: self.record(&stored)? })
    }

    /// Record of a session. It outlives the session by its TTL.
    fn record(&self, stored: &StoredSession) -> Result<Record> {
        let valid_until = Timestamp::from_stored(stored.valid_until)?;
        let expires_at = valid_until.checked_add(Duration::from_millis(stored.ttl_millis))?;
        Ok(self.stores.record(codec::encode(stored), expires_at))
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::Session, &self.scope, &[digest.part()], &[])
    }
}

impl StoredSession {
    /// Returns whether the session is neither claimed nor expired.
    fn lives(&self, now: Now) -> Result<bool> {
        Ok(self.fields.is_some() && now.before(Timestamp::from_stored(self.valid_until)?)?)
    }
}
