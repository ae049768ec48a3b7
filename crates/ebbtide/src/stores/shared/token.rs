//! Opaque secrets: a prefix that tells the kind, then 32 random bytes in base64url. They are stored as digests.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use zeroize::Zeroizing;

use crate::model::digest::Digest;
use crate::model::rng::Rng;
use crate::model::secret::Secret;

pub(crate) const CODE: &str = "ebc_";
pub(crate) const REFRESH: &str = "ebr_";
pub(crate) const ACCESS: &str = "eba_";
pub(crate) const NONCE: &str = "ebn_";
pub(crate) const API_KEY: &str = "ebk_";
pub(crate) const SESSION: &str = "ebs_";
pub(crate) const DEVICE: &str = "ebd_";
pub(crate) const CLIENT_SECRET: &str = "ebp_";
pub(crate) const CHALLENGE: &str = "ebh_";

/// Makes a new secret with `prefix`, and its digest.
pub(crate) fn mint(prefix: &str, parts: &[&[u8]], rng: &dyn Rng) -> (Secret, Digest) {
    let bytes = Zeroizing::new(rng.bytes::<32>());
    (write(prefix, bytes.as_slice()), digest(prefix, parts, bytes.as_slice()))
}

/// Digest of a secret; none if it has not the form of one with `prefix`, so that garbage does not reach the store.
pub(crate) fn read(prefix: &str, parts: &[&[u8]], secret: &Secret) -> Option<Digest> {
    let bytes = Zeroizing::new(decode::<32>(prefix, secret)?);
    Some(digest(prefix, parts, bytes.as_slice()))
}

/// Text of a token.
pub(crate) fn write(prefix: &str, bytes: &[u8]) -> Secret {
    let body = Zeroizing::new(Base64UrlUnpadded::encode_string(bytes));
    Secret::new(format!("{prefix}{}", body.as_str()))
}

/// Bytes of a token; none unless prefix, alphabet and length are exactly right. Each token has one text.
pub(crate) fn decode<const N: usize>(prefix: &str, secret: &Secret) -> Option<[u8; N]> {
    let body = secret.expose().strip_prefix(prefix)?;
    let mut bytes = [0; N];
    let decoded = Base64UrlUnpadded::decode(body, &mut bytes).ok()?.len();
    (decoded == N).then_some(bytes)
}

fn digest(prefix: &str, parts: &[&[u8]], bytes: &[u8]) -> Digest {
    Digest::of(prefix, &[parts, &[bytes]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    #[test]
    fn a_token_has_one_text() {
        let (secret, digest) = mint(CODE, &[], &SeededRng::new(1));
        assert_eq!(read(CODE, &[], &secret), Some(digest));
        assert_eq!(secret.expose().len(), CODE.len() + 43);
        let text = secret.expose();
        let last = text.chars().last().unwrap();
        // The last character carries four bits; texts that differ in the two others are not the token.
        let other_last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let same = other_last.chars().filter(|&c| {
            read(CODE, &[], &Secret::new(format!("{}{c}", &text[..text.len() - 1]))) == Some(digest)
        });
        assert_eq!(same.collect::<Vec<_>>(), [last]);
        for wrong in
            [format!("{text}="), format!("{text}A"), format!(" {text}"), text.replace("ebc_", "eba_")]
        {
            assert_eq!(read(CODE, &[], &Secret::new(wrong)), None);
        }
    }
}
