//! Replies, in both versions of the protocol.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};
use ebbtide::Error;
use redis_protocol::{resp2, resp3};

use crate::http::problem::Problem;

/// Version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp2,
    Resp3,
}

/// Reply to one command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Simple(&'static str),
    /// Code, a space, and the message.
    Error(Cow<'static, str>),
    Integer(i64),
    Bulk(Bytes),
    Nil,
    /// A missing array, which RESP2 tells from a missing string.
    NilArray,
    Array(Vec<Self>),
    /// Pairs: a map, or in RESP2 an array.
    Map(Vec<(Self, Self)>),
}

impl Reply {
    pub(super) const OK: Self = Self::Simple("OK");

    pub(super) fn error(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(message.into())
    }

    pub(super) fn bulk(text: impl Into<Bytes>) -> Self {
        Self::Bulk(text.into())
    }

    pub(super) fn optional(bytes: Option<Bytes>) -> Self {
        bytes.map_or(Self::Nil, Self::Bulk)
    }

    pub(super) fn boolean(yes: bool) -> Self {
        Self::Integer(i64::from(yes))
    }

    /// About how many bytes the reply takes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Bulk(bytes) => bytes.len() + 16,
            Self::Error(message) => message.len() + 3,
            Self::Array(items) => items.iter().map(Self::size).sum::<usize>() + 16,
            Self::Map(pairs) => {
                pairs.iter().map(|(name, value)| name.size() + value.size()).sum::<usize>() + 16
            }
            Self::Simple(_) | Self::Integer(_) | Self::Nil | Self::NilArray => 24,
        }
    }

    /// Appends the reply to `out`.
    pub(super) fn encode(&self, protocol: Protocol, out: &mut BytesMut) {
        match (self, protocol) {
            (Self::Array(items), _) => {
                head(out, b'*', items.len());
                for item in items {
                    item.encode(protocol, out);
                }
            }
            (Self::Map(pairs), _) => {
                match protocol {
                    Protocol::Resp2 => head(out, b'*', 2 * pairs.len()),
                    Protocol::Resp3 => head(out, b'%', pairs.len()),
                }
                for (name, value) in pairs {
                    name.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
            (Self::NilArray, Protocol::Resp2) => out.put_slice(b"*-1\r\n"),
            // Most replies: they need no frame.
            (Self::Simple(text), _) => {
                out.put_u8(b'+');
                out.put_slice(text.as_bytes());
                out.put_slice(b"\r\n");
            }
            (scalar, Protocol::Resp2) => {
                let encoded = resp2::encode::extend_encode(out, &scalar.resp2(), false);
                encoded.expect("the buffer was extended for the frame");
            }
            (scalar, Protocol::Resp3) => {
                let encoded = resp3::encode::complete::extend_encode(out, &scalar.resp3(), false);
                encoded.expect("the buffer was extended for the frame");
            }
        }
    }

    fn resp2(&self) -> resp2::types::BytesFrame {
        use resp2::types::BytesFrame as Frame;
        match self {
            Self::Simple(text) => Frame::SimpleString(Bytes::from_static(text.as_bytes())),
            Self::Error(message) => Frame::Error(line(message).into()),
            Self::Integer(number) => Frame::Integer(*number),
            Self::Bulk(bytes) => Frame::BulkString(bytes.clone()),
            Self::Nil | Self::NilArray | Self::Array(_) | Self::Map(_) => Frame::Null,
        }
    }

    fn resp3(&self) -> resp3::types::BytesFrame {
        use resp3::types::BytesFrame as Frame;
        let attributes = None;
        match self {
            Self::Simple(text) => {
                Frame::SimpleString { data: Bytes::from_static(text.as_bytes()), attributes }
            }
            Self::Error(message) => Frame::SimpleError { data: line(message).into(), attributes },
            Self::Integer(number) => Frame::Number { data: *number, attributes },
            Self::Bulk(bytes) => Frame::BlobString { data: bytes.clone(), attributes },
            Self::Nil | Self::NilArray | Self::Array(_) | Self::Map(_) => Frame::Null,
        }
    }
}

/// Head of an array or a map.
fn head(out: &mut BytesMut, kind: u8, length: usize) {
    out.put_u8(kind);
    out.put_slice(length.to_string().as_bytes());
    out.put_slice(b"\r\n");
}

/// Message on one line: a line break would end the frame.
fn line(message: &str) -> String {
    message.replace(['\r', '\n'], " ")
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Problem::from(error).into()
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        let code = match problem.kind() {
            "unavailable" => "UNAVAILABLE",
            "quota" => "OOM",
            "unauthorized" => "NOAUTH",
            "forbidden" => "NOPERM",
            _ => "ERR",
        };
        Self::error(format!("{code} {}", problem.detail()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.encode(protocol, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn replies_are_those_of_the_protocol() {
        let map = Reply::Map(vec![(Reply::bulk("proto"), Reply::Integer(3))]);
        let array = Reply::Array(vec![Reply::bulk("a"), Reply::Nil, Reply::OK, Reply::NilArray]);
        for (reply, two, three) in [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::error("ERR no\r\n*1"), "-ERR no  *1\r\n", "-ERR no  *1\r\n"),
            (Reply::Integer(-2), ":-2\r\n", ":-2\r\n"),
            (Reply::bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (Reply::NilArray, "*-1\r\n", "_\r\n"),
            (Reply::Array(vec![]), "*0\r\n", "*0\r\n"),
            (map, "*2\r\n$5\r\nproto\r\n:3\r\n", "%1\r\n$5\r\nproto\r\n:3\r\n"),
            (array, "*4\r\n$1\r\na\r\n$-1\r\n+OK\r\n*-1\r\n", "*4\r\n$1\r\na\r\n_\r\n+OK\r\n_\r\n"),
        ] {
            assert_eq!(encoded(&reply, Protocol::Resp2), two);
            assert_eq!(encoded(&reply, Protocol::Resp3), three);
            assert!(reply.size() >= two.len(), "{reply:?}");
        }
    }
}
