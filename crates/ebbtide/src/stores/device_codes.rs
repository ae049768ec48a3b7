//! Device codes (RFC 8628): a device shows a user code and polls; the user decides elsewhere; the device redeems once.
//! Two keys lead to one record: the device code's own, and the user code, which is unique among live ones.

mod device;
mod guesses;
mod moving;
mod types;
mod user_code;

use std::time::Duration;

use device::{Device, DeviceState, Pace};
pub use types::{
    Approve, DecideOutcome, Decision, Deny, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest, Inspect,
    InspectOutcome, PollOutcome, StartedDevice,
};
use user_code::UserCode;

use super::codes::Redeemed;
use super::grants::{GrantId, MAX_NAME_BYTES, MAX_SCOPE_BYTES};
use super::registry::{Store, question};
use super::shared::confirmation::Confirmation;
use super::shared::epochs::{Carried, Parties, Stamp};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::Resealing;
use super::shared::token;
use super::shared::update::Step;
use super::{Field, MEMORY, Stores, check_length, check_optional};
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
use crate::timekeeping::Now;

/// Device codes of one scope.
///
/// The state of a code is kept for a day after its end, or until the end of what it gave, whichever is later.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::device_codes::{Approve, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest, PollOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let device = acme.device_codes().start(DeviceRequest::new("tv")).await?;
/// let redeem = DeviceRedeem::new(device.device_code, "tv").with_grant();
/// let poll = acme.device_codes().poll(&redeem).await?;
/// assert_eq!(poll, PollOutcome::Pending { interval_seconds: 5 });
/// let _ = acme.device_codes().decide(Approve::new(device.user_code, "alice")).await?;
/// let answer = acme.device_codes().redeem(redeem).await?;
/// assert!(matches!(answer, DeviceRedeemOutcome::Redeemed(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DeviceCodes {
    stores: Stores,
    scope: Scope,
}

/// Attempts to find a user code that is not in use.
const MOST_USER_CODES: usize = 16;

/// First part of the keys of user codes.
pub(super) const USER_CODES: &str = "codes";

/// Device code as it was read, with the version for a conditional write.
struct FoundDevice {
    key: Key,
    device: Device,
    version: Version,
}

question! {
    /// Device code to explain.
    DeviceCodeQuestion {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        device_code: Secret,
    }
}

impl Store for DeviceCodes {
    const KINDS: &'static [Kind] = &[Kind::DeviceCode, Kind::UserCode];
    const INDEXES: &'static [(Kind, IndexTarget)] = &[(Kind::UserCode, moving::device_of)];
    type Question = DeviceCodeQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: Device = codec::decode(value)?;
        let moved = stores.reseal_some(at, &mut stored.data)?;
        Ok(moved.then(|| codec::encode(&stored)))
    }

    fn spent(value: &[u8]) -> Result<Option<Vec<u8>>> {
        let device: Device = codec::decode(value)?;
        let spent =
            || codec::encode(&Device { state: DeviceState::Redeemed(None, None), data: None, ..device });
        Ok(match device.state {
            DeviceState::Denied | DeviceState::Redeemed(None, None) => None,
            _ => Some(spent()),
        })
    }

    async fn explain(&self, question: &DeviceCodeQuestion) -> Result<Finding> {
        let unknown = || Finding::unknown("not a device code of this scope, or one from long ago");
        let Some(digest) = token::read(token::DEVICE, &[], &question.device_code) else {
            return Ok(unknown());
        };
        let now = self.stores.now()?;
        let Some(FoundDevice { device, .. }) = self.standing(&digest, now).await? else {
            return Ok(unknown());
        };
        let valid_until = device.valid_until()?;
        let finding = match &device.state {
            DeviceState::Redeemed(id, _) => {
                let id = id.as_ref().map(|id| GrantId::from_bytes(**id));
                Finding::new(RecordState::Used, "it was redeemed").of_grant(id)
            }
            DeviceState::Denied => Finding::new(RecordState::Revoked, "the user has said no"),
            _ if !now.before(valid_until)? => {
                Finding::new(RecordState::Expired, "it was not redeemed in its time")
            }
            state => match self.stores.death(&self.scope, device.parties(), device.stamp(), now).await? {
                Some(death) => Finding::dead(death),
                None => Finding::new(RecordState::Live, state.while_live()),
            },
        };
        Ok(finding.until(valid_until))
    }
}

impl DeviceCodes {
    /// Default lifetime of a device code.
    pub const DEFAULT_TTL_SECONDS: u64 = 600;

    /// Longest lifetime of a device code.
    pub const MAX_TTL_SECONDS: u64 = 3_600;

    /// Default seconds from one poll to the next (RFC 8628 §3.2).
    pub const DEFAULT_INTERVAL_SECONDS: u64 = 5;

    /// Most seconds from one poll to the next.
    pub const MAX_INTERVAL_SECONDS: u64 = 60;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Starts a flow. The record and its user code are one commit.
    pub async fn start(&self, request: DeviceRequest) -> Result<StartedDevice> {
        check_length("client_id", &request.client_id, MAX_NAME_BYTES)?;
        check_optional("scope", request.scope.as_deref(), MAX_SCOPE_BYTES)?;
        let interval_seconds = request.interval_seconds.unwrap_or(Self::DEFAULT_INTERVAL_SECONDS);
        if interval_seconds == 0 || interval_seconds > Self::MAX_INTERVAL_SECONDS {
            return Err(Error::invalid(format!(
                "an interval is 1 to {} seconds",
                Self::MAX_INTERVAL_SECONDS
            ))
            .about("interval_seconds"));
        }
        let default = Ttl::secs(Self::DEFAULT_TTL_SECONDS);
        let ttl = self.stores.ttl(Kind::DeviceCode, &self.scope, request.ttl, default)?;
        if ttl.duration() > Duration::from_secs(Self::MAX_TTL_SECONDS) {
            return Err(Error::invalid(format!("a device code lives at most {} s", Self::MAX_TTL_SECONDS))
                .about("ttl_seconds"));
        }
        let (device_code, digest) = token::mint(token::DEVICE, &[], self.stores.rng());
        let key = &self.key(&digest)?;
        let data = request.data.as_ref().map(|data| self.stores.seal(key, &[], data)).transpose()?;
        // A user code of another flow is not given a second time: the next one is tried.
        for _ in 0..MOST_USER_CODES {
            let user_code = UserCode::mint(self.stores.rng());
            let user_key = &self.user_key(&user_code)?;
            let issue = self.stores.issue(&self.scope, Parties::client(&request.client_id), |stamp, now| {
                let expires_at = now.end(ttl)?;
                let device = Device {
                    data: data.clone(),
                    client_id: request.client_id.clone(),
                    scope: request.scope.clone(),
                    valid_until: expires_at.as_millis(),
                    interval_seconds,
                    polled_at: None,
                    state: DeviceState::Pending,
                    started_at: now.latest().as_millis(),
                    resource: request.resource.clone(),
                    stamp: Some(stamp),
                    user_code: Some((*user_code.digest().as_bytes()).into()),
                };
                let record = self.record(&device, expires_at)?;
                // It is kept as long as the record that it leads to: a late decision is told from a wrong code.
                let listed = self.stores.record(digest.as_bytes().to_vec(), record.expires_at);
                let insert = Write::Insert { key: key.clone(), record };
                Ok((expires_at, vec![insert, Write::Insert { key: user_key.clone(), record: listed }]))
            });
            if let Some(expires_at) = issue.await? {
                self.stores.clients(&self.scope).note_use(&request.client_id);
                let user_code = user_code.to_secret();
                return Ok(StartedDevice { device_code, user_code, interval_seconds, expires_at });
            }
        }
        Err(Error::unavailable("no free user code was found; try again"))
    }

    /// Reads what a user code asks for, for the page on which the user decides. A wrong code counts as a guess of
    /// `source`, such as an address or a session.
    pub async fn inspect(&self, inspect: &Inspect) -> Result<InspectOutcome> {
        let source = inspect.source.expose();
        if let Err(retry_at) = self.count_guess(source, &guesses::shown(&inspect.source)).await? {
            return Ok(InspectOutcome::TooManyGuesses { retry_at });
        }
        let answer = self.look(&inspect.user_code).await?;
        if answer != InspectOutcome::Unknown {
            self.uncount_guess(source).await?;
        }
        Ok(answer)
    }

    async fn look(&self, user_code: &Secret) -> Result<InspectOutcome> {
        let Some(user_code) = UserCode::read(user_code.expose()) else { return Ok(InspectOutcome::Unknown) };
        let now = self.stores.now()?;
        let found = self.by_user_code(&user_code, now).await?;
        let Some(FoundDevice { device, .. }) = found else { return Ok(InspectOutcome::Unknown) };
        if self.stores.death(&self.scope, device.parties(), device.stamp(), now).await?.is_some() {
            return Ok(InspectOutcome::Unknown);
        }
        let expires_at = device.valid_until()?;
        Ok(match device.state {
            DeviceState::Pending if now.before(expires_at)? => InspectOutcome::Pending {
                client_id: device.client_id,
                scope: device.scope,
                resource: device.resource,
                expires_at,
            },
            DeviceState::Pending => InspectOutcome::Expired,
            _ => InspectOutcome::Used,
        })
    }

    /// Reads the device code that a user code leads to. `Corrupt` if the device code has another user code: somebody else
    /// has led the user to it.
    async fn by_user_code(&self, user_code: &UserCode, now: Now) -> Result<Option<FoundDevice>> {
        let listed = self.stores.backend().get(&self.user_key(user_code)?, now).await?;
        let Some(listed) = listed else { return Ok(None) };
        let strange = || Error::corrupt("a user code leads to what is not its device code");
        let digest = <[u8; 32]>::try_from(listed.value.as_ref()).map_err(|_| strange())?;
        let found = self.standing(&Digest::from_bytes(digest), now).await?;
        let own = found.as_ref().and_then(|found| found.device.user_code.as_deref());
        if own.is_some_and(|own| own != user_code.digest().as_bytes()) { Err(strange()) } else { Ok(found) }
    }

    /// Records the decision of the user. The first decision on a code counts, and later ones are answered `Used`. A
    /// wrong code counts as a guess of the decision's source.
    pub async fn decide(&self, decision: impl Into<Decision>) -> Result<DecideOutcome> {
        let decision = decision.into();
        if let Decision::Approve(approve) = &decision {
            check_length("subject", &approve.subject, MAX_NAME_BYTES)?;
        }
        if let Err(retry_at) = self.count_guess(decision.source(), &decision.shown_source()).await? {
            return Ok(DecideOutcome::TooManyGuesses { retry_at });
        }
        let answer = self.look_and_decide(&decision).await?;
        if answer != DecideOutcome::Unknown {
            self.uncount_guess(decision.source()).await?;
        }
        Ok(answer)
    }

    async fn look_and_decide(&self, decision: &Decision) -> Result<DecideOutcome> {
        let Some(user_code) = UserCode::read(decision.user_code().expose()) else {
            return Ok(DecideOutcome::Unknown);
        };
        let user_code = &user_code;
        let update = self.stores.retry(|now| async move {
            let Some(found) = self.by_user_code(user_code, now).await? else {
                return Ok(Step::answer(DecideOutcome::Unknown));
            };
            let subject = match decision {
                Decision::Approve(approve) => {
                    match self.stores.subject_stamp(&self.scope, &approve.subject, now).await? {
                        Some(stamp) => {
                            self.stores.after_raise(&stamp).await?;
                            stamp
                        }
                        None => return Ok(Step::answer(DecideOutcome::Unknown)),
                    }
                }
                Decision::Deny(_) => Stamp::default(),
            };
            self.judge(found, decision, subject, now)
        });
        update.await
    }

    fn judge(
        &self,
        mut standing: FoundDevice,
        decision: &Decision,
        subject_stamp: Stamp,
        now: Now,
    ) -> Result<Step<DecideOutcome>> {
        let device = &mut standing.device;
        if !matches!(device.state, DeviceState::Pending) {
            return Ok(Step::answer(DecideOutcome::Used));
        }
        if !now.before(device.valid_until()?)? {
            return Ok(Step::answer(DecideOutcome::Expired));
        }
        match decision {
            Decision::Approve(Approve { subject, data, .. }) => {
                device.check_user(subject)?;
                device.state = DeviceState::Approved(subject.clone());
                device.stamp = Some(device.stamp().with_subject_of(subject_stamp));
                if let Some(data) = data {
                    device.data = Some(self.stores.seal(&standing.key, &[], data)?);
                }
            }
            Decision::Deny(_) => {
                device.state = DeviceState::Denied;
                device.data = None;
            }
        }
        let decided =
            DecideOutcome::Decided { client_id: device.client_id.clone(), scope: device.scope.clone() };
        self.replace(standing, (decided, DecideOutcome::Unknown))
    }

    /// Answers a device that asks. While nothing is decided, the poll is recorded in the step that answers it: one that
    /// comes too early is told to slow down, and the interval is longer from then on.
    pub async fn poll(&self, presented: &DeviceRedeem) -> Result<PollOutcome> {
        let Some(digest) = &token::read(token::DEVICE, &[], &presented.device_code) else {
            return Ok(PollOutcome::Unknown);
        };
        let update = self.stores.retry(|now| async move {
            match self.standing(digest, now).await? {
                Some(standing) => self.answer(standing, &presented.client_id, now).await,
                None => Ok(Step::answer(PollOutcome::Unknown)),
            }
        });
        update.await
    }

    async fn answer(
        &self,
        mut standing: FoundDevice,
        client_id: &str,
        now: Now,
    ) -> Result<Step<PollOutcome>> {
        let device = &mut standing.device;
        if device.client_id != client_id {
            return Ok(Step::answer(PollOutcome::Mismatch(Field::ClientId)));
        }
        let answer = match &device.state {
            DeviceState::Redeemed(..) => {
                self.stores.note_fence(device.valid_until()?, Ttl::secs(Self::DEFAULT_TTL_SECONDS));
                PollOutcome::Used
            }
            DeviceState::Denied => PollOutcome::Denied,
            _ if !now.before(device.valid_until()?)? => PollOutcome::Expired,
            DeviceState::Approved(subject) => {
                let death = self.stores.death(&self.scope, device.parties(), device.stamp(), now).await?;
                if death.is_some() {
                    PollOutcome::Unknown
                } else {
                    PollOutcome::Approved { subject: subject.clone(), scope: device.scope.clone() }
                }
            }
            DeviceState::Pending => {
                let answer = match device.poll(now)? {
                    Pace::Wait { interval_seconds } => PollOutcome::Pending { interval_seconds },
                    Pace::SlowDown { interval_seconds } => PollOutcome::SlowDown { interval_seconds },
                };
                return self.replace(standing, (answer, PollOutcome::Unknown));
            }
        };
        Ok(Step::answer(answer))
    }

    /// Redeems an approved code. Of any number of redemptions of one code at most one is answered `Redeemed`; every
    /// later one of its client revokes what it gave, since two parties have the code. One before the approval is a poll.
    ///
    /// After an error the code may have been redeemed, as with [codes](super::codes::Codes::redeem).
    pub async fn redeem(&self, presented: DeviceRedeem) -> Result<DeviceRedeemOutcome> {
        let cnf = &Confirmation::of(presented.dpop_jkt.as_ref(), presented.cnf.as_ref())?;
        if let Some(ttls) = &presented.grant {
            ttls.check(&self.stores)?;
        }
        let unknown = || DeviceRedeemOutcome::Refused(PollOutcome::Unknown);
        let Some(digest) = &token::read(token::DEVICE, &[], &presented.device_code) else {
            return Ok(unknown());
        };
        let presented = &presented;
        let update = self.stores.retry(|now| async move {
            let Some(mut standing) = self.standing(digest, now).await? else {
                return Ok(Step::answer(unknown()));
            };
            let device = &mut standing.device;
            let subject = match &device.state {
                DeviceState::Redeemed(id, token) => {
                    // A caller that has only the code revokes nothing, as with authorization codes.
                    let fits = device.client_id == presented.client_id;
                    let grant_id = id.as_ref().filter(|_| fits).map(|id| GrantId::from_bytes(**id));
                    if let Some(token) = token.as_ref().filter(|_| fits) {
                        let (tokens, token) =
                            (self.stores.access_tokens(&self.scope), Digest::from_bytes(**token));
                        tokens.revoke_reused(&token, "device code").await?;
                    }
                    return Ok(Step::answer(DeviceRedeemOutcome::Reused { grant_id }));
                }
                DeviceState::Approved(subject)
                    if device.client_id == presented.client_id && now.before(device.valid_until()?)? =>
                {
                    subject.clone()
                }
                _ => {
                    let refused = self.answer(standing, &presented.client_id, now).await?;
                    return Ok(refused.map(DeviceRedeemOutcome::Refused));
                }
            };
            let mut redeemed = Redeemed {
                subject,
                client_id: device.client_id.clone(),
                scope: device.scope.clone(),
                data: self.stores.open_some(&standing.key, device.data.take().as_deref())?,
                dpop_jkt: cnf.jkt.clone(),
                x5t_s256: cnf.x5t_s256.clone(),
                resource: device.resource.clone(),
                grant: None,
                access_token: None,
                sid: None,
            };
            let stamp = device.stamp();
            let (ttls, draft) = (presented.grant.clone(), presented.access_token.as_ref());
            let writes = match redeemed.give(ttls, draft, &self.stores.grants(&self.scope), (stamp, now))? {
                Ok(writes) => writes,
                Err(field) => {
                    return Ok(Step::answer(DeviceRedeemOutcome::Refused(PollOutcome::Mismatch(field))));
                }
            };
            let carried = Stores::carried(&self.scope, device.parties(), stamp)?;
            let ((grant, token), keep_until) = (redeemed.given(), redeemed.given_until());
            device.state = DeviceState::Redeemed(grant, token);
            let answers = (DeviceRedeemOutcome::Redeemed(Box::new(redeemed)), unknown());
            self.replace_until(standing, carried, writes, keep_until, answers)
        });
        let answer = update.await?;
        if let DeviceRedeemOutcome::Reused { grant_id: Some(id) } = answer {
            self.stores.grants(&self.scope).revoke_reused(id, "device code").await?;
        }
        Ok(answer)
    }

    async fn standing(&self, digest: &Digest, now: Now) -> Result<Option<FoundDevice>> {
        let key = self.key(digest)?;
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(None) };
        Ok(Some(FoundDevice { key, device: codec::decode(&record.value)?, version: record.version }))
    }

    fn replace<T: Send + 'static>(&self, standing: FoundDevice, answers: (T, T)) -> Result<Step<T>> {
        let device = &standing.device;
        let carried = Stores::carried(&self.scope, device.parties(), device.stamp())?;
        self.replace_until(standing, carried, Vec::new(), None, answers)
    }

    /// Replaces the record. The second answer is given if one of the epochs is no longer the one that is carried.
    fn replace_until<T: Send + 'static>(
        &self,
        standing: FoundDevice,
        carried: Vec<Carried>,
        mut writes: Vec<Write>,
        keep_until: Option<Timestamp>,
        (applied, dead): (T, T),
    ) -> Result<Step<T>> {
        let FoundDevice { key, device, version } = standing;
        let record = self.record(&device, keep_until.unwrap_or(Timestamp::ZERO))?;
        writes.insert(0, Write::Replace { key, expected: version, record });
        Ok(Step::write(writes, applied).while_carried(carried, move |_| dead))
    }

    /// Record of a code, kept for a day after the end of the code, or until `keep_until` if that is later.
    fn record(&self, device: &Device, keep_until: Timestamp) -> Result<Record> {
        let expires_at = device.valid_until()?.checked_add(MEMORY)?.max(keep_until);
        Ok(self.stores.record(codec::encode(device), expires_at))
    }

    fn key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::DeviceCode, &self.scope, &[digest.part()], &[])
    }

    fn user_key(&self, user_code: &UserCode) -> Result<Key> {
        Key::new(Kind::UserCode, &self.scope, &[USER_CODES.into(), user_code.digest().part()], &[])
    }
}
