//! Challenges as they are stored, and their secrets.

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::types::{Challenge, ChallengeId, Form};
use crate::keyring::shared::SharedKeyring;
use crate::keyring::{KeyId, Keyring};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::rng::Rng;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::stores::challenges::Challenges;
use crate::stores::shared::payload::Payload;
use crate::stores::shared::token;
use crate::timekeeping::Now;

/// Purpose of the subkey that codes of six digits are authenticated with.
const MAC: &str = "challenge";

#[derive(Clone, Encode, Decode)]
pub(super) struct StoredChallenge {
    #[n(0)]
    pub(super) purpose: String,
    #[n(1)]
    pub(super) subject: String,
    #[n(2)]
    pub(super) form: Form,
    #[n(3)]
    pub(super) valid_until: u64,
    #[n(4)]
    pub(super) issued_at: u64,
    #[n(5)]
    pub(super) attempts_left: u32,
    #[n(6)]
    pub(super) state: ChallengeState,
    #[n(7)]
    pub(super) check: Check,
    /// Payload, sealed for this record; removed when the challenge ends.
    #[cbor(n(8), with = "minicbor::bytes")]
    pub(super) data: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(super) enum ChallengeState {
    #[n(0)]
    Open,
    #[n(1)]
    Used,
    /// Ended by a later challenge of the same purpose and subject.
    #[n(2)]
    Superseded,
}

/// Stored form of a secret.
#[derive(Clone, Encode, Decode)]
pub(super) enum Check {
    /// Digest of 256 random bits, which nobody can guess. The record itself is authenticated, so that nobody puts a digest
    /// of their own in its place.
    #[n(0)]
    Digest(#[n(0)] ByteArray<32>),
    /// MAC of six digits with a subkey of the ring: a digest alone would be found by trying a million of them.
    #[n(1)]
    Mac(#[n(0)] ByteArray<{ KeyId::BYTES }>, #[n(1)] ByteArray<32>),
}

impl StoredChallenge {
    pub(super) fn valid_until(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.valid_until)
    }

    pub(super) fn issued_at(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.issued_at)
    }

    /// Compares a presented secret in constant time. Returns `Unavailable` if the key of its MAC is not in the ring:
    /// that is no wrong secret.
    pub(super) fn matches(&self, keyring: &SharedKeyring, id: ChallengeId, secret: &Secret) -> Result<bool> {
        let secret = presented(self.form, secret);
        Ok(match &self.check {
            Check::Digest(digest) => secret_digest(&secret).as_bytes().ct_eq(&**digest).into(),
            Check::Mac(key_id, mac) => {
                let key_id = KeyId::from_bytes(**key_id);
                let keyring = keyring.with_key(key_id);
                let expected = keyring.mac(key_id, MAC, &[id.as_bytes(), &secret]).ok_or_else(|| {
                    Error::unavailable(format!(
                        "challenge is bound to key {key_id}, which is not in the keyring"
                    ))
                })?;
                expected.ct_eq(&**mac).into()
            }
        })
    }

    /// Returns whether the challenge could not be verified without the key `id`.
    pub(super) fn depends_on(&self, id: KeyId, now: Timestamp) -> bool {
        let mac = matches!(&self.check, Check::Mac(key, _) if KeyId::from_bytes(**key) == id);
        self.state == ChallengeState::Open && self.valid_until > now.as_millis() && mac
    }

    /// Challenge as its caller sees it.
    pub(super) fn seen(&self, id: ChallengeId, data: Option<Payload>) -> Result<Challenge> {
        Ok(Challenge {
            id,
            purpose: self.purpose.clone(),
            subject: self.subject.clone(),
            form: self.form,
            issued_at: self.issued_at()?,
            expires_at: self.valid_until()?,
            attempts_left: self.attempts_left,
            data,
        })
    }

    /// The same, ended by a later challenge.
    pub(super) fn superseded(self) -> Self {
        Self {
            attempts_left: 0,
            state: ChallengeState::Superseded,
            check: Check::Digest([0; 32].into()),
            data: None,
            ..self
        }
    }
}

/// Challenges of one purpose and subject, the latest last.
#[derive(Default, Encode, Decode)]
pub(super) struct Index {
    #[n(0)]
    pub(super) listed: Vec<Listed>,
}

#[derive(Clone, Encode, Decode)]
pub(super) struct Listed {
    #[n(0)]
    id: ByteArray<{ ChallengeId::BYTES }>,
    #[n(1)]
    valid_until: u64,
}

impl Listed {
    pub(super) fn new(id: ChallengeId, valid_until: Timestamp) -> Self {
        Self { id: (*id.as_bytes()).into(), valid_until: valid_until.as_millis() }
    }

    pub(super) fn id(&self) -> ChallengeId {
        ChallengeId::from_bytes(*self.id)
    }
}

impl Index {
    /// Adds the latest challenge. Returns those that it ends: all others, or the oldest beyond the limit.
    pub(super) fn add(&mut self, latest: Listed, invalidates: bool, now: Now) -> Result<Vec<Listed>> {
        let mut open = Vec::with_capacity(self.listed.len() + 1);
        for listed in self.listed.drain(..) {
            if now.before(Timestamp::from_stored(listed.valid_until)?)? {
                open.push(listed);
            }
        }
        let keep = if invalidates { 0 } else { Challenges::MAX_SIBLINGS - 1 };
        let ended = open.drain(..open.len().saturating_sub(keep)).collect();
        open.push(latest);
        self.listed = open;
        Ok(ended)
    }

    /// End of the challenge that lives longest.
    pub(super) fn valid_until(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.listed.iter().map(|listed| listed.valid_until).max().unwrap_or(0))
    }
}

/// Makes a secret of this form, and its id. The id of a token follows from it, so that the token alone finds its
/// challenge; six digits have an id of their own.
pub(super) fn mint(form: Form, purpose: &str, rng: &dyn Rng) -> (ChallengeId, Secret) {
    if form == Form::Digits6 {
        let secret = Secret::new(format!("{:06}", below_a_million(rng)));
        return (ChallengeId::from_bytes(rng.bytes()), secret);
    }
    let bytes = Zeroizing::new(rng.bytes::<32>());
    let prefix = if form == Form::Token { token::CHALLENGE } else { "" };
    (id_of_bytes(purpose, &bytes), token::write(prefix, bytes.as_slice()))
}

/// Uniform number below a million: numbers past the last whole million are drawn again.
fn below_a_million(rng: &dyn Rng) -> u32 {
    const MILLION: u32 = 1_000_000;
    loop {
        let number = u32::from_be_bytes(rng.bytes());
        if number < u32::MAX / MILLION * MILLION {
            return number % MILLION;
        }
    }
}

/// Stored form of a new secret.
pub(super) fn check(keyring: &Keyring, form: Form, id: ChallengeId, secret: &str) -> Check {
    if form == Form::Digits6 {
        let key_id = keyring.active();
        let mac = keyring.mac(key_id, MAC, &[id.as_bytes(), secret.as_bytes()]);
        return Check::Mac((*key_id.as_bytes()).into(), mac.expect("the active key is in the ring").into());
    }
    Check::Digest((*secret_digest(secret.as_bytes()).as_bytes()).into())
}

/// Id of the challenge with this secret; none for six digits and for what is no token.
pub(super) fn id_of(purpose: &str, secret: &Secret) -> Option<ChallengeId> {
    let bytes = token::decode::<32>(token::CHALLENGE, secret).or_else(|| token::decode::<32>("", secret))?;
    Some(id_of_bytes(purpose, &bytes))
}

fn id_of_bytes(purpose: &str, bytes: &[u8; 32]) -> ChallengeId {
    let digest = Digest::of("challenge-id", &[purpose.as_bytes(), bytes]);
    let (id, _) = digest.as_bytes().split_first_chunk().expect("a digest is longer than an id");
    ChallengeId::from_bytes(*id)
}

fn secret_digest(secret: &[u8]) -> Digest {
    Digest::of("challenge-secret", &[secret])
}

/// Returns true for digits alone, with the spaces and hyphens that people type between them.
pub(super) fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b' ' | b'-'))
}

/// Bytes of a presented secret. Six digits may be typed with spaces or a hyphen.
fn presented(form: Form, secret: &Secret) -> Zeroizing<Vec<u8>> {
    let bytes = secret.expose().bytes();
    Zeroizing::new(if form == Form::Digits6 {
        bytes.filter(|byte| !matches!(byte, b' ' | b'-')).collect()
    } else {
        bytes.collect()
    })
}

#[cfg(test)]
mod tests {
    use base64ct::{Base64UrlUnpadded, Encoding as _};

    use super::*;
    use crate::model::rng::SeededRng;

    #[test]
    fn a_token_finds_its_id_and_six_digits_do_not() {
        let rng = SeededRng::new(1);
        for form in [Form::Token, Form::Bytes32] {
            let (id, secret) = mint(form, "login", &rng);
            assert_eq!(id_of("login", &secret), Some(id));
            assert_ne!(id_of("reset", &secret), Some(id), "a purpose is part of it");
        }
        let (_, digits) = mint(Form::Digits6, "login", &rng);
        assert_eq!(id_of("login", &digits), None);
        assert!(digits.expose().len() == 6 && is_digits(digits.expose()));
        assert_eq!(
            Base64UrlUnpadded::decode_vec(mint(Form::Bytes32, "p", &rng).1.expose()).unwrap().len(),
            32
        );
    }

    #[test]
    fn six_digits_are_even() {
        let rng = SeededRng::new(7);
        let mut first = [0; 10];
        for _ in 0..10_000 {
            first[usize::from(mint(Form::Digits6, "p", &rng).1.expose().as_bytes()[0] - b'0')] += 1;
        }
        assert!(first.iter().all(|count| (850..1_150).contains(count)), "{first:?}");
    }
}
