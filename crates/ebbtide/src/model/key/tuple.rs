//! Escaped, type-tagged, order-preserving encoding of tuples.
//!
//! A part is its tag, its content and, for text and bytes, a zero terminator; a tuple ends with [`END`]. Content
//! holds no zero: a byte of 0 or 1 is written as 1 followed by that byte plus one. Hence no two tuples share an
//! encoding, encodings sort as the tuples do, and the encoding of whole parts is a prefix of exactly those tuples
//! that begin with these parts.

use std::borrow::Cow;

use crate::model::error::{Error, Result};

/// Ends a tuple. It is smaller than every tag, so a tuple sorts before the tuples that extend it.
pub(crate) const END: u8 = 0x00;

const TEXT: u8 = 0x02;
const BYTES: u8 = 0x03;
const INT: u8 = 0x04;
const ESCAPE: u8 = 0x01;

/// One component of a key's partition or sort tuple.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part<'a> {
    /// Text, not empty and without control characters.
    Text(Cow<'a, str>),
    /// Bytes, not empty.
    Bytes(Cow<'a, [u8]>),
    /// A number; numbers sort by size.
    Int(u64),
}

impl Part<'_> {
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Text(text) if text.is_empty() => Err(Error::invalid("a name in a key must not be empty")),
            Self::Text(text) if text.chars().any(char::is_control) => {
                Err(Error::invalid("a name in a key must not contain control characters"))
            }
            Self::Bytes(bytes) if bytes.is_empty() => Err(Error::invalid("bytes in a key must not be empty")),
            _ => Ok(()),
        }
    }

    /// Bytes of the encoding, if few of them are escaped.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + 2,
            // Of random bytes one in 128 is escaped.
            Self::Bytes(bytes) => bytes.len() + bytes.len() / 16 + 4,
            Self::Int(_) => 9,
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => encode_escaped(TEXT, text.as_bytes(), out),
            Self::Bytes(bytes) => encode_escaped(BYTES, bytes, out),
            Self::Int(number) => {
                out.push(INT);
                out.extend(number.to_be_bytes());
            }
        }
    }
}

impl<'a> From<&'a str> for Part<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a [u8]> for Part<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Part<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<u64> for Part<'_> {
    fn from(number: u64) -> Self {
        Self::Int(number)
    }
}

pub(crate) fn encode_escaped(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| *byte <= ESCAPE) {
        out.extend_from_slice(&rest[..at]);
        out.extend([ESCAPE, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(0);
}

pub(crate) fn encode_text(text: &str, out: &mut Vec<u8>) {
    encode_escaped(TEXT, text.as_bytes(), out);
}

/// Reader of an encoding, from the front.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or_else(malformed)?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads the parts up to and including the tuple's end.
    pub(crate) fn tuple(&mut self) -> Result<Vec<Part<'static>>> {
        let mut parts = Vec::new();
        loop {
            parts.push(match self.byte()? {
                END => return Ok(parts),
                TEXT => {
                    let text = String::from_utf8(self.escaped()?).map_err(|_| malformed())?;
                    Part::Text(Cow::Owned(text))
                }
                BYTES => Part::Bytes(Cow::Owned(self.escaped()?)),
                INT => {
                    let end = self.at + 8;
                    let bytes = self.bytes.get(self.at..end).ok_or_else(malformed)?;
                    self.at = end;
                    Part::Int(u64::from_be_bytes(bytes.try_into().map_err(|_| malformed())?))
                }
                _ => return Err(malformed()),
            });
        }
    }

    fn escaped(&mut self) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            match self.byte()? {
                0 => return Ok(content),
                ESCAPE => match self.byte()? {
                    escaped @ 1..=2 => content.push(escaped - 1),
                    _ => return Err(malformed()),
                },
                byte => content.push(byte),
            }
        }
    }
}

pub(crate) fn malformed() -> Error {
    Error::corrupt("stored key is malformed")
}
