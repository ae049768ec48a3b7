//! Family of refresh tokens as it is stored, and the verdict on a token of it. Pure: time and keys are
//! parameters.

use std::time::Duration;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::windows::Windows;
use super::{GrantState, Why};
use crate::keyring::KeyId;
use crate::model::error::Result;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::stores::Field;
use crate::stores::shared::confirmation::{Confirmation, Resources};
use crate::stores::shared::epochs::{Parties, Stamp};
use crate::timekeeping::Now;

/// Time for which a family that was idle for too long is kept, so that its tokens are answered `Expired`.
const KEPT_AFTER_IDLE: Duration = Duration::from_secs(24 * 3_600);

/// Scopes of earlier tokens that a family remembers.
const MOST_SCOPES: usize = 4;

/// Value of a grant's record. A revoked family is kept until its cap; any other leaves a day after its idle end, when
/// nothing can come of it any more. Every field that rotation changes
/// has a fixed width, so that a family takes the same bytes however often it is rotated.
#[derive(Clone, Encode, Decode)]
pub(crate) struct Family {
    #[n(0)]
    pub(crate) subject: String,
    #[n(1)]
    pub(crate) client_id: String,
    #[n(2)]
    pub(crate) dpop_jkt: Option<String>,
    #[n(3)]
    pub(crate) scope: Option<String>,
    /// Payload, sealed for this record under the key of the current token.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub(crate) data: Option<Vec<u8>>,
    #[n(5)]
    generation: ByteArray<8>,
    /// Key that the current token is derived with.
    #[n(6)]
    key: ByteArray<{ KeyId::BYTES }>,
    #[n(7)]
    created_at: u64,
    #[n(8)]
    rotated_at: u64,
    #[n(9)]
    retry_until: u64,
    /// True once the holder of the current token has shown that the answer arrived.
    #[n(10)]
    seen: bool,
    #[n(11)]
    idle_millis: u64,
    #[n(12)]
    idle_until: u64,
    #[n(13)]
    grace_millis: u64,
    /// Secret that the provider tokens of this grant are sealed with, besides the keyring. A revocation removes it,
    /// and with it the means to read them.
    #[n(14)]
    pub(crate) salt: Option<ByteArray<32>>,
    #[n(15)]
    revoked: Option<Revoked>,
    /// Retry windows before the last one; none in a family of an earlier version that was not rotated since.
    #[n(16)]
    windows: Option<Windows>,
    /// True if every old token is a theft once the answer has arrived.
    #[n(17)]
    strict: Option<bool>,
    /// Thumbprint of the client certificate that the family is bound to.
    #[n(18)]
    x5t_s256: Option<String>,
    /// Resources that its access tokens are meant for.
    #[n(19)]
    pub(crate) resource: Option<Resources>,
    /// Lifetime of its access tokens, where a profile was named.
    #[n(20)]
    access_millis: Option<u64>,
    /// Epochs of its subject and its client.
    #[n(21)]
    stamp: Option<Stamp>,
    /// Session that it came from.
    #[n(22)]
    pub(crate) sid: Option<String>,
    /// Cap; none in a family of an earlier version, whose record expires at it.
    #[n(23)]
    ends_at: Option<u64>,
    /// Expiry of the record unless the family is revoked.
    #[n(24)]
    kept_until: Option<u64>,
    /// Scopes that it was moved from, the last one last. Tokens that were made there are valid.
    #[n(25)]
    moved_from: Option<Vec<String>>,
    /// Profile that was named for it.
    #[n(26)]
    pub(crate) profile: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct Revoked {
    #[n(0)]
    at: u64,
    #[n(1)]
    why: Why,
}

/// Initial content of a family.
pub(super) struct Beginning {
    pub(super) subject: String,
    pub(super) client_id: String,
    pub(super) cnf: Confirmation,
    pub(super) scope: Option<String>,
    pub(super) resource: Option<Resources>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) key: KeyId,
    pub(super) idle: Duration,
    pub(super) grace: Duration,
    pub(super) strict: bool,
    pub(super) access: Option<Duration>,
    pub(super) salt: [u8; 32],
    pub(super) stamp: Stamp,
    pub(super) sid: Option<String>,
    pub(super) profile: Option<String>,
}

/// Verdict on a token of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyVerdict {
    /// The token is the current one: advance.
    Advance,
    /// The token is the previous one, and its answer may be lost: give the same successor again.
    Retry,
    /// The token is an old one within its own window, or the family is rotated faster than its windows end: refuse.
    Raced,
    /// The token was used before: revoke the family.
    Reuse,
    /// The token belongs to another client or key.
    Mismatch(Field),
    /// The family was revoked.
    Revoked { at: Timestamp, why: Why },
    /// The family was idle for too long.
    Expired,
    /// The token is of a later generation than the store has: the store was restored from an older copy.
    Unknown,
}

impl Family {
    pub(super) fn begin(with: Beginning, now: Now, ends_at: Timestamp) -> Result<Self> {
        let mut family = Self {
            subject: with.subject,
            client_id: with.client_id,
            dpop_jkt: with.cnf.jkt,
            scope: with.scope,
            data: with.data,
            generation: [0; 8].into(),
            key: (*with.key.as_bytes()).into(),
            created_at: now.latest().as_millis(),
            rotated_at: now.latest().as_millis(),
            retry_until: now.latest().as_millis(),
            seen: false,
            idle_millis: millis(with.idle),
            idle_until: 0,
            grace_millis: millis(with.grace),
            salt: Some(with.salt.into()),
            revoked: None,
            windows: Some(Windows::none()),
            strict: Some(with.strict),
            x5t_s256: with.cnf.x5t_s256,
            resource: with.resource,
            access_millis: with.access.map(millis),
            stamp: Some(with.stamp),
            sid: with.sid,
            ends_at: Some(ends_at.as_millis()),
            kept_until: None,
            moved_from: None,
            profile: with.profile,
        };
        family.slide(now, ends_at)?;
        Ok(family)
    }

    /// Judges a token of `generation`, presented by `client_id` with the key `cnf`.
    pub(super) fn judge(
        &self,
        generation: u64,
        client_id: &str,
        cnf: &Confirmation,
        now: Now,
    ) -> Result<FamilyVerdict> {
        if let Err(field) = self.check_presenter(client_id, cnf) {
            return Ok(FamilyVerdict::Mismatch(field));
        }
        match self.state(now)? {
            GrantState::Revoked { at, why } => return Ok(FamilyVerdict::Revoked { at, why }),
            GrantState::Expired => return Ok(FamilyVerdict::Expired),
            GrantState::Active => {}
        }
        let present = self.generation();
        if generation > present {
            return Ok(FamilyVerdict::Unknown);
        }
        let Some(back) = (present - generation).checked_sub(1) else {
            // A window that is pushed out while it is open would turn a late tab into a thief.
            let oldest = self.windows().oldest(self.retry_until);
            return Ok(if is_open(oldest, now)? { FamilyVerdict::Raced } else { FamilyVerdict::Advance });
        };
        if back == 0 && self.can_retry(now)? {
            return Ok(FamilyVerdict::Retry);
        }
        let end = usize::try_from(back).ok().and_then(|back| self.windows().end(back, self.retry_until));
        let is_late = !self.strict.unwrap_or(false) && is_open(end, now)?;
        Ok(if is_late { FamilyVerdict::Raced } else { FamilyVerdict::Reuse })
    }

    fn windows(&self) -> Windows {
        self.windows.unwrap_or_else(Windows::none)
    }

    /// Checks the key: a bound family requires its key; any other accepts every key.
    fn check_presenter(&self, client_id: &str, cnf: &Confirmation) -> Result<(), Field> {
        if self.client_id != client_id {
            return Err(Field::ClientId);
        }
        self.cnf().check(cnf)
    }

    /// Key that the family is bound to.
    pub(crate) fn cnf(&self) -> Confirmation {
        let mut cnf = Confirmation::default();
        (cnf.jkt, cnf.x5t_s256) = (self.dpop_jkt.clone(), self.x5t_s256.clone());
        cnf
    }

    /// Epochs of its subject and its client.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp.unwrap_or_default()
    }

    /// Scopes that it was moved from.
    pub(super) fn moved_from(&self) -> &[String] {
        self.moved_from.as_deref().unwrap_or_default()
    }

    /// Notes the scope that it moves from, with the epochs of the one that it moves to.
    pub(super) fn moved(&mut self, from: &Scope, stamp: Stamp) {
        self.stamp = Some(stamp);
        let (from, scopes) = (from.to_string(), self.moved_from.get_or_insert_default());
        scopes.retain(|scope| *scope != from);
        scopes.push(from);
        scopes.drain(..scopes.len().saturating_sub(MOST_SCOPES));
    }

    /// Subject, client and session of the family.
    pub(crate) fn parties(&self) -> Parties<'_> {
        Parties::new(&self.subject, &self.client_id).session(self.sid.as_deref())
    }

    /// Lifetime of its access tokens, where a profile was named.
    pub(crate) fn access(&self) -> Option<Duration> {
        self.access_millis.map(Duration::from_millis)
    }

    fn can_retry(&self, now: Now) -> Result<bool> {
        Ok(!self.seen && now.before(stored(self.retry_until))?)
    }

    /// True if an access token of `generation`, in use at `now`, is the first proof that the answer to the rotation
    /// arrived, while a retry would still be allowed.
    pub(super) fn is_proved_by(&self, generation: u64, now: Now) -> Result<bool> {
        Ok(generation > 0 && generation == self.generation() && self.can_retry(now)?)
    }

    /// Closes the retry window of the current generation.
    pub(super) fn prove_receipt(&mut self) {
        self.seen = true;
    }

    /// Advances to the next generation, whose token is derived with `key`.
    pub(super) fn advance(&mut self, key: KeyId, now: Now, ends_at: Timestamp) -> Result<()> {
        let next = self.generation().checked_add(1).expect("no family is rotated 2^64 times");
        self.generation = next.to_be_bytes().into();
        self.key = (*key.as_bytes()).into();
        self.rotated_at = now.latest().as_millis();
        let ends = now.end_after(Duration::from_millis(self.grace_millis))?.as_millis();
        // Nodes' clocks differ a little: a window never ends before an earlier one.
        let ends = ends.max(self.retry_until);
        let mut windows = self.windows();
        windows.push(self.retry_until, ends);
        (self.windows, self.retry_until) = (Some(windows), ends);
        self.seen = false;
        self.slide(now, ends_at)
    }

    /// Restarts the idle time, up to the cap.
    fn slide(&mut self, now: Now, ends_at: Timestamp) -> Result<()> {
        let idle_until = now.end_after(Duration::from_millis(self.idle_millis))?;
        self.idle_until = idle_until.min(ends_at).as_millis();
        let kept_until = now.end_after(Duration::from_millis(self.idle_millis) + KEPT_AFTER_IDLE)?;
        self.kept_until = Some(kept_until.min(ends_at).as_millis());
        Ok(())
    }

    /// Cap of a family whose record expires at `expires_at`.
    pub(super) fn ends_at(&self, expires_at: Timestamp) -> Timestamp {
        self.ends_at.map_or(expires_at, stored)
    }

    /// Expiry of the record of a family with that cap.
    pub(super) fn expires_at(&self, ends_at: Timestamp) -> Timestamp {
        match (self.revoked, self.kept_until) {
            (None, Some(kept_until)) => stored(kept_until),
            _ => ends_at,
        }
    }

    /// Revokes the family, and removes everything that was sealed for it.
    pub(super) fn revoke(&mut self, why: Why, now: Now) {
        self.revoked = Some(Revoked { at: now.latest().as_millis(), why });
        self.data = None;
        self.salt = None;
    }

    /// Ends the family as it was read, for a reason that stands outside of it.
    pub(super) fn end(&mut self, why: Why, at: Timestamp) {
        if self.revoked.is_none() {
            self.revoked = Some(Revoked { at: at.as_millis(), why });
            self.data = None;
            self.salt = None;
        }
    }

    /// State of the family until its cap.
    pub(crate) fn state(&self, now: Now) -> Result<GrantState> {
        Ok(match self.revoked {
            Some(Revoked { at, why }) => GrantState::Revoked { at: stored(at), why },
            None if now.before(self.idle_until())? => GrantState::Active,
            None => GrantState::Expired,
        })
    }

    pub(crate) fn generation(&self) -> u64 {
        u64::from_be_bytes(*self.generation)
    }

    pub(crate) fn key(&self) -> KeyId {
        KeyId::from_bytes(*self.key)
    }

    pub(super) fn created_at(&self) -> Timestamp {
        stored(self.created_at)
    }

    pub(super) fn rotated_at(&self) -> Timestamp {
        stored(self.rotated_at)
    }

    pub(super) fn idle_until(&self) -> Timestamp {
        stored(self.idle_until)
    }
}

/// Returns whether a window with this end is open.
fn is_open(end: Option<u64>, now: Now) -> Result<bool> {
    end.map_or(Ok(false), |end| now.before(stored(end)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a stored time; an invalid one counts as past.
fn stored(millis: u64) -> Timestamp {
    Timestamp::from_stored(millis).unwrap_or(Timestamp::ZERO)
}

#[cfg(test)]
mod tests;
