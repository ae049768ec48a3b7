//! Attributes as they are set, read and stored.

use std::fmt;
use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::lifetime::{Lifetime, lifetime_setters};
use crate::stores::shared::parents::ParentName;

/// Attribute to store: any JSON value, `false`, `0`, `""`, `[]`, `{}` and `null` included.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = AttributeSet))]
#[non_exhaustive]
pub struct Draft {
    /// Any JSON value, also `false` and `null`.
    pub data: Value,
    /// Time of the caller, in milliseconds since 1970. It is stored and returned, and has no effect.
    #[serde(default, deserialize_with = "millis")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub timestamp: Option<Timestamp>,
    /// Lifetime.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Longest lifetime, from now on: neither reads nor extensions reach further.
    #[serde(rename = "max_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    cap: Option<Ttl>,
    /// Lets each read renew the lifetime, up to `max_ttl_seconds`.
    #[serde(default, rename = "sliding")]
    slides: bool,
    /// Record that it belongs to, and is removed with.
    pub belongs_to: Option<Parent>,
}

fn millis<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Timestamp>, D::Error> {
    let millis: Option<u64> = Option::deserialize(from)?;
    millis.map(|millis| Timestamp::from_millis(millis).map_err(de::Error::custom)).transpose()
}

impl Draft {
    /// Longest value, in bytes of its JSON text without white space.
    pub const MAX_JSON_BYTES: usize = 256 * 1024;

    /// Deepest nesting: an array in an array has two levels.
    pub const MAX_DEPTH: usize = 64;

    /// Stores `data`, which does not expire unless the policy has a default.
    #[must_use]
    pub fn new(data: Value) -> Self {
        Self { data, timestamp: None, ttl: None, cap: None, slides: false, belongs_to: None }
    }

    /// Stores the value of a JSON text. Of a name that occurs twice in an object, the last one counts; a number that
    /// is no 64-bit integer is the nearest double.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map(Self::new).map_err(|error| {
            // The message of the parser may quote the text.
            let (line, column) = (error.line(), error.column());
            Error::invalid(format!("the data is not JSON, or nests too deep, at line {line} column {column}"))
                .about("data")
        })
    }

    /// Names the record that it belongs to, and is removed with.
    #[must_use]
    pub fn belongs_to(mut self, parent: Parent) -> Self {
        self.belongs_to = Some(parent);
        self
    }

    /// Sets the time of the caller.
    #[must_use]
    pub fn timestamp(mut self, timestamp: Timestamp) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    /// Sets the longest lifetime, and whether reads renew it up to there.
    #[must_use]
    pub fn renewal(mut self, cap: Option<Ttl>, slides: bool) -> Self {
        (self.cap, self.slides) = (cap, slides);
        self
    }

    lifetime_setters!();

    /// Refuses a value that is too deep or too long.
    pub(super) fn json(&self) -> Result<Vec<u8>> {
        if !is_within_depth(&self.data, Self::MAX_DEPTH) {
            return Err(Error::invalid(format!("the data nests at most {} levels deep", Self::MAX_DEPTH))
                .about("data"));
        }
        let json = serde_json::to_vec(&self.data).map_err(|error| {
            Error::invalid("the data cannot be written as JSON").about("data").caused_by(error)
        })?;
        if json.len() > Self::MAX_JSON_BYTES {
            return Err(Error::invalid(format!(
                "the data has at most {} bytes as JSON; this has {}",
                Self::MAX_JSON_BYTES,
                json.len()
            ))
            .about("data"));
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
    /// Without the data, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft(ttl {:?}, …)", self.ttl)
    }
}

/// Uses a list instead of recursion, so that no nesting exhausts the stack.
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

/// Version and expiry after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stamp {
    /// Version.
    pub version: Version,
    /// Time at which it expires.
    pub expires_at: Timestamp,
}

/// Attribute that was read.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Attribute {
    /// Name within the bucket.
    pub name: String,
    /// Value.
    pub data: Value,
    /// Time of the caller, where one was given.
    pub timestamp: Option<Timestamp>,
    /// Time at which it expires.
    pub expires_at: Timestamp,
    /// TTL that it began with; none without an end.
    pub ttl: Option<Duration>,
    /// Latest expiry that reads and extensions can give it, where there is a cap.
    pub cap_at: Option<Timestamp>,
    /// True if reads renew it.
    pub slides: bool,
    /// Version of the record.
    pub version: Version,
}

impl fmt::Debug for Attribute {
    /// Without the name and the data, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attribute({:?}, expires_at {}, …)", self.version, self.expires_at)
    }
}

#[derive(Encode, Decode)]
pub(crate) struct StoredAttribute {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    json: Vec<u8>,
    #[n(1)]
    timestamp: Option<u64>,
    #[n(2)]
    lifetime: Lifetime,
    /// Record that it belongs to; none if it was written by an earlier version, which has that in a link alone.
    #[n(3)]
    parent: Option<ParentName>,
}

impl StoredAttribute {
    pub(super) fn new(draft: &Draft, lifetime: Lifetime, parent: ParentName) -> Result<Self> {
        let timestamp = draft.timestamp.map(Timestamp::as_millis);
        Ok(Self { json: draft.json()?, timestamp, lifetime, parent: Some(parent) })
    }

    /// Record that it belongs to, as the value names it.
    pub(super) fn parent(&self) -> Option<&ParentName> {
        self.parent.as_ref()
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

    /// Value, time of the caller and lifetime, for an export.
    pub(crate) fn exported(record: &Record) -> Result<(Value, Option<u64>, Lifetime)> {
        let stored = Self::decode(record)?;
        let data = stored.attribute(String::new(), record)?.data;
        Ok((data, stored.timestamp, stored.lifetime))
    }

    pub(super) fn attribute(&self, name: String, record: &Record) -> Result<Attribute> {
        let data = serde_json::from_slice(&self.json)
            .map_err(|error| Error::corrupt("a stored attribute is not JSON").caused_by(error))?;
        Ok(Attribute {
            name,
            data,
            timestamp: self.timestamp.map(Timestamp::from_stored).transpose()?,
            expires_at: record.expires_at,
            ttl: self.lifetime.ttl(record.expires_at),
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
