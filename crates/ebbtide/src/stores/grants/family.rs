//! Family of refresh tokens as it is stored, and the verdict on a token of it. Pure: time and keys are
//! parameters.

use std::time::Duration;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::{GrantState, Why};
use crate::keyring::KeyId;
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::stores::Field;
use crate::timekeeping::Now;

/// Value of a grant's record; the record itself expires at the cap of the family. Every field that rotation changes
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
    pub(super) dpop_jkt: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) key: KeyId,
    pub(super) idle: Duration,
    pub(super) grace: Duration,
    pub(super) salt: [u8; 32],
}

/// Verdict on a token of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyVerdict {
    /// The token is the current one: advance.
    Advance,
    /// The token is the previous one, and its answer may be lost: give the same successor again.
    Retry,
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
            dpop_jkt: with.dpop_jkt,
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
        };
        family.slide(now, ends_at)?;
        Ok(family)
    }

    /// Judges a token of `generation`, presented by `client_id` with the key of `dpop_jkt`.
    pub(super) fn judge(
        &self,
        generation: u64,
        client_id: &str,
        dpop_jkt: Option<&str>,
        now: Now,
    ) -> Result<FamilyVerdict> {
        if let Err(field) = self.check_presenter(client_id, dpop_jkt) {
            return Ok(FamilyVerdict::Mismatch(field));
        }
        match self.state(now)? {
            GrantState::Revoked { at, why } => return Ok(FamilyVerdict::Revoked { at, why }),
            GrantState::Expired => return Ok(FamilyVerdict::Expired),
            GrantState::Active => {}
        }
        let present = self.generation();
        Ok(if generation == present {
            FamilyVerdict::Advance
        } else if generation > present {
            FamilyVerdict::Unknown
        } else if present - generation == 1 && self.can_retry(now)? {
            FamilyVerdict::Retry
        } else {
            FamilyVerdict::Reuse
        })
    }

    /// Checks the key: a bound family requires its key; any other accepts every key.
    fn check_presenter(&self, client_id: &str, dpop_jkt: Option<&str>) -> Result<(), Field> {
        if self.client_id != client_id {
            return Err(Field::ClientId);
        }
        match &self.dpop_jkt {
            Some(bound) if dpop_jkt != Some(bound) => Err(Field::DpopJkt),
            _ => Ok(()),
        }
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
        self.retry_until = now.end_after(Duration::from_millis(self.grace_millis))?.as_millis();
        self.seen = false;
        self.slide(now, ends_at)
    }

    /// Restarts the idle time, up to the cap.
    fn slide(&mut self, now: Now, ends_at: Timestamp) -> Result<()> {
        let idle_until = now.end_after(Duration::from_millis(self.idle_millis))?;
        self.idle_until = idle_until.min(ends_at).as_millis();
        Ok(())
    }

    /// Revokes the family, and removes everything that was sealed for it.
    pub(super) fn revoke(&mut self, why: Why, now: Now) {
        self.revoked = Some(Revoked { at: now.latest().as_millis(), why });
        self.data = None;
        self.salt = None;
    }

    /// State of the family; the cap is the expiry of its record.
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

    pub(super) fn key(&self) -> KeyId {
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads a stored time; an invalid one counts as past.
fn stored(millis: u64) -> Timestamp {
    Timestamp::from_stored(millis).unwrap_or(Timestamp::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::codec;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
    }

    fn now(millis: u64) -> Now {
        Now::exact(at(millis))
    }

    fn family() -> Family {
        let beginning = Beginning {
            subject: "ada".into(),
            client_id: "app".into(),
            dpop_jkt: None,
            scope: None,
            data: Some(b"sealed data".to_vec()),
            key: KeyId::from_bytes([1; 4]),
            idle: Duration::from_secs(100),
            grace: Duration::from_secs(10),
            salt: *b"a salt of exactly thirty-two byt",
        };
        Family::begin(beginning, now(0), at(1_000_000)).unwrap()
    }

    fn holds(family: &Family, text: &[u8]) -> bool {
        codec::encode(family).windows(text.len()).any(|window| window == text)
    }

    #[test]
    fn revoking_wipes_what_was_sealed_and_what_it_was_sealed_with() {
        let mut family = family();
        assert!(holds(&family, b"sealed data") && holds(&family, b"thirty-two"));
        family.revoke(Why::Requested, now(1));
        assert!(!holds(&family, b"sealed data") && !holds(&family, b"thirty-two"));
        assert_eq!(family.state(now(1)).unwrap(), GrantState::Revoked { at: at(1), why: Why::Requested });
        assert_eq!(
            family.state(now(200_000)).unwrap(),
            GrantState::Revoked { at: at(1), why: Why::Requested }
        );
    }

    #[test]
    fn a_generation_from_the_future_changes_nothing() {
        let mut family = family();
        assert_eq!(family.judge(1, "app", None, now(1)).unwrap(), FamilyVerdict::Unknown);
        assert_eq!(family.judge(u64::MAX, "app", None, now(1)).unwrap(), FamilyVerdict::Unknown);
        family.advance(KeyId::from_bytes([2; 4]), now(1), at(1_000_000)).unwrap();
        assert_eq!(family.judge(1, "app", None, now(1)).unwrap(), FamilyVerdict::Advance);
        assert_eq!(family.judge(0, "app", None, now(10_000)).unwrap(), FamilyVerdict::Retry);
        assert_eq!(family.judge(0, "app", None, now(10_001)).unwrap(), FamilyVerdict::Reuse);
    }

    #[test]
    fn a_first_token_proves_nothing_and_a_second_proves_once() {
        let mut family = family();
        assert!(!family.is_proved_by(0, now(1)).unwrap(), "there is no retry to close");
        family.advance(KeyId::from_bytes([1; 4]), now(1), at(1_000_000)).unwrap();
        assert!(!family.is_proved_by(0, now(2)).unwrap());
        assert!(family.is_proved_by(1, now(2)).unwrap());
        assert!(!family.is_proved_by(1, now(10_001)).unwrap(), "the window has closed by itself");
        family.prove_receipt();
        assert!(!family.is_proved_by(1, now(2)).unwrap());
        assert_eq!(family.judge(0, "app", None, now(2)).unwrap(), FamilyVerdict::Reuse);
    }
}
