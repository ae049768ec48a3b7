//! Binding of a code, and the check of a redemption against it.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::{CodeRequest, Redeem};
use crate::model::error::{Error, Result};
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::stores::Field;
use crate::timekeeping::Now;

/// Content of a code that is not redeemed yet, as it is stored.
#[derive(Debug, Encode, Decode)]
pub(super) struct Binding {
    #[n(0)]
    pub(super) client_id: String,
    #[n(1)]
    pub(super) subject: String,
    #[n(2)]
    redirect_uri: String,
    #[n(3)]
    challenge: Option<ByteArray<32>>,
    #[n(4)]
    pub(super) dpop_jkt: Option<String>,
    #[n(5)]
    pub(super) scope: Option<String>,
    /// Payload, sealed for the record of the code.
    #[cbor(n(6), with = "minicbor::bytes")]
    pub(super) data: Option<Vec<u8>>,
    #[n(7)]
    issued_at: u64,
}

impl Binding {
    pub(super) fn new(request: &CodeRequest, data: Option<Vec<u8>>, now: Now) -> Result<Self> {
        Ok(Self {
            client_id: request.client_id.clone(),
            subject: request.subject.clone(),
            redirect_uri: request.redirect_uri.clone(),
            challenge: request.code_challenge.as_deref().map(read_challenge).transpose()?.map(Into::into),
            dpop_jkt: request.dpop_jkt.clone(),
            scope: request.scope.clone(),
            data,
            issued_at: now.latest().as_millis(),
        })
    }

    pub(super) fn issued_at(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.issued_at)
    }

    /// Checks a redemption; the error is the first field that does not match.
    pub(super) fn check(&self, presented: &Redeem) -> Result<(), Field> {
        if presented.client_id != self.client_id {
            return Err(Field::ClientId);
        }
        if presented.redirect_uri != self.redirect_uri {
            return Err(Field::RedirectUri);
        }
        // A verifier for a code without a challenge is refused too: its challenge was stripped on the way
        // (RFC 9700 §4.8).
        match (&self.challenge, &presented.code_verifier) {
            (None, None) => {}
            (Some(challenge), Some(verifier)) if answers(verifier, challenge) => {}
            _ => return Err(Field::CodeVerifier),
        }
        // Most clients send the first proof with a code that is bound to no key (RFC 9449 §5): the grant is bound to
        // that key.
        match &self.dpop_jkt {
            Some(_) if presented.dpop_jkt != self.dpop_jkt => Err(Field::DpopJkt),
            _ => Ok(()),
        }
    }
}

/// Reads an S256 challenge: the digest of the verifier, in base64url.
fn read_challenge(text: &str) -> Result<[u8; 32]> {
    let mut digest = [0; 32];
    match Base64UrlUnpadded::decode(text, &mut digest) {
        Ok(decoded) if decoded.len() == 32 => Ok(digest),
        _ => Err(Error::invalid("a code challenge is that of S256: 43 characters of base64url")),
    }
}

/// Compares in constant time. A verifier that RFC 7636 does not allow matches no challenge.
fn answers(verifier: &Secret, challenge: &[u8; 32]) -> bool {
    let text = verifier.expose().as_bytes();
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let good = (43..=128).contains(&text.len()) && text.iter().all(allowed);
    let digest: [u8; 32] = Sha256::digest(text).into();
    good & bool::from(digest.ct_eq(challenge))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of RFC 7636, appendix B.
    #[test]
    fn a_verifier_answers_its_challenge() {
        let challenge = read_challenge("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap();
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert!(answers(&Secret::new(verifier), &challenge));
        for wrong in [&verifier[1..], &verifier.replace('d', "e"), "", &verifier.repeat(3)] {
            assert!(!answers(&Secret::new(wrong), &challenge), "{wrong}");
        }
    }

    #[test]
    fn a_verifier_has_the_length_and_the_letters_of_the_rfc() {
        for (verifier, good) in [
            ("a".repeat(42), false),
            ("a".repeat(43), true),
            ("~".repeat(128), true),
            ("a".repeat(129), false),
            ("a b".repeat(20), false),
        ] {
            let digest: [u8; 32] = Sha256::digest(verifier.as_bytes()).into();
            assert_eq!(answers(&Secret::new(verifier.clone()), &digest), good, "{verifier}");
        }
    }

    #[test]
    fn a_challenge_of_another_kind_is_invalid() {
        for bad in ["", "plain", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-c", &"A".repeat(44)] {
            assert!(read_challenge(bad).unwrap_err().message().contains("S256"), "{bad}");
        }
    }
}
