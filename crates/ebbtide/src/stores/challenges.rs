//! Challenges: a subject proves something with a secret that was sent to it. One-time codes, magic links, password
//! resets, e-mail verification, the challenges of `WebAuthn`.
//!
//! A wrong secret is counted in the commit that judges it, and a right one uses the challenge up in that commit: of any
//! number of callers one wins, and no number of guesses at once passes the limit.

mod moving;
mod stored;
mod types;

use std::time::Duration;

use stored::{ChallengeState, Index, Listed, StoredChallenge};
pub use types::{
    Challenge, ChallengeId, ChallengeRequest, Form, IssuedChallenge, Peek, Siblings, Verify, VerifyOutcome,
};

use super::grants::MAX_NAME_BYTES;
use super::registry::{Store, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::Resealing;
use super::shared::tombstones::Principal;
use super::shared::update::Step;
use super::{MEMORY, Stores, check_length, check_optional};
use crate::keyring::KeyId;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Write};
use crate::stores::audit::{Action, Note};
use crate::timekeeping::Now;

/// Challenges of one scope. The state of a challenge is kept for a day after its end.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::challenges::{ChallengeRequest, Form, Verify, VerifyOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let issued = acme.challenges().issue(ChallengeRequest::new("login", "alice", Form::Digits6)).await?;
/// let verify = Verify::new("login", issued.secret).subject("alice");
/// let first = acme.challenges().verify(&verify).await?;
/// assert!(matches!(first, VerifyOutcome::Verified(_)));
/// assert_eq!(acme.challenges().verify(&verify).await?, VerifyOutcome::Used);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Challenges {
    stores: Stores,
    scope: Scope,
}

question! {
    /// Challenge to explain.
    ChallengeQuestion {
        id: String,
    }
}

impl Store for Challenges {
    const KINDS: &'static [Kind] = &[Kind::Challenge, Kind::ChallengeIndex];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(Self::DEFAULT_TTL_SECONDS));
    type Question = ChallengeQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: StoredChallenge = codec::decode(value)?;
        let moved = stores.reseal_some(at, &mut stored.data)?;
        Ok(moved.then(|| codec::encode(&stored)))
    }

    fn depends_on(value: &[u8], id: KeyId, now: Timestamp) -> Result<bool> {
        Ok(codec::decode::<StoredChallenge>(value)?.depends_on(id, now))
    }

    fn spent(value: &[u8]) -> Result<Option<Vec<u8>>> {
        let stored: StoredChallenge = codec::decode(value)?;
        let spent = || codec::encode(&StoredChallenge { state: ChallengeState::Used, data: None, ..stored });
        Ok(if stored.state == ChallengeState::Open { Some(spent()) } else { None })
    }

    async fn explain(&self, question: &ChallengeQuestion) -> Result<Finding> {
        let unknown = || Finding::unknown("not a challenge of this scope, or one from long ago");
        let Ok(id) = question.id.parse() else { return Ok(unknown()) };
        let now = self.stores.now()?;
        let Some(record) = self.stores.backend().get(&self.key(id)?, now).await? else {
            return Ok(unknown());
        };
        let stored: StoredChallenge = codec::decode(&record.value)?;
        let valid_until = stored.valid_until()?;
        let finding = match stored.state {
            ChallengeState::Used => Finding::new(RecordState::Used, "it was verified"),
            ChallengeState::Superseded => {
                Finding::new(RecordState::Revoked, "a later challenge has ended it")
            }
            ChallengeState::Open if !now.before(valid_until)? => {
                Finding::new(RecordState::Expired, "it was not verified in its time")
            }
            ChallengeState::Open if stored.attempts_left == 0 => {
                Finding::new(RecordState::Revoked, "too many wrong secrets were presented")
            }
            ChallengeState::Open => Finding::new(RecordState::Live, "it was not verified yet"),
        };
        Ok(finding.since(stored.issued_at()?).until(valid_until))
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        let subject = subject_digest(owned.owner);
        let prefix = Prefix::partition(Kind::ChallengeIndex, &self.scope, &[subject.part()], &[])?;
        let now = self.stores.now()?;
        let page = self.stores.backend().scan(&prefix, progress.after.as_ref(), PAGE, now).await?;
        for (key, record) in page.items {
            let index: Index = codec::decode(&record.value)?;
            let mut writes = vec![Write::Delete { key }];
            for listed in &index.listed {
                writes.push(Write::Delete { key: self.key(listed.id())? });
            }
            let _ = self.stores.backend().commit(Batch::new(writes)?, now).await?;
            progress.removed.add(Kind::Challenge, index.listed.len() as u64);
        }
        progress.after = page.next;
        Ok(progress.after.is_some())
    }
}

/// Purposes of a subject that one step of a deletion removes.
const PAGE: usize = 50;

impl Challenges {
    /// Default lifetime of a challenge.
    pub const DEFAULT_TTL_SECONDS: u64 = 600;

    /// Longest lifetime of a challenge.
    pub const MAX_TTL_SECONDS: u64 = 30 * 24 * 3600;

    /// Default number of wrong secrets.
    pub const DEFAULT_ATTEMPTS: u32 = 5;

    /// Largest number of wrong secrets.
    pub const MAX_ATTEMPTS: u32 = 100;

    /// Longest purpose, in bytes.
    pub const MAX_PURPOSE_BYTES: usize = 256;

    /// Most challenges of one purpose and subject that are open at a time. A further one ends the oldest.
    pub const MAX_SIBLINGS: usize = 64;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Issues a challenge. It, its place as the latest of its purpose and subject, and the end of its siblings are one
    /// commit.
    pub async fn issue(&self, request: ChallengeRequest) -> Result<IssuedChallenge> {
        check_length("purpose", &request.purpose, Self::MAX_PURPOSE_BYTES)?;
        check_length("subject", &request.subject, MAX_NAME_BYTES)?;
        let attempts = request.attempts.unwrap_or(Self::DEFAULT_ATTEMPTS);
        if attempts == 0 || attempts > Self::MAX_ATTEMPTS {
            return Err(Error::invalid(format!("attempts is 1 to {}", Self::MAX_ATTEMPTS)).about("attempts"));
        }
        let default = Ttl::secs(Self::DEFAULT_TTL_SECONDS);
        let ttl = self.stores.ttl(Kind::Challenge, &self.scope, request.ttl, default)?;
        if ttl.duration() > Duration::from_secs(Self::MAX_TTL_SECONDS) {
            return Err(Error::invalid(format!("a challenge lives at most {} s", Self::MAX_TTL_SECONDS))
                .about("ttl_seconds"));
        }
        let (id, secret) = stored::mint(request.form, &request.purpose, self.stores.rng());
        let key = &self.key(id)?;
        let data = request.data.as_ref().map(|data| self.stores.seal(key, &[], data)).transpose()?;
        let check = stored::check(&self.stores.keyring(), request.form, id, secret.expose());
        let index_key = self.index_key(&request.purpose, &request.subject)?;
        let invalidates = request.siblings == Some(Siblings::Invalidate);
        let subject = &[Principal::Owner(&request.subject)];
        let (request, index_key, check, data) = (&request, &index_key, &check, &data);
        let issue = self.stores.retry(|now| async move {
            let standing = self.stores.backend().get(index_key, now).await?;
            let expires_at = now.end(ttl)?;
            let stored = StoredChallenge {
                purpose: request.purpose.clone(),
                subject: request.subject.clone(),
                form: request.form,
                valid_until: expires_at.as_millis(),
                issued_at: now.latest().as_millis(),
                attempts_left: attempts,
                state: ChallengeState::Open,
                check: check.clone(),
                data: data.clone(),
            };
            let mut writes = vec![Write::Insert { key: key.clone(), record: self.record(&stored)? }];
            let mut index: Index = match &standing {
                Some(standing) => codec::decode(&standing.value)?,
                None => Index::default(),
            };
            let ended = index.add(Listed::new(id, expires_at), invalidates, now)?;
            writes.extend(self.ends(&ended, now).await?);
            let record = self.stores.record(codec::encode(&index), index.valid_until()?.checked_add(MEMORY)?);
            writes.push(match standing {
                Some(standing) => {
                    Write::Replace { key: index_key.clone(), expected: standing.version, record }
                }
                None => Write::Insert { key: index_key.clone(), record },
            });
            Step::write(writes, expires_at).unless_deleted(&self.scope, subject)
        });
        let expires_at = issue.await?;
        Ok(IssuedChallenge { id, secret, expires_at })
    }

    /// Writes that end the siblings that are open. One that was used stays used, and is answered so: each write is on
    /// the state that was read, and a verification that comes between has both judged anew.
    async fn ends(&self, siblings: &[Listed], now: Now) -> Result<Vec<Write>> {
        if siblings.is_empty() {
            return Ok(Vec::new());
        }
        let keys = siblings.iter().map(|listed| self.key(listed.id())).collect::<Result<Vec<_>>>()?;
        let found = self.stores.backend().get_many(&keys, now).await?;
        let mut writes = Vec::with_capacity(keys.len());
        for (key, sibling) in keys.into_iter().zip(found) {
            let Some(sibling) = sibling else { continue };
            let stored: StoredChallenge = codec::decode(&sibling.value)?;
            if stored.state == ChallengeState::Open {
                let record = self.record(&stored.superseded())?;
                writes.push(Write::Replace { key, expected: sibling.version, record });
            }
        }
        Ok(writes)
    }

    /// Verifies a secret. The commit that judges it also counts it, if it is wrong, or uses the challenge up, if it is
    /// right: of any number of right ones at once, one is answered `Verified`.
    ///
    /// After an error the challenge may have been used, or the attempt counted.
    pub async fn verify(&self, request: &Verify) -> Result<VerifyOutcome> {
        let Verify { id, purpose, subject, secret } = request;
        let named = Named { id: id.as_deref(), purpose, subject: subject.as_deref(), secret: Some(secret) };
        self.judge(&named, true).await
    }

    /// Looks at a challenge and does not use it up: for pages that mail scanners open too. A wrong secret is counted.
    pub async fn peek(&self, request: &Peek) -> Result<VerifyOutcome> {
        let Peek { id, purpose, subject, secret } = request;
        let named =
            Named { id: id.as_deref(), purpose, subject: subject.as_deref(), secret: secret.as_ref() };
        let answer = self.judge(&named, false).await?;
        // A verification learns of a deleted subject in its commit; a peek has none.
        if let VerifyOutcome::Verified(seen) = &answer {
            let subject = [Principal::Owner(&seen.subject)];
            let now = self.stores.now()?;
            if self.stores.is_deleted(&self.scope, &subject, now).await? {
                return Ok(VerifyOutcome::Unknown);
            }
        }
        Ok(answer)
    }

    async fn judge(&self, named: &Named<'_>, takes: bool) -> Result<VerifyOutcome> {
        check_length("purpose", named.purpose, Self::MAX_PURPOSE_BYTES)?;
        check_optional("subject", named.subject, MAX_NAME_BYTES)?;
        let Some(id) = self.find(named).await? else { return Ok(VerifyOutcome::Unknown) };
        let key = self.key(id)?;
        let update = self.stores.update(&key, |standing, now| {
            let Some(standing) = standing else { return Ok(Step::answer(VerifyOutcome::Unknown)) };
            let mut stored: StoredChallenge = codec::decode(&standing.value)?;
            if let Some(refused) = named.refused(&stored, now)? {
                if let (VerifyOutcome::Used, Some(life)) = (&refused, Self::DEFAULT_TTL) {
                    self.stores.note_fence(stored.valid_until()?, life);
                }
                return Ok(Step::answer(refused));
            }
            let right = match named.secret {
                Some(secret) => stored.matches(self.stores.shared_keyring(), id, secret)?,
                None => true,
            };
            let answer = if right {
                let sealed = stored.data.as_deref().filter(|_| named.secret.is_some());
                let data = self.stores.open_some(&key, sealed)?;
                let verified = VerifyOutcome::Verified(Box::new(stored.seen(id, data)?));
                if !takes {
                    return Ok(Step::answer(verified));
                }
                stored.state = ChallengeState::Used;
                stored.data = None;
                verified
            } else {
                stored.attempts_left -= 1;
                VerifyOutcome::Mismatch { attempts_left: stored.attempts_left }
            };
            let record = self.record(&stored)?;
            let replace = Write::Replace { key: key.clone(), expected: standing.version, record };
            let subject = [Principal::Owner(&stored.subject)];
            let mut step = Step::write(vec![replace], answer);
            if !right && stored.attempts_left == 0 {
                let note = Note::automatic(Action::Lockout, "the attempts of a challenge are used up")?;
                let note = note.about(Kind::Challenge, vec![id.to_string()]).of_subject(&stored.subject);
                step = step.audited(&self.scope, note.with_detail(format!("purpose {}", stored.purpose)));
            }
            step.unless_deleted_or(&self.scope, &subject, VerifyOutcome::Unknown)
        });
        update.await
    }

    /// Id of the challenge that a request names.
    async fn find(&self, named: &Named<'_>) -> Result<Option<ChallengeId>> {
        if let Some(id) = named.id {
            return Ok(id.parse().ok());
        }
        let now = self.stores.now()?;
        let by_secret = named.secret.and_then(|secret| stored::id_of(named.purpose, secret));
        let Some(subject) = named.subject else {
            return match (by_secret, named.secret) {
                (None, secret) if secret.is_none_or(|secret| stored::is_digits(secret.expose())) => {
                    Err(Error::invalid("an id or a subject is required with this secret").about("id"))
                }
                (by_secret, _) => Ok(by_secret),
            };
        };
        if let Some(id) = by_secret
            && self.stores.backend().get(&self.key(id)?, now).await?.is_some()
        {
            return Ok(Some(id));
        }
        let index_key = self.index_key(named.purpose, subject)?;
        match self.stores.backend().get(&index_key, now).await? {
            Some(record) => Ok(codec::decode::<Index>(&record.value)?.listed.last().map(Listed::id)),
            None => Ok(None),
        }
    }

    /// Record of a challenge, kept for a day after its end.
    fn record(&self, stored: &StoredChallenge) -> Result<Record> {
        Ok(self.stores.record(codec::encode(stored), stored.valid_until()?.checked_add(MEMORY)?))
    }

    fn key(&self, id: ChallengeId) -> Result<Key> {
        Key::new(Kind::Challenge, &self.scope, &[id.as_bytes().into()], &[])
    }

    fn index_key(&self, purpose: &str, subject: &str) -> Result<Key> {
        let (subject, purpose) = (subject_digest(subject), Digest::of("purpose", &[purpose.as_bytes()]));
        Key::new(Kind::ChallengeIndex, &self.scope, &[subject.part()], &[purpose.part()])
    }
}

/// Names of a challenge in a request.
struct Named<'a> {
    id: Option<&'a str>,
    purpose: &'a str,
    subject: Option<&'a str>,
    secret: Option<&'a Secret>,
}

impl Named<'_> {
    /// Refusal that does not depend on the secret.
    fn refused(&self, stored: &StoredChallenge, now: Now) -> Result<Option<VerifyOutcome>> {
        let fits = stored.purpose == self.purpose && self.subject.is_none_or(|it| it == stored.subject);
        Ok(match stored.state {
            _ if !fits => Some(VerifyOutcome::Unknown),
            ChallengeState::Superseded => Some(VerifyOutcome::Superseded),
            ChallengeState::Used => Some(VerifyOutcome::Used),
            ChallengeState::Open if !now.before(stored.valid_until()?)? => Some(VerifyOutcome::Expired),
            ChallengeState::Open if stored.attempts_left == 0 => Some(VerifyOutcome::Exceeded),
            ChallengeState::Open => None,
        })
    }
}

/// Partition of a subject's challenges: a subject may be longer than a key allows.
fn subject_digest(subject: &str) -> Digest {
    Digest::of("challenged", &[subject.as_bytes()])
}
