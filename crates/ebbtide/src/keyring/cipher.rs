//! XChaCha20-Poly1305, as `ring` computes ChaCha20-Poly1305 under a key of each value's own.

use chacha20::{R20, hchacha};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce as ShortNonce, Tag, UnboundKey};
use zeroize::Zeroizing;

/// Nonce of a value: long enough to be random.
pub(super) type Nonce = [u8; 24];

/// Cipher of one value.
pub(super) struct Cipher {
    key: LessSafeKey,
    nonce: ShortNonce,
}

impl Cipher {
    /// The first 16 bytes of the nonce go into the key, the others into the nonce of the cipher below.
    pub(super) fn new(key: &[u8; 32], nonce: &Nonce) -> Self {
        let [first @ .., n0, n1, n2, n3, n4, n5, n6, n7] = *nonce;
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(hchacha::<R20>(key.into(), &first.into()).into());
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_slice()).expect("the cipher takes 32 bytes");
        let nonce = [0, 0, 0, 0, n0, n1, n2, n3, n4, n5, n6, n7];
        Self { key: LessSafeKey::new(key), nonce: ShortNonce::assume_unique_for_key(nonce) }
    }

    /// Seals `plain` in place, and returns its tag.
    pub(super) fn seal(self, associated: &[u8], plain: &mut [u8]) -> Tag {
        self.key
            .seal_in_place_separate_tag(self.nonce, Aad::from(associated), plain)
            .expect("what a record holds is far below the cipher's bound")
    }

    /// Opens what was sealed, with its tag behind it; none if it was not sealed so.
    pub(super) fn open(self, associated: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut plain = Zeroizing::new(sealed.to_vec());
        let length = self.key.open_in_place(self.nonce, Aad::from(associated), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the appendix of draft-irtf-cfrg-xchacha.
    #[test]
    fn a_value_is_sealed_as_the_draft_has_it() {
        let key: [u8; 32] = std::array::from_fn(|place| 0x80 + u8::try_from(place).unwrap());
        let nonce: Nonce = std::array::from_fn(|place| 0x40 + u8::try_from(place).unwrap());
        let associated = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7];
        let plain =
            b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                      sunscreen would be it.";
        let mut sealed = plain.to_vec();
        let tag = Cipher::new(&key, &nonce).seal(&associated, &mut sealed);
        assert_eq!(sealed[..8], [0xbd, 0x6d, 0x17, 0x9d, 0x3e, 0x83, 0xd4, 0x3b]);
        let expected =
            [0xc0, 0x87, 0x59, 0x24, 0xc1, 0xc7, 0x98, 0x79, 0x47, 0xde, 0xaf, 0xd8, 0x78, 0x0a, 0xcf, 0x49];
        assert_eq!(tag.as_ref(), expected);
        sealed.extend(tag.as_ref());
        let open = |sealed: &[u8]| Cipher::new(&key, &nonce).open(&associated, sealed);
        assert_eq!(open(&sealed).unwrap().as_slice(), plain);
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(open(&changed).is_none(), "byte {place}");
        }
        assert!(open(&sealed[..10]).is_none() && open(&[]).is_none());
    }
}
