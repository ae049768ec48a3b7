//! User codes: what a person reads from one screen and types at another.

use zeroize::Zeroizing;

use crate::model::digest::Digest;
use crate::model::rng::Rng;
use crate::model::secret::Secret;

/// Consonants that are not taken for one another, and spell no words (RFC 8628 §6.1).
pub(super) const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Letters of a user code: 20⁸ codes, about 2³⁴.
const LETTERS: usize = 8;

/// User code: its letters as they are stored and compared.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct UserCode(Zeroizing<[u8; LETTERS]>);

impl UserCode {
    /// New code; each letter is as likely as any other.
    pub(super) fn mint(rng: &dyn Rng) -> Self {
        let mut letters = Zeroizing::new([0; LETTERS]);
        let mut filled = 0;
        while filled < LETTERS {
            let [byte] = rng.bytes::<1>();
            // 240 is the greatest multiple of 20 in a byte: a greater byte would favour the first letters.
            if byte < 240 {
                letters[filled] = ALPHABET[usize::from(byte) % ALPHABET.len()];
                filled += 1;
            }
        }
        Self(letters)
    }

    /// Reads typed text, in either case and with any dashes, dots and spaces; none if it is no user code.
    pub(super) fn read(typed: &str) -> Option<Self> {
        let mut letters = Zeroizing::new([0; LETTERS]);
        let mut filled = 0;
        for letter in
            typed.chars().filter(|c| !c.is_whitespace() && !matches!(c, '-' | '.' | '_' | '–' | '—'))
        {
            let letter = u8::try_from(letter.to_ascii_uppercase()).ok().filter(|b| ALPHABET.contains(b))?;
            *letters.get_mut(filled)? = letter;
            filled += 1;
        }
        (filled == LETTERS).then_some(Self(letters))
    }

    /// Text to show: `XXXX-XXXX`.
    pub(super) fn to_secret(&self) -> Secret {
        let (first, second) = self.0.split_at(LETTERS / 2);
        let text = |letters: &[u8]| letters.iter().map(|&letter| char::from(letter)).collect::<String>();
        Secret::new(format!("{}-{}", text(first), text(second)))
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::of("user code", &[self.0.as_slice()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rng::SeededRng;

    #[test]
    fn what_is_shown_is_read_however_it_is_typed() {
        let rng = SeededRng::new(1);
        for _ in 0..100 {
            let code = UserCode::mint(&rng);
            let shown = code.to_secret();
            let shown = shown.expose();
            assert_eq!((shown.len(), &shown[4..5]), (9, "-"));
            for typed in [
                shown.to_owned(),
                shown.to_lowercase(),
                shown.replace('-', ""),
                shown.replace('-', " "),
                format!(" {} ", shown.replace('-', " – ")),
            ] {
                assert!(UserCode::read(&typed) == Some(code.clone()), "{typed}");
            }
        }
    }

    #[test]
    fn what_is_no_user_code_is_none() {
        for typed in ["", "BCDF-GHJ", "BCDF-GHJKL", "BCDF-GHJA", "BCDF-GHJ0", "BCDF/GHJK", "ÄCDF-GHJK"] {
            assert!(UserCode::read(typed).is_none(), "{typed}");
        }
    }

    #[test]
    fn every_letter_is_as_likely_as_any_other() {
        let rng = SeededRng::new(2);
        let mut counts = [0_u32; 256];
        for _ in 0..10_000 {
            for letter in UserCode::mint(&rng).0.iter() {
                counts[usize::from(*letter)] += 1;
            }
        }
        for &letter in ALPHABET {
            let count = counts[usize::from(letter)];
            assert!((3_700..4_300).contains(&count), "{} came {count} times", char::from(letter));
        }
        assert_eq!(counts.iter().sum::<u32>(), 80_000);
    }
}
