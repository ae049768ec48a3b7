//! Device codes (RFC 8628): a device shows a user code and polls; the user decides elsewhere; the device redeems once.
//! Two keys lead to one record: the device code's own, and the user code, which is unique among live ones.

mod device;
mod guesses;
mod types;
mod user_code;

use std::future::ready;
use std::time::Duration;

use device::{Device, DeviceState, Pace};
pub use types::{
    Approve, DecideOutcome, Decision, Deny, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest, PollOutcome,
    StartedDevice,
};
use user_code::UserCode;

use super::codes::Redeemed;
use super::grants::{GrantId, MAX_NAME_BYTES, MAX_SCOPE_BYTES, MAX_THUMBPRINT_BYTES};
use super::registry::{Store, question};
use super::shared::finding::{Finding, RecordState};
use super::shared::token;
use super::shared::tombstones::Principal;
use super::shared::update::Step;
use super::{Field, MEMORY, Stores, check_length, check_optional};
use crate::backend::IndexTarget;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
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
/// The state of a code is kept for a day after its end, or until the cap of its grant, whichever is later.
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
    const INDEXES: &'static [(Kind, IndexTarget)] = &[(Kind::UserCode, device_of)];
    type Question = DeviceCodeQuestion;

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
            DeviceState::Redeemed(id) => {
                let id = id.as_ref().map(|id| GrantId::from_bytes(**id));
                Finding::new(RecordState::Used, "it was redeemed").of_grant(id)
            }
            DeviceState::Denied => Finding::new(RecordState::Revoked, "the user has said no"),
            _ if !now.before(valid_until)? => {
                Finding::new(RecordState::Expired, "it was not redeemed in its time")
            }
            DeviceState::Approved(_) => {
                Finding::new(RecordState::Live, "the user has said yes, and it was not redeemed yet")
            }
            DeviceState::Pending => Finding::new(RecordState::Live, "the user has not decided yet"),
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
            )));
        }
        let default = Ttl::secs(Self::DEFAULT_TTL_SECONDS);
        let ttl = self.stores.ttl(Kind::DeviceCode, &self.scope, request.ttl, default)?;
        if ttl.duration() > Duration::from_secs(Self::MAX_TTL_SECONDS) {
            return Err(Error::invalid(format!(
                "a device code lives at most {} s; {ttl} was asked for",
                Self::MAX_TTL_SECONDS
            )));
        }
        let now = self.stores.now()?;
        let expires_at = now.end(ttl)?;
        let (device_code, digest) = token::mint(token::DEVICE, &[], self.stores.rng());
        let key = self.key(&digest)?;
        let device = Device {
            data: request.data.as_ref().map(|data| self.stores.seal(&key, &[], data)).transpose()?,
            client_id: request.client_id,
            scope: request.scope,
            valid_until: expires_at.as_millis(),
            interval_seconds,
            polled_at: None,
            state: DeviceState::Pending,
            started_at: now.latest().as_millis(),
        };
        let record = self.record(&device, expires_at)?;
        let client = [Principal::Client(&device.client_id)];
        let update = self.stores.retry(|_| {
            let user_code = UserCode::mint(self.stores.rng());
            // It is kept as long as the record that it leads to, so that a late decision is told from a wrong code.
            let listed = self.stores.record(digest.as_bytes().to_vec(), record.expires_at);
            let insert = Write::Insert { key: key.clone(), record: record.clone() };
            // A user code of another flow is not given a second time: the next one is tried.
            ready(self.user_key(&user_code).and_then(|user_key| {
                let writes = vec![insert, Write::Insert { key: user_key, record: listed }];
                Step::write(writes, user_code.to_secret()).unless_deleted(&self.scope, &client)
            }))
        });
        let user_code = update.await?;
        Ok(StartedDevice { device_code, user_code, interval_seconds, expires_at })
    }

    /// Records the decision of the user. The first decision on a code counts, and later ones are answered `Used`. A
    /// wrong code counts as a guess of the decision's source.
    pub async fn decide(&self, decision: impl Into<Decision>) -> Result<DecideOutcome> {
        let decision = decision.into();
        if let Decision::Approve(approve) = &decision {
            check_length("subject", &approve.subject, MAX_NAME_BYTES)?;
        }
        if let Err(retry_at) = self.count_guess(decision.source()).await? {
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
        let user_key = &self.user_key(&user_code)?;
        let update = self.stores.retry(|now| async move {
            let Some(listed) = self.stores.backend().get(user_key, now).await? else {
                return Ok(Step::answer(DecideOutcome::Unknown));
            };
            let digest = <[u8; 32]>::try_from(listed.value.as_ref())
                .map_err(|_| Error::corrupt("a user code leads to what is no device code"))?;
            match self.standing(&Digest::from_bytes(digest), now).await? {
                Some(standing) => self.judge(standing, decision, now),
                None => Ok(Step::answer(DecideOutcome::Unknown)),
            }
        });
        update.await
    }

    fn judge(&self, mut standing: FoundDevice, decision: &Decision, now: Now) -> Result<Step<DecideOutcome>> {
        let device = &mut standing.device;
        if !matches!(device.state, DeviceState::Pending) {
            return Ok(Step::answer(DecideOutcome::Used));
        }
        if !now.before(device.valid_until()?)? {
            return Ok(Step::answer(DecideOutcome::Expired));
        }
        let mut whom = Vec::new();
        match decision {
            Decision::Approve(Approve { subject, data, .. }) => {
                device.state = DeviceState::Approved(subject.clone());
                if let Some(data) = data {
                    device.data = Some(self.stores.seal(&standing.key, &[], data)?);
                }
                whom.push(Principal::Owner(subject));
            }
            Decision::Deny(_) => {
                device.state = DeviceState::Denied;
                device.data = None;
            }
        }
        let client_id = device.client_id.clone();
        whom.push(Principal::Client(&client_id));
        let decided = DecideOutcome::Decided { client_id: client_id.clone(), scope: device.scope.clone() };
        self.replace(standing, &whom, (decided, DecideOutcome::Unknown))
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
        let client = Principal::Client(client_id);
        let answer = match &device.state {
            DeviceState::Redeemed(_) => PollOutcome::Used,
            DeviceState::Denied => PollOutcome::Denied,
            _ if !now.before(device.valid_until()?)? => PollOutcome::Expired,
            DeviceState::Approved(subject) => {
                let (whom, began) = ([Principal::Owner(subject), client], Some(device.started_at()?));
                if self.stores.is_deleted_since(&self.scope, &whom, began, now).await? {
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
                return self.replace(standing, &[client], (answer, PollOutcome::Unknown));
            }
        };
        Ok(Step::answer(answer))
    }

    /// Redeems an approved code. Of any number of redemptions of one code at most one is answered `Redeemed`; every
    /// later one revokes its grant, since two parties have the code. A redemption before the approval counts as a poll.
    ///
    /// After an error the code may have been redeemed, as with [codes](super::codes::Codes::redeem).
    pub async fn redeem(&self, presented: DeviceRedeem) -> Result<DeviceRedeemOutcome> {
        check_optional("key thumbprint", presented.dpop_jkt.as_deref(), MAX_THUMBPRINT_BYTES)?;
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
                DeviceState::Redeemed(id) => {
                    let grant_id = id.as_ref().map(|id| GrantId::from_bytes(**id));
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
                dpop_jkt: presented.dpop_jkt.clone(),
                grant: None,
            };
            let writes = redeemed.give(presented.grant.clone(), &self.stores.grants(&self.scope), now)?;
            let id = redeemed.grant.as_ref().map(|grant| (*grant.grant_id.as_bytes()).into());
            device.state = DeviceState::Redeemed(id);
            let keep_until = redeemed.grant.as_ref().map(|grant| grant.ends_at);
            let (subject, client_id) = (redeemed.subject.clone(), redeemed.client_id.clone());
            let whom = [Principal::Owner(&subject), Principal::Client(&client_id)];
            let answers = (DeviceRedeemOutcome::Redeemed(Box::new(redeemed)), unknown());
            self.replace_until(standing, &whom, writes, keep_until, answers)
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

    fn replace<T>(&self, standing: FoundDevice, whom: &[Principal<'_>], answers: (T, T)) -> Result<Step<T>> {
        self.replace_until(standing, whom, Vec::new(), None, answers)
    }

    /// Replaces the record. The second answer is given if one of `whom` was deleted since the start of the flow.
    fn replace_until<T>(
        &self,
        standing: FoundDevice,
        whom: &[Principal<'_>],
        mut writes: Vec<Write>,
        keep_until: Option<Timestamp>,
        (applied, deleted): (T, T),
    ) -> Result<Step<T>> {
        let FoundDevice { key, device, version } = standing;
        let record = self.record(&device, keep_until.unwrap_or(Timestamp::ZERO))?;
        writes.insert(0, Write::Replace { key, expected: version, record });
        let started_at = Some(device.started_at()?);
        Step::write(writes, applied).unless_deleted_since(&self.scope, whom, started_at, deleted)
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

/// Device code that a user code points to. Counts of wrong guesses are kept beside the user codes, and point to nothing.
fn device_of(index: &Key, record: &Record) -> Option<Key> {
    let is_code = index.partition().first() == Some(&Part::from(USER_CODES));
    let digest = Digest::from_bytes(record.value.as_ref().try_into().ok()?);
    let key = Key::new(Kind::DeviceCode, &index.scope(), &[digest.part()], &[]);
    key.ok().filter(|_| is_code)
}
