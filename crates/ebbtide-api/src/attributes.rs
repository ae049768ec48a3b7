//! Attributes.

use std::collections::BTreeMap;

use ebbtide::Ttl;
use ebbtide::stores::attributes::{Attribute, Stamp, Usage};
use ebbtide::stores::shared::belongings::Parent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::{Listed, extension_body, millis, seconds};

/// Live attributes of a bucket.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BucketUsage {
    pub bucket: String,
    pub count: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Live attributes by bucket.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageAnswer {
    pub buckets: Vec<BucketUsage>,
    pub count: u64,
    pub bytes: u64,
}

impl From<BTreeMap<String, Usage>> for UsageAnswer {
    fn from(usage: BTreeMap<String, Usage>) -> Self {
        let (count, bytes) =
            usage.values().fold((0, 0), |(count, bytes), of| (count + of.count, bytes + of.bytes));
        let of = |(bucket, of): (String, Usage)| BucketUsage { bucket, count: of.count, bytes: of.bytes };
        Self { buckets: usage.into_iter().map(of).collect(), count, bytes }
    }
}

/// Names of buckets, or their counts and bytes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BucketsAnswer {
    Usage(UsageAnswer),
    Page(Listed<String>),
}

/// Change of an attribute by its value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeSwap {
    /// Present value.
    pub old: Value,
    pub new: Value,
    /// Without it, the lifetime stays as it is.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub ttl: Option<Ttl>,
}

/// Names of an attribute.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeName {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    #[schema(min_length = 1, example = "settings")]
    pub bucket: String,
    #[schema(min_length = 1, example = "theme")]
    pub name: String,
}

/// Condition on the present version: `"absent"`, `"present"` or `{"version": "…"}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttributeIf {
    Absent,
    Present,
    Version(String),
}

/// Attribute to set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributePut {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    #[schema(min_length = 1, example = "settings")]
    pub bucket: String,
    #[schema(min_length = 1, example = "theme")]
    pub name: String,
    /// Any JSON value, also `false` and `null`.
    pub data: Value,
    /// Time of the caller, in milliseconds since 1970. It is stored and returned, and has no effect.
    pub timestamp: Option<u64>,
    /// Lifetime.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub ttl: Option<Ttl>,
    /// Longest lifetime, from now on: neither reads nor extensions reach further.
    #[serde(rename = "max_ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub max_ttl: Option<Ttl>,
    /// Lets each read renew the lifetime, up to `max_ttl_seconds`.
    #[serde(default)]
    pub sliding: bool,
    /// Record that it belongs to, and is removed with.
    pub belongs_to: Option<Parent>,
    #[serde(rename = "if")]
    pub condition: Option<AttributeIf>,
}

/// Attribute whose version is required.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeCheck {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    #[schema(min_length = 1, example = "settings")]
    pub bucket: String,
    #[schema(min_length = 1, example = "theme")]
    pub name: String,
    /// `version` of an earlier answer.
    pub version: String,
}

/// One of several changes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttributeWrite {
    /// Stores a value; `if` is `"absent"` or a version.
    Set(AttributePut),
    /// Deletes an attribute; `if` is a version.
    Delete(AttributeDelete),
    /// Requires a version, and changes nothing.
    Check(AttributeCheck),
}

/// Changes that are made together or not at all: to distinct attributes, up to 90.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeWrites {
    #[schema(min_items = 1, max_items = 90)]
    pub writes: Vec<AttributeWrite>,
}

/// Versions and ends after changes, in the order of the request; null for one that stores no value.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AttributesWritten {
    pub items: Vec<Option<AttributeStamp>>,
}

extension_body! {
    /// Extension of a named attribute.
    AttributeExtendNamed {
        #[schema(min_length = 1, example = "alice")]
        pub owner: String,
        #[schema(min_length = 1, example = "settings")]
        pub bucket: String,
        #[schema(min_length = 1, example = "theme")]
        pub name: String,
    }
}

/// Attribute to delete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeDelete {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    #[schema(min_length = 1, example = "settings")]
    pub bucket: String,
    #[schema(min_length = 1, example = "theme")]
    pub name: String,
    #[serde(rename = "if")]
    pub condition: Option<AttributeIf>,
}

/// Change of a named attribute by its value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeSwapNamed {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    #[schema(min_length = 1, example = "settings")]
    pub bucket: String,
    #[schema(min_length = 1, example = "theme")]
    pub name: String,
    /// Present value.
    pub old: Value,
    pub new: Value,
    /// Without it, the lifetime stays as it is.
    #[serde(rename = "ttl_seconds")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub ttl: Option<Ttl>,
}

/// Bucket to list.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeList {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    #[schema(min_length = 1, example = "settings")]
    pub bucket: String,
    /// 1 to 1,000 items; 100 by default.
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[schema(pattern = "^[A-Za-z0-9_-]+$")]
    pub after: Option<String>,
}

/// Owner whose buckets are listed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeBuckets {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    /// 1 to 1,000 items; 100 by default.
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// `next` of the previous page.
    #[schema(pattern = "^[A-Za-z0-9_-]+$")]
    pub after: Option<String>,
}

/// Owner whose attributes are deleted, all or those of a bucket.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeDeleteAll {
    #[schema(min_length = 1, example = "alice")]
    pub owner: String,
    /// Without it, every bucket.
    pub bucket: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AttributeAnswer {
    pub name: String,
    /// Any JSON value.
    pub data: Value,
    pub timestamp: Option<u64>,
    pub expires_at: Option<u64>,
    /// Lifetime that it began with; null without an end.
    pub ttl_seconds: Option<u64>,
    /// Latest expiry that reads and extensions can give it.
    pub cap_at: Option<u64>,
    /// True if each read renews it.
    pub sliding: bool,
    pub version: String,
}

impl From<&Attribute> for AttributeAnswer {
    fn from(attribute: &Attribute) -> Self {
        Self {
            name: attribute.name.clone(),
            data: attribute.data.clone(),
            timestamp: attribute.timestamp.and_then(millis),
            expires_at: millis(attribute.expires_at),
            ttl_seconds: attribute.ttl.map(seconds),
            cap_at: attribute.cap_at.and_then(millis),
            sliding: attribute.slides,
            version: attribute.version.to_string(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AttributeStamp {
    pub version: String,
    pub expires_at: Option<u64>,
}

impl From<Stamp> for AttributeStamp {
    fn from(stamp: Stamp) -> Self {
        Self { version: stamp.version.to_string(), expires_at: millis(stamp.expires_at) }
    }
}
