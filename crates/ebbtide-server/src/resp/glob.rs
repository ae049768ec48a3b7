//! Patterns of `SCAN … MATCH`: `*`, `?`, `[abc]`, `[^a]`, `[a-c]`, and `\` in front of what is meant literally.

/// Returns true if `text` matches `pattern`. The time is bounded by the product of their lengths: a star is tried again
/// only from the last one, never from all of them.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, place));
            at += 1;
            continue;
        }
        if place == text.len() && at == pattern.len() {
            return true;
        }
        let step = text.get(place).and_then(|byte| one(&pattern[at..], *byte));
        if let Some(length) = step {
            at += length;
            place += 1;
            continue;
        }
        match star {
            Some((behind, from)) if from < text.len() => {
                star = Some((behind, from + 1));
                (at, place) = (behind, from + 1);
            }
            _ => return false,
        }
    }
}

/// Length of the pattern for one byte, if it matches.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => class(pattern, byte),
        literal => (literal == byte).then_some(1),
    }
}

fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(negated);
    let mut found = false;
    while let Some(&first) = pattern.get(at) {
        match first {
            b']' => {
                at += 1;
                break;
            }
            b'\\' if at + 1 < pattern.len() => {
                found |= pattern[at + 1] == byte;
                at += 2;
            }
            _ if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() => {
                let (low, high) = (first.min(pattern[at + 2]), first.max(pattern[at + 2]));
                found |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                found |= first == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("sess:*", "sess:1", true),
            ("sess:*", "ses:1", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            (r"h\*llo", "h*llo", true),
            (r"h\*llo", "hello", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*a*a*a*a*a*a*a*a*b", &"a".repeat(5_000), false),
            ("[abc", "a", true),
            (r"[\]]", "]", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
