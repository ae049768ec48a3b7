//! Binding of a code, and the check of a redemption against it.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use super::{CodeRequest, Redeem};
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::secret::Secret;
use crate::stores::Field;
use crate::stores::shared::confirmation::{Confirmation, Resources};
use crate::stores::shared::epochs::Stamp;
use crate::timekeeping::Now;

/// Content of a code that is not redeemed yet, as it is stored.
#[derive(Debug, Encode, Decode)]
pub(super) struct Binding {
    #[n(0)]
    pub(super) client_id: String,
    #[n(1)]
    pub(super) subject: String,
    /// Redirect URI; empty if the code has none.
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
    #[n(8)]
    x5t_s256: Option<String>,
    #[n(9)]
    pub(super) resource: Option<Resources>,
    #[n(10)]
    pub(super) profile: Option<String>,
    #[n(11)]
    stamp: Option<Stamp>,
    #[n(12)]
    pub(super) sid: Option<String>,
}

/// Digests of a redeemed code's binding: enough to tell a second redemption that fits from one by someone who has only
/// the code.
#[derive(Debug, Encode, Decode)]
pub(super) struct Marker {
    /// Client, PKCE challenge and key.
    #[n(0)]
    bound: ByteArray<32>,
    /// Redirect URI.
    #[n(1)]
    redirect_uri: ByteArray<32>,
    #[n(2)]
    has_challenge: bool,
    #[n(3)]
    binds: u8,
}

impl Binding {
    pub(super) fn new(request: &CodeRequest, data: Option<Vec<u8>>, stamp: Stamp, now: Now) -> Result<Self> {
        let cnf = request.key()?;
        Ok(Self {
            client_id: request.client_id.clone(),
            subject: request.subject.clone(),
            redirect_uri: request.redirect_uri.clone().unwrap_or_default(),
            challenge: request.code_challenge.as_deref().map(read_challenge).transpose()?.map(Into::into),
            dpop_jkt: cnf.jkt,
            scope: request.scope.clone(),
            data,
            issued_at: now.latest().as_millis(),
            x5t_s256: cnf.x5t_s256,
            resource: request.resource.clone(),
            profile: request.profile.clone(),
            stamp: Some(stamp),
            sid: request.sid.clone(),
        })
    }

    /// Epochs of its subject and its client.
    pub(super) fn stamp(&self) -> Stamp {
        self.stamp.unwrap_or_default()
    }

    /// Carries other epochs.
    pub(super) fn restamp(&mut self, stamp: Stamp) {
        self.stamp = Some(stamp);
    }

    fn cnf(&self) -> Confirmation {
        let mut cnf = Confirmation::default();
        (cnf.jkt, cnf.x5t_s256) = (self.dpop_jkt.clone(), self.x5t_s256.clone());
        cnf
    }

    /// Digests that are kept once the code is redeemed.
    pub(super) fn marker(&self) -> Marker {
        let cnf = self.cnf();
        let binds = u8::from(cnf.jkt.is_some()) | u8::from(cnf.x5t_s256.is_some()) << 1;
        let challenge = self.challenge.as_ref().map(|challenge| **challenge);
        Marker {
            bound: bound_digest(&self.client_id, challenge.as_ref(), &cnf).into(),
            redirect_uri: uri_digest(&self.redirect_uri).into(),
            has_challenge: challenge.is_some(),
            binds,
        }
    }

    /// Checks a redemption; the error is the first field that does not match.
    pub(super) fn check(&self, presented: &Redeem, cnf: &Confirmation) -> Result<(), Field> {
        if presented.client_id != self.client_id {
            return Err(Field::ClientId);
        }
        match &presented.redirect_uri {
            Some(uri) if *uri == self.redirect_uri => {}
            // The challenge binds the code to its client more strictly than the URI does (OAuth 2.1).
            None if self.challenge.is_some() || self.redirect_uri.is_empty() => {}
            _ => return Err(Field::RedirectUri),
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
        self.cnf().check(cnf)
    }
}

impl Marker {
    /// Returns whether everything that is presented fits the redeemed code.
    pub(super) fn fits(&self, presented: &Redeem, cnf: &Confirmation) -> bool {
        let uri_fits = match &presented.redirect_uri {
            Some(uri) => uri_digest(uri) == *self.redirect_uri,
            None => self.has_challenge || uri_digest("") == *self.redirect_uri,
        };
        let challenge = match (self.has_challenge, &presented.code_verifier) {
            (true, Some(verifier)) => Some(challenge_of(verifier)),
            (false, None) => None,
            _ => return false,
        };
        let mut bound = Confirmation::default();
        if self.binds & 1 != 0 {
            bound.jkt.clone_from(&cnf.jkt);
        }
        if self.binds & 2 != 0 {
            bound.x5t_s256.clone_from(&cnf.x5t_s256);
        }
        let digest = bound_digest(&presented.client_id, challenge.as_ref(), &bound);
        uri_fits & bool::from(digest.ct_eq(&*self.bound))
    }
}

fn bound_digest(client_id: &str, challenge: Option<&[u8; 32]>, cnf: &Confirmation) -> [u8; 32] {
    let optional = |text: Option<&String>| text.map_or(&b""[..], |text| text.as_bytes()).to_vec();
    let challenge = challenge.map_or(&b""[..], |challenge| challenge);
    let (jkt, x5t) = (optional(cnf.jkt.as_ref()), optional(cnf.x5t_s256.as_ref()));
    *Digest::of("code binding", &[client_id.as_bytes(), challenge, &jkt, &x5t]).as_bytes()
}

fn uri_digest(uri: &str) -> [u8; 32] {
    *Digest::of("code redirect uri", &[uri.as_bytes()]).as_bytes()
}

fn challenge_of(verifier: &Secret) -> [u8; 32] {
    Sha256::digest(verifier.expose().as_bytes()).into()
}

/// Reads an S256 challenge: the digest of the verifier, in base64url.
fn read_challenge(text: &str) -> Result<[u8; 32]> {
    let mut digest = [0; 32];
    match Base64UrlUnpadded::decode(text, &mut digest) {
        Ok(decoded) if decoded.len() == 32 => Ok(digest),
        _ => Err(Error::invalid("a code challenge is that of S256: 43 characters of base64url")
            .about("code_challenge")),
    }
}

/// Compares in constant time. A verifier that RFC 7636 does not allow matches no challenge.
fn answers(verifier: &Secret, challenge: &[u8; 32]) -> bool {
    let text = verifier.expose().as_bytes();
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let good = (43..=128).contains(&text.len()) && text.iter().all(allowed);
    good & bool::from(challenge_of(verifier).ct_eq(challenge))
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
