//! Request ids, which correlate an answer with its log line.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use ebbtide::Rng;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of an id that a caller may give.
const MOST_BYTES: usize = 128;

/// Id of a request: the caller's if it is safe, else generated.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    pub(crate) fn of(headers: &HeaderMap, rng: &dyn Rng) -> Self {
        match headers.get(HEADER) {
            Some(given) if is_sane(given.as_bytes()) => Self(given.clone()),
            _ => Self::made(rng),
        }
    }

    pub(crate) fn made(rng: &dyn Rng) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(rng.bytes::<16>()) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(HeaderValue::from_bytes(&hex).expect("hexadecimal digits are good in a header"))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn into_header(self) -> HeaderValue {
        self.0
    }
}

/// Accepts no character that could break a log line or look like more than an id.
fn is_sane(id: &[u8]) -> bool {
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    (1..=MOST_BYTES).contains(&id.len()) && id.iter().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide::SeededRng;

    fn of(given: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(given) = given {
            headers.insert(HEADER, HeaderValue::from_str(given).unwrap());
        }
        RequestId::of(&headers, &SeededRng::new(1)).as_str().to_owned()
    }

    #[test]
    fn a_sane_name_is_kept_and_any_other_is_replaced() {
        assert_eq!(of(Some("01J:trace-7/a")), "01J:trace-7/a");
        let made = of(None);
        assert_eq!(made.len(), 32);
        let long = "x".repeat(MOST_BYTES + 1);
        for bad in ["", "a b", "a\"b", "a{b}", long.as_str()] {
            assert_eq!(of(Some(bad)), made, "{bad}");
        }
    }
}
