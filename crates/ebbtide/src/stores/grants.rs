//! Grants: families of refresh tokens, one record each, however often they are rotated (RFC 6749 §6, RFC 9700
//! §4.14). The state machine is drawn in `docs/grants.md`.

mod answers;
mod family;
mod index;
mod moving;
mod refresh;
mod request;
mod revocation;
mod types;
mod windows;

use answers::{count_rotation, describe, successor, theft};
use family::{Beginning, FamilyVerdict};
use refresh::Refresh;

pub(crate) use family::Family;
use index::grant_or_token;
pub use index::{GrantPage, Holder};
pub(crate) use index::{Listed, PAGE, listed_id};
pub(crate) use moving::{profile_of, salt_of};
pub use request::{GrantRequest, GrantTtls, Rotate};
pub(crate) use request::{
    MAX_NAME_BYTES, MAX_SCOPE_BYTES, MAX_THUMBPRINT_BYTES, asked_grant, check_grace, check_names,
};
pub use revocation::{MOST_COUNTED, Revoke};
pub use types::{Grant, GrantId, GrantState, IssuedGrant, RotateOutcome, Rotated, Why};

use super::access_tokens::{AccessDraft, AccessTokens, TokenWrites};
use super::audit::{Action, Note};
use super::registry::{Store, question};
use super::shared::confirmation::Confirmation;
use super::shared::deletion::{Owned, Progress};
use super::shared::epochs::{Death, Parties, Stamp};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::{Payload, Resealing};
use super::shared::refusal::RefusalCause;
use super::shared::update::Step;
use super::{Field, Stores};
use crate::backend::IndexTarget;
use crate::keyring::{KeyId, Keyring};
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::timekeeping::Now;

/// Grants of one scope.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let grant = acme.grants().issue(GrantRequest::new("alice", "app")).await?;
/// let rotate = Rotate::new(grant.refresh_token, "app");
/// let answer = acme.grants().rotate(rotate).await?;
/// assert!(matches!(answer, RotateOutcome::Rotated(_)));
/// assert_eq!(acme.grants().revoke(grant.grant_id, None).await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Grants {
    stores: Stores,
    scope: Scope,
}

/// Family as it was read, with the version for a conditional write.
pub(crate) struct FamilyRecord {
    pub(crate) key: Key,
    pub(crate) family: Family,
    pub(crate) version: Version,
    /// Cap of the family.
    pub(crate) ends_at: Timestamp,
}

impl FamilyRecord {
    /// The grant, if it is active.
    fn if_active(self, now: Now) -> Result<Option<Self>> {
        let is_active = self.family.state(now)? == GrantState::Active;
        Ok(is_active.then_some(self))
    }
}

question! {
    /// Grant to explain, by its id or by a refresh token of any generation.
    GrantQuestion {
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        grant_id: Option<GrantId>,
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        refresh_token: Option<Secret>,
    }
}

impl Store for Grants {
    const KINDS: &'static [Kind] = &[Kind::Grant, Kind::GrantIndex];
    const INDEXES: &'static [(Kind, IndexTarget)] = &[(Kind::GrantIndex, grant_or_token)];
    type Question = GrantQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: Family = codec::decode(value)?;
        let moved = stores.reseal_some(at, &mut stored.data)?;
        Ok(moved.then(|| codec::encode(&stored)))
    }

    async fn explain(&self, question: &GrantQuestion) -> Result<Finding> {
        match (question.grant_id, &question.refresh_token) {
            (Some(id), None) => self.explain_grant(id).await,
            (None, Some(token)) => self.explain_token(token).await,
            _ => Err(Error::invalid("either grant_id or refresh_token is given").about("grant_id")),
        }
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        let (holder, after) = (Holder::Subject(owned.owner), progress.after.as_ref());
        progress.after = self.remove_page(holder, after, &mut progress.removed).await?;
        Ok(progress.after.is_some())
    }
}

/// Key that the current refresh token of a stored grant is derived with.
pub(crate) fn derives_with(value: &[u8]) -> Option<KeyId> {
    codec::decode::<Family>(value).ok().map(|family| family.key())
}

impl Grants {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Issues a grant with its first refresh token. The grant and its indexes are one commit.
    pub async fn issue(&self, request: GrantRequest) -> Result<IssuedGrant> {
        request.check()?;
        let (subject, client_id, sid) =
            (request.subject.clone(), request.client_id.clone(), request.sid.clone());
        let parties = Parties::new(&subject, &client_id).session(sid.as_deref());
        let issue = self.stores.issue(&self.scope, parties, |stamp, now| {
            let (issued, _, writes) = self.prepare(request.clone(), stamp, now)?;
            Ok((issued, writes))
        });
        // The id is 16 random bytes: a collision means that the random numbers are broken.
        let issued = issue.await?.ok_or_else(|| Error::unavailable("a new grant's id is taken"))?;
        self.stores.clients(&self.scope).note_use(&client_id);
        Ok(issued)
    }

    /// Access tokens of the scope.
    pub(super) fn access_tokens(&self) -> AccessTokens {
        self.stores.access_tokens(&self.scope)
    }

    /// Grant, its family, and the writes that issue it. The caller's commit must check the epochs that it carries.
    pub(super) fn prepare(
        &self,
        request: GrantRequest,
        stamp: Stamp,
        now: Now,
    ) -> Result<(IssuedGrant, Family, Vec<Write>)> {
        request.check()?;
        let cnf = request.key()?;
        let ttls = self.family_ttls(&request)?;
        let ends_at = now.end(ttls.max)?;
        let id = GrantId::from_bytes(self.stores.rng().bytes());
        let key = self.key(id)?;
        let data = request.data.map(|data| self.stores.seal(&key, &[], &data)).transpose()?;
        let indexes = [Holder::Subject(&request.subject), Holder::Client(&request.client_id)]
            .map(|holder| holder.key(Listed::Grants, &self.scope, id.as_bytes()));
        let beginning = Beginning {
            subject: request.subject,
            client_id: request.client_id,
            cnf,
            scope: request.scope,
            resource: request.resource,
            data,
            key: self.stores.keyring().active(),
            idle: ttls.idle.duration(),
            grace: ttls.grace,
            strict: ttls.strict,
            access: ttls.access,
            salt: self.stores.rng().bytes(),
            stamp,
            sid: request.sid,
            profile: request.profile,
        };
        let family = Family::begin(beginning, now, ends_at)?;
        let issued = IssuedGrant {
            grant_id: id,
            refresh_token: self.present_token(id, &family).expect(ACTIVE_KEY),
            expires_at: family.idle_until(),
            ends_at,
        };
        let mut writes = vec![Write::Insert {
            key,
            record: self.stores.record(codec::encode(&family), family.expires_at(ends_at)),
        }];
        for key in indexes {
            writes.push(Write::Insert { key: key?, record: self.stores.record("", ends_at) });
        }
        Ok((issued, family, writes))
    }

    /// Reads a grant in any state: a revoked one until its cap, another until a day after its idle end.
    pub async fn get(&self, id: GrantId) -> Result<Option<Grant>> {
        let now = self.stores.now()?;
        let Some(standing) = self.standing(id, now).await? else { return Ok(None) };
        let data = self.stores.open_some(&standing.key, standing.family.data.as_deref())?;
        describe(id, standing, data, now).map(Some)
    }

    /// Exchanges a refresh token for its successor. A token that was rotated a moment ago gets the same successor again
    /// while that one was not used; within its window it is `Raced` after that, and changes nothing. A token that is
    /// used again later revokes the family.
    pub async fn rotate(&self, request: Rotate) -> Result<RotateOutcome> {
        let Rotate { refresh_token, client_id, access_token, .. } = &request;
        let cnf = &Confirmation::of(request.dpop_jkt.as_ref(), request.cnf.as_ref())?;
        let Some(token) = self.read_token(refresh_token).await? else {
            return Ok(RotateOutcome::Unknown);
        };
        let id = token.grant_id;
        let update = self.stores.retry(|now| async move {
            // The MAC is valid, so the grant was issued: if it is absent, it has ended.
            let Some((mut standing, read)) = self.read_for(id, client_id, now).await? else {
                self.stores.note_fence(now.latest(), self.stores.profile().refresh_max);
                return Ok(Step::answer(RotateOutcome::Expired));
            };
            let (stamp, scope) = (standing.family.stamp(), &self.scope);
            let (subject, client, sid) =
                (standing.family.subject.clone(), client_id.as_str(), standing.family.sid.clone());
            let parties = Parties::new(&subject, client).session(sid.as_deref()).with_read(read);
            let dead = move |death: Death| match death {
                Death { deleting: true, .. } => {
                    RefusalCause::Deleted.note();
                    RotateOutcome::Expired
                }
                Death { at, why, .. } => {
                    RefusalCause::Revoked(id).note();
                    RotateOutcome::Revoked { at, why }
                }
            };
            let answer = match standing.family.judge(token.generation, client_id, cnf, now)? {
                FamilyVerdict::Advance => {
                    let data = self.advance(&mut standing, now)?;
                    let mut writes = vec![self.replacement(&standing)];
                    let access = match self.access((access_token.as_ref(), cnf), id, &standing, now)? {
                        Ok(access) => access,
                        Err(field) => return Ok(Step::answer(RotateOutcome::Mismatch(field))),
                    };
                    let (access, inserts) = access.unzip();
                    writes.extend(inserts.into_iter().flatten());
                    let token = self.present_token(id, &standing.family).expect(ACTIVE_KEY);
                    let rotated = RotateOutcome::Rotated(successor(id, (token, access), standing, data));
                    return Step::write(writes, rotated).while_live(scope, parties, stamp, dead);
                }
                FamilyVerdict::Retry => {
                    let Some(token) = self.present_token(id, &standing.family) else {
                        // The successor's key was retired within the grace: its tokens are unknown.
                        return Ok(Step::answer(RotateOutcome::Unknown));
                    };
                    let data = self.stores.open_some(&standing.key, standing.family.data.as_deref())?;
                    let access = match self.access((access_token.as_ref(), cnf), id, &standing, now)? {
                        Ok(access) => access,
                        Err(field) => return Ok(Step::answer(RotateOutcome::Mismatch(field))),
                    };
                    let (access, inserts) = access.unzip();
                    let check = Write::Check { key: standing.key.clone(), expected: standing.version };
                    let mut writes = vec![check];
                    writes.extend(inserts.into_iter().flatten());
                    let retried = RotateOutcome::Retried(successor(id, (token, access), standing, data));
                    return Step::write(writes, retried).while_live(scope, parties, stamp, dead);
                }
                FamilyVerdict::Reuse => {
                    standing.family.revoke(Why::RefreshReused, now);
                    let reused = RotateOutcome::Reused { grant_id: id };
                    let note = theft(id, client_id, cnf, token.generation, &standing.family)?;
                    let step = Step::write(vec![self.replacement(&standing)], reused);
                    // A family that a sign-out has ended is no theft.
                    return step.audited(scope, note).while_live(scope, parties, stamp, dead);
                }
                FamilyVerdict::Raced => match self.stores.death(scope, parties, stamp, now).await? {
                    Some(death) => dead(death),
                    None => RotateOutcome::Raced { grant_id: id },
                },
                FamilyVerdict::Mismatch(field) => RotateOutcome::Mismatch(field),
                FamilyVerdict::Revoked { at, why } => {
                    RefusalCause::Revoked(id).note();
                    RotateOutcome::Revoked { at, why }
                }
                // The record is there until its cap.
                FamilyVerdict::Expired => {
                    RefusalCause::Idle.note();
                    RotateOutcome::Expired
                }
                FamilyVerdict::Unknown => RotateOutcome::Unknown,
            };
            Ok(Step::answer(answer))
        });
        let answer = update.await?;
        count_rotation(id, token.generation, &answer);
        Ok(answer)
    }

    /// Access token that a rotation asks for, and the writes that issue it; the error is the field that contradicts
    /// the grant.
    fn access(
        &self,
        (draft, cnf): (Option<&AccessDraft>, &Confirmation),
        id: GrantId,
        standing: &FamilyRecord,
        now: Now,
    ) -> Result<Result<Option<TokenWrites>, Field>> {
        let Some(draft) = draft else { return Ok(Ok(None)) };
        let under = (id, &standing.family, standing.ends_at);
        Ok(self.stores.access_tokens(&self.scope).prepare_under((draft, cnf), under, now)?.map(Some))
    }

    /// Advances the family, and reseals its data under the active key: an old key can be retired once its families
    /// have been rotated.
    fn advance(&self, standing: &mut FamilyRecord, now: Now) -> Result<Option<Payload>> {
        let active = self.stores.keyring().active();
        let FamilyRecord { key, family, ends_at, .. } = standing;
        let data = self.stores.open_some(key, family.data.as_deref())?;
        if family.data.as_deref().and_then(Keyring::sealed_under) != Some(active) {
            family.data = data.as_ref().map(|data| self.stores.seal(key, &[], data)).transpose()?;
        }
        family.advance(active, now, *ends_at)?;
        Ok(data)
    }

    /// Finds the grant that this refresh token can be rotated in now; none unless it is the current token of an
    /// active family. Nothing is changed.
    pub async fn find(&self, token: &Secret) -> Result<Option<Grant>> {
        let token = self.read_token(token).await?;
        let Some(token) = token else { return Ok(None) };
        let grant = self.get(token.grant_id).await?;
        Ok(grant.filter(|grant| grant.state == GrantState::Active && grant.generation == token.generation))
    }

    pub(super) async fn explain_grant(&self, id: GrantId) -> Result<Finding> {
        let now = self.stores.now()?;
        let Some(standing) = self.standing(id, now).await? else {
            return Ok(Finding::unknown("not a grant of this scope, or one that has ended"));
        };
        let family = standing.family;
        let (state, why) = match family.state(now)? {
            GrantState::Active => {
                (RecordState::Live, format!("it was rotated {} times", family.generation()))
            }
            GrantState::Revoked { at, why } => {
                (RecordState::Revoked, format!("it was revoked at {at}: {}", why.words()))
            }
            GrantState::Expired => (RecordState::Expired, "it was idle for too long".to_owned()),
        };
        let mut finding = Finding::new(state, why).since(family.created_at()).until(family.idle_until());
        (finding.cap_at, finding.target) = (Some(standing.ends_at), Some(vec![id.to_string()]));
        Ok(finding.of_grant(Some(id)))
    }

    async fn explain_token(&self, token: &Secret) -> Result<Finding> {
        let Some(token) = self.read_token(token).await? else {
            return Ok(Finding::unknown("not a refresh token of this scope"));
        };
        let mut finding = self.explain_grant(token.grant_id).await?;
        let now = self.stores.now()?;
        let present = self.standing(token.grant_id, now).await?.map(|standing| standing.family.generation());
        if finding.state == RecordState::Live && present.is_some_and(|present| token.generation < present) {
            finding.state = RecordState::Used;
            finding.why = format!("{}, and this token is of generation {}", finding.why, token.generation);
        }
        Ok(finding)
    }

    /// Revokes the grant that came from a code which was redeemed twice.
    pub(super) async fn revoke_reused(&self, id: GrantId, code: &str) -> Result<()> {
        let note = Note::automatic(Action::Theft, "a code was redeemed again; its grant is revoked")?
            .about(Kind::Grant, vec![id.to_string()])
            .with_detail(code);
        if self.revoke_if(id, Why::CodeReused, Some(note), |_| true).await? {
            tracing::warn!(grant = %id, "{code} was redeemed twice; its grant is revoked");
        }
        Ok(())
    }

    async fn revoke_if(
        &self,
        id: GrantId,
        why: Why,
        note: Option<Note>,
        condition: impl Fn(&Family) -> bool,
    ) -> Result<bool> {
        let key = self.key(id)?;
        let update = self.stores.update(&key, |record, now| {
            let Some(mut standing) = read_standing(&key, record)? else { return Ok(Step::answer(false)) };
            if standing.family.state(now)? != GrantState::Active || !condition(&standing.family) {
                return Ok(Step::answer(false));
            }
            standing.family.revoke(why, now);
            let step = Step::write(vec![self.replacement(&standing)], true);
            Ok(match &note {
                Some(note) => step.audited(&self.scope, note.clone().of_subject(&standing.family.subject)),
                None => step,
            })
        });
        update.await
    }

    /// Returns whether the grant with that record is active, and has it noted, beside the answer, that an access token
    /// of `generation` is in use. The caller checks the epochs.
    pub(super) fn witness(
        &self,
        id: GrantId,
        record: Option<Record>,
        generation: u64,
        now: Now,
    ) -> Result<bool> {
        let standing = read_standing(&self.key(id)?, record)?;
        let active = standing.map(|standing| standing.if_active(now)).transpose()?.flatten();
        // In doubt the receipt is noted as well: that refuses a retry at the worst.
        if let Some(standing) = &active
            && !matches!(standing.family.is_proved_by(generation, now), Ok(false))
        {
            let grants = self.clone();
            self.stores.beside(async move { grants.prove_receipt(id, generation).await });
        }
        Ok(active.is_some())
    }

    /// Notes that the answer to the last rotation has arrived.
    async fn prove_receipt(&self, id: GrantId, generation: u64) -> Result<()> {
        let key = self.key(id)?;
        let update = self.stores.update(&key, |record, now| {
            let active = read_standing(&key, record)?.map(|standing| standing.if_active(now)).transpose()?;
            let Some(mut standing) = active.flatten() else { return Ok(Step::answer(())) };
            if matches!(standing.family.is_proved_by(generation, now), Ok(false)) {
                return Ok(Step::answer(()));
            }
            standing.family.prove_receipt();
            Ok(Step::write(vec![self.replacement(&standing)], ()))
        });
        update.await
    }

    /// Reads the grant, if it is active.
    pub(super) async fn active(&self, id: GrantId, now: Now) -> Result<Option<FamilyRecord>> {
        let standing = self.standing(id, now).await?;
        Ok(standing.map(|standing| standing.if_active(now)).transpose()?.flatten())
    }

    /// Reads the grant, unless its subject or its client is being deleted. One that carries an older epoch is revoked.
    pub(super) async fn standing(&self, id: GrantId, now: Now) -> Result<Option<FamilyRecord>> {
        let Some(standing) = self.read(id, now).await? else { return Ok(None) };
        self.judged(standing, now).await
    }

    /// Reads the grant, even while its subject or client is being deleted.
    pub(super) async fn read(&self, id: GrantId, now: Now) -> Result<Option<FamilyRecord>> {
        let key = self.key(id)?;
        read_standing(&key, self.stores.backend().get(&key, now).await?)
    }

    /// Write that replaces the record that was read.
    fn replacement(&self, standing: &FamilyRecord) -> Write {
        let FamilyRecord { key, family, version, ends_at } = standing;
        let record = self.stores.record(codec::encode(family), family.expires_at(*ends_at));
        Write::Replace { key: key.clone(), expected: *version, record }
    }

    pub(super) fn key(&self, id: GrantId) -> Result<Key> {
        Key::new(Kind::Grant, &self.scope, &[id.as_bytes().into()], &[])
    }

    fn present_token(&self, grant_id: GrantId, family: &Family) -> Option<Secret> {
        let token = Refresh { key: family.key(), grant_id, generation: family.generation() };
        token.to_secret(&self.stores.keyring(), &self.scope)
    }
}

fn read_standing(key: &Key, record: Option<Record>) -> Result<Option<FamilyRecord>> {
    let Some(Record { value, version, expires_at, .. }) = record else { return Ok(None) };
    let family: Family = codec::decode(&value)?;
    let ends_at = family.ends_at(expires_at);
    Ok(Some(FamilyRecord { key: key.clone(), family, version, ends_at }))
}

const ACTIVE_KEY: &str = "a new token is made with the active key, which is in the ring";
