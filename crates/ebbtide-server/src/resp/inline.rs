//! Words of an inline request, with the quotes that Redis knows.

use bytes::Bytes;

/// Words of a line; none if a quote is not closed, or something follows it without a space.
pub(super) fn words(line: &Bytes) -> Option<Vec<Bytes>> {
    if !line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        let words = line.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
        return Some(words.map(|word| line.slice_ref(word)).collect());
    }
    let (mut words, mut rest) = (Vec::new(), line.as_ref());
    loop {
        while let [first, behind @ ..] = rest
            && is_space(*first)
        {
            rest = behind;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, behind) = word(rest)?;
        words.push(word.into());
        rest = behind;
    }
}

/// First word of a line that begins with one, and what is behind it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [first, ..] if is_space(*first) => return Some((word, rest)),
            [quote @ (b'"' | b'\''), behind @ ..] => {
                rest = quoted(*quote, behind, &mut word)?;
                return rest.first().is_none_or(|next| is_space(*next)).then_some((word, rest));
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

/// Reads up to the closing quote. Double quotes know escapes; single ones only that of the quote.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [first, behind @ ..] if *first == quote => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
                (digit(*high)? * 16 + digit(*low)?, behind)
            }
            [b'\\', escaped, behind @ ..] if quote == b'"' => (unescaped(*escaped), behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_are_those_of_redis() {
        let read = |line: &'static str| {
            let words = words(&Bytes::from_static(line.as_bytes()))?;
            Some(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>())
        };
        for (line, expected) in [
            ("  SET a  b \r\n", vec![&b"SET"[..], b"a", b"b"]),
            ("SET k \"hello world\"\r\n", vec![b"SET", b"k", b"hello world"]),
            ("SET k 'it\\'s' \"\"\n", vec![b"SET", b"k", b"it's", b""]),
            (r#"e "\x41\n\"\xzz\\" 'a\nb'"#, vec![b"e", b"A\n\"xzz\\", b"a\\nb"]),
            ("a\"b c\" d", vec![b"ab c", b"d"]),
        ] {
            let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
            assert_eq!(read(line), Some(expected), "{line:?}");
        }
        for line in ["SET \"a", "SET 'a", "\"a\"b", "'a'b", "\"a\\"] {
            assert_eq!(read(line), None, "{line:?}");
        }
    }
}
