//! What is set, what is read, and how it is stored.

use std::fmt;

use minicbor::{Decode, Encode};
use serde_json::Value;

use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::shared::lifetime::{Lifetime, LifetimeRequest};

/// What to store: any JSON value, `false`, `0`, `""`, `[]`, `{}` and `null` included.
#[derive(Clone)]
pub struct Draft {
    pub(super) data: Value,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) span: LifetimeRequest,
}

impl Draft {
    /// The largest value, in bytes of its JSON text without white space.
    pub const MAX_JSON_BYTES: usize = 256 * 1024;

    /// The deepest nesting: an array in an array has two levels.
    pub const MAX_DEPTH: usize = 64;

    /// That value, without an end unless the policy has a default for one.
    #[must_use]
    pub fn new(data: Value) -> Self {
        Self { data, timestamp: None, span: LifetimeRequest::default() }
    }

    /// The value with this JSON text. A name that comes twice in an object is taken from its last place; a number
    /// that is no 64-bit integer is the nearest double.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map(Self::new).map_err(|error| {
            // The parser's own words may repeat a part of the text.
            let (line, column) = (error.line(), error.column());
            Error::invalid(format!("the data is not JSON, or nests too deep, at line {line} column {column}"))
        })
    }

    /// With a time of the caller's own, which is kept and given back, and means nothing here.
    #[must_use]
    pub fn with_timestamp(mut self, timestamp: Timestamp) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// Ends after that long.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Ttl) -> Self {
        self.span.ttl = Some(ttl);
        self
    }

    /// Ends after that long at the latest: no extension carries it further.
    #[must_use]
    pub fn with_cap(mut self, cap: Ttl) -> Self {
        self.span.cap = Some(cap);
        self
    }

    /// Ends when it was not read for that long, or nine tenths of it (see [`Bucket::get`](super::Bucket::get)), and
    /// after `cap` at the latest.
    #[must_use]
    pub fn with_sliding_ttl(mut self, ttl: Ttl, cap: Ttl) -> Self {
        self.span = LifetimeRequest::sliding(ttl, cap);
        self
    }

    /// Refuses what is too deep or too large.
    pub(super) fn json(&self) -> Result<Vec<u8>> {
        if !is_within_depth(&self.data, Self::MAX_DEPTH) {
            return Err(Error::invalid(format!("the data nests at most {} levels deep", Self::MAX_DEPTH)));
        }
        let json = serde_json::to_vec(&self.data)
            .map_err(|error| Error::invalid("the data cannot be written as JSON").caused_by(error))?;
        if json.len() > Self::MAX_JSON_BYTES {
            return Err(Error::invalid(format!(
                "the data has at most {} bytes as JSON; this has {}",
                Self::MAX_JSON_BYTES,
                json.len()
            )));
        }
        Ok(json)
    }
}

impl From<Value> for Draft {
    fn from(data: Value) -> Self {
        Self::new(data)
    }
}

impl fmt::Debug for Draft {
    /// Without the data, which may hold what must not be printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft(ttl {:?}, …)", self.span.ttl)
    }
}

/// With a list of what is still to be seen instead of recursion, so that no nesting exhausts the stack.
fn is_within_depth(data: &Value, most: usize) -> bool {
    let mut unseen = vec![(data, 0)];
    while let Some((value, above)) = unseen.pop() {
        let depth = above + usize::from(value.is_array() || value.is_object());
        if depth > most {
            return false;
        }
        match value {
            Value::Array(items) => unseen.extend(items.iter().map(|item| (item, depth))),
            Value::Object(fields) => unseen.extend(fields.values().map(|item| (item, depth))),
            _ => {}
        }
    }
    true
}

/// What one writing left: the version to hand to the next, and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The version.
    pub version: Version,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// An attribute as it was read.
#[derive(Clone, PartialEq)]
pub struct Attribute {
    /// The name within the bucket.
    pub name: String,
    /// The value.
    pub data: Value,
    /// The caller's own time, where one was given.
    pub timestamp: Option<Timestamp>,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The latest end that reads and extensions can give it, where one was set.
    pub cap_at: Option<Timestamp>,
    /// Whether reads renew it.
    pub slides: bool,
    /// Which writing of it this is.
    pub version: Version,
}

impl fmt::Debug for Attribute {
    /// Without the name and the data, which may be what must not be printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attribute({:?}, expires_at {}, …)", self.version, self.expires_at)
    }
}

#[derive(Encode, Decode)]
pub(super) struct StoredAttribute {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    json: Vec<u8>,
    #[n(1)]
    timestamp: Option<u64>,
    #[n(2)]
    lifetime: Lifetime,
}

impl StoredAttribute {
    pub(super) fn new(draft: &Draft, lifetime: Lifetime) -> Result<Self> {
        Ok(Self { json: draft.json()?, timestamp: draft.timestamp.map(Timestamp::as_millis), lifetime })
    }

    pub(super) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    pub(super) fn decode(record: &Record) -> Result<Self> {
        codec::decode(&record.value)
    }

    pub(super) fn attribute(&self, name: String, record: &Record) -> Result<Attribute> {
        let data = serde_json::from_slice(&self.json)
            .map_err(|error| Error::corrupt("a stored attribute is not JSON").caused_by(error))?;
        Ok(Attribute {
            name,
            data,
            timestamp: self.timestamp.map(Timestamp::from_stored).transpose()?,
            expires_at: record.expires_at,
            cap_at: self.lifetime.cap_at()?,
            slides: self.lifetime.slides(),
            version: record.version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(0), |inner, _| json!([inner]))
    }

    #[test]
    fn bounds_are_named() {
        assert!(Draft::new(nested(64)).json().is_ok());
        let error = Draft::new(nested(65)).json().unwrap_err();
        assert!(error.message().contains("64"), "{error}");
        let text = "x".repeat(Draft::MAX_JSON_BYTES - 2);
        assert!(Draft::new(json!(text)).json().is_ok());
        let error = Draft::new(json!(text + "x")).json().unwrap_err();
        assert!(error.message().contains("262144"), "{error}");
    }

    #[test]
    fn a_deep_text_is_refused_and_does_not_exhaust_the_stack() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(Draft::from_json(&deep).unwrap_err().kind(), crate::ErrorKind::Invalid);
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let draft = Draft::from_json(&deep).unwrap();
        assert!(draft.json().is_err(), "deeper than what is stored, though it can be read");
    }

    #[test]
    fn an_error_does_not_repeat_the_data() {
        let error = Draft::from_json("{\"password\": hunter2}").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
        let draft = Draft::new(json!("hunter2"));
        assert!(!format!("{draft:?}").contains("hunter2"));
    }
}
