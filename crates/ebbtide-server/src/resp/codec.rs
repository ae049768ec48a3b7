//! Requests of a connection: arrays of bulk strings, or a line.
//!
//! The frames are decoded by `redis-protocol`. A scanner in front of it finds the end of a frame, and remembers how far
//! it has come: the decoder would begin anew with every packet, descend into nested arrays without a bound, and wait for
//! as many bytes as a length promises.

use bytes::{Buf as _, Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::types::BytesFrame;

use super::inline;

/// Bounds of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Most strings of a request.
    pub(super) strings: usize,
    /// Most bytes of a string.
    pub(super) string_bytes: usize,
    /// Most bytes of a request.
    pub(super) request_bytes: usize,
}

impl Bounds {
    /// Bounds before a key was presented: enough for `HELLO` and `AUTH`.
    pub(super) const UNAUTHENTICATED: Self =
        Self { strings: 16, string_bytes: 16_384, request_bytes: 65_536 };

    /// Bounds of requests of up to so many bytes.
    pub(super) fn of(request_bytes: usize) -> Self {
        Self { strings: 65_536, string_bytes: request_bytes, request_bytes }
    }
}

/// Longest line: an inline request, or a length.
const MAX_LINE_BYTES: usize = 16_384;

/// Malformed request. The connection is answered with it and closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) String);

fn error(message: &str) -> ProtocolError {
    ProtocolError(format!("ERR Protocol error: {message}"))
}

/// Decoder of the requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Bytes of the frame that were scanned.
    at: usize,
    /// Strings that are still to come; none before the head of the array was read.
    left: Option<usize>,
}

impl Decoder {
    /// Next request; none if it is not complete. An empty request asks for nothing.
    pub(super) fn next(
        &mut self,
        buffer: &mut BytesMut,
        bounds: Bounds,
    ) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        match buffer.first() {
            None => Ok(None),
            Some(b'*') => self.array(buffer, bounds),
            Some(_) => line(buffer),
        }
    }

    fn array(&mut self, buffer: &mut BytesMut, bounds: Bounds) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        let mut left = if let Some(left) = self.left {
            left
        } else {
            let Some((count, end)) = length(buffer, 1, "invalid multibulk length")? else {
                return Ok(None);
            };
            if count <= 0 {
                buffer.advance(end);
                return Ok(Some(Vec::new()));
            }
            self.at = end;
            usize::try_from(count)
                .ok()
                .filter(|count| *count <= bounds.strings)
                .ok_or_else(|| error("invalid multibulk length"))?
        };
        while left > 0 {
            self.left = Some(left);
            match buffer.get(self.at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => {
                    return Err(error(&format!(
                        "expected '$', got '{}'",
                        char::from(*other).escape_default()
                    )));
                }
            }
            let Some((bytes, start)) = length(buffer, self.at + 1, "invalid bulk length")? else {
                return Ok(None);
            };
            let bytes = usize::try_from(bytes)
                .ok()
                .filter(|bytes| *bytes <= bounds.string_bytes)
                .ok_or_else(|| error("invalid bulk length"))?;
            let end = start + bytes + 2;
            if end > bounds.request_bytes {
                return Err(error("too big request"));
            }
            if buffer.len() < end {
                // Room for the rest at once, but not before it is known to be within bounds.
                buffer.reserve(end - buffer.len());
                return Ok(None);
            }
            if buffer[end - 2..end] != *b"\r\n" {
                return Err(error("expected CRLF behind a bulk string"));
            }
            self.at = end;
            left -= 1;
        }
        *self = Self::default();
        decode(buffer).map(Some)
    }
}

/// Decodes a frame that the scanner found complete.
fn decode(buffer: &mut BytesMut) -> Result<Vec<Bytes>, ProtocolError> {
    let decoded = decode_bytes_mut(buffer).map_err(|_| error("invalid frame"))?;
    let Some((BytesFrame::Array(frames), _, _)) = decoded else { return Err(error("invalid frame")) };
    let string = |frame| match frame {
        BytesFrame::BulkString(bytes) => Ok(bytes),
        _ => Err(error("expected a bulk string")),
    };
    frames.into_iter().map(string).collect()
}

/// Length in the line from `start` on, and the position behind that line; none if the line is not complete.
fn length(buffer: &[u8], start: usize, wrong: &str) -> Result<Option<(i64, usize)>, ProtocolError> {
    const DIGITS: usize = 20;
    let rest = &buffer[start.min(buffer.len())..];
    let Some(end) = rest.iter().take(DIGITS + 2).position(|byte| *byte == b'\n') else {
        return if rest.len() > DIGITS + 1 { Err(error(wrong)) } else { Ok(None) };
    };
    let digits = rest[..end].strip_suffix(b"\r").ok_or_else(|| error(wrong))?;
    let number = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
    let number = number.and_then(|digits| digits.parse().ok()).ok_or_else(|| error(wrong))?;
    Ok(Some((number, start + end + 1)))
}

/// Request in a line, as people type them into `telnet` and health checks send them.
fn line(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
    let Some(end) = buffer.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n') else {
        return if buffer.len() >= MAX_LINE_BYTES { Err(error("too big inline request")) } else { Ok(None) };
    };
    let line = buffer.split_to(end + 1).freeze();
    let words = inline::words(&line).ok_or_else(|| error("unbalanced quotes in request"))?;
    // A browser that was talked into sending these would otherwise run the lines of its body.
    if let Some(first) = words.first()
        && (first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:"))
    {
        return Err(error("this is not HTTP"));
    }
    Ok(Some(words))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { strings: 100, string_bytes: 1_000, request_bytes: 5_000 };

    fn all(bytes: &[u8], step: usize) -> Result<Vec<Vec<Bytes>>, ProtocolError> {
        let (mut decoder, mut buffer, mut requests) = (Decoder::default(), BytesMut::new(), Vec::new());
        for part in bytes.chunks(step.max(1)) {
            buffer.extend_from_slice(part);
            while let Some(request) = decoder.next(&mut buffer, BOUNDS)? {
                requests.push(request);
            }
        }
        Ok(requests)
    }

    fn encoded(request: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
        for string in request {
            bytes.extend(format!("${}\r\n", string.len()).bytes());
            bytes.extend(string);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    #[test]
    fn malformed_requests_are_named() {
        for (bytes, message) in [
            ("*1000\r\n", "invalid multibulk length"),
            ("*x\r\n", "invalid multibulk length"),
            ("*+1\r\n", "invalid multibulk length"),
            ("*111111111111111111111111", "invalid multibulk length"),
            ("*1\r\n+OK\r\n", "expected '$', got '+'"),
            ("*1\r\n*1\r\n*1\r\n", "expected '$', got '*'"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$9999999\r\n", "invalid bulk length"),
            ("*1\r\n$1\r\nab\r\n", "expected CRLF"),
            ("POST / HTTP/1.1\r\n", "not HTTP"),
            ("SET a \"b\r\n", "unbalanced quotes"),
        ] {
            for step in [1, bytes.len()] {
                let error = all(bytes.as_bytes(), step).unwrap_err();
                assert!(
                    error.0.starts_with("ERR Protocol error: ") && error.0.contains(message),
                    "{error:?}"
                );
            }
        }
        let long = encoded(&vec![vec![b'x'; 900]; 6]);
        assert!(all(&long, 64).unwrap_err().0.contains("too big request"));
        assert!(all(&vec![b'x'; 20_000], 1_000).unwrap_err().0.contains("too big inline"));
    }

    #[test]
    fn lines_and_empty_requests_are_read() {
        let requests = all(b"PING\r\n*0\r\n*-1\r\n  SET a  b \n\r\n", 3).unwrap();
        let words: Vec<Vec<&[u8]>> =
            requests.iter().map(|request| request.iter().map(AsRef::as_ref).collect()).collect();
        assert_eq!(words, [vec![&b"PING"[..]], vec![], vec![], vec![b"SET", b"a", b"b"], vec![]]);
    }

    proptest! {
        #[test]
        fn requests_are_read_however_they_are_cut(
            requests in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
            step in 1_usize..60,
        ) {
            let bytes: Vec<u8> = requests.iter().flat_map(|request| encoded(request)).collect();
            let read = all(&bytes, step).unwrap();
            let read: Vec<Vec<Vec<u8>>> =
                read.iter().map(|request| request.iter().map(|string| string.to_vec()).collect()).collect();
            prop_assert_eq!(read, requests);
        }

        #[test]
        fn no_bytes_panic_and_the_answer_is_the_same_however_they_are_cut(
            bytes in prop::collection::vec(prop_oneof![
                Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'2'), Just(b'-'), any::<u8>(),
            ], 0..200),
            step in 1_usize..20,
        ) {
            prop_assert_eq!(all(&bytes, step), all(&bytes, 1));
        }

        #[test]
        fn a_damaged_request_does_not_panic(
            mut request in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6).prop_map(|it| encoded(&it)),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            for (at, byte) in damage {
                let at = at.index(request.len());
                request[at] = byte;
            }
            let _ = all(&request, 7);
        }
    }
}
