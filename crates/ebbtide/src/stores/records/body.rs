//! Bodies of the HTTP calls.

use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use super::request::{
    Acquire, Increment, PutRecord, RecordAddress, RecordCondition, RecordWrite, TouchRecord,
};
use super::types::{RecordId, RecordValue};
use crate::model::error::{Error, Result};
use crate::model::record::Version;
use crate::model::secret::Secret;
use crate::model::ttl::Ttl;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::life::with_life;

/// Condition on the live record: `"absent"`, `"present"` or `{"version": "…"}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordIf))]
pub enum ConditionBody {
    /// There is no live record.
    Absent,
    /// There is a live record.
    Present,
    /// The live record has this version.
    Version(String),
}

impl ConditionBody {
    fn read(condition: Option<Self>) -> Result<RecordCondition> {
        Ok(match condition {
            None => RecordCondition::Any,
            Some(Self::Absent) => RecordCondition::Absent,
            Some(Self::Present) => RecordCondition::Present,
            Some(Self::Version(version)) => RecordCondition::Version(version.parse()?),
        })
    }
}

with_life! {
    /// Record to write: exactly one of `id` and `id_base64`, and of `value` and `value_base64`, and at most one of the
    /// lifetimes.
    #[cfg_attr(feature = "schema", schema(as = RecordPut))]
    PutBody {
        #[cfg_attr(feature = "schema", schema(example = "sessions"))]
        collection: String,
        #[cfg_attr(feature = "schema", schema(example = "4b7e1c"))]
        id: Option<String>,
        /// Id in base64, for one that is not text.
        id_base64: Option<String>,
        /// Any JSON, null included.
        #[serde(default, deserialize_with = "present")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
        value: Option<Value>,
        /// Bytes in base64.
        value_base64: Option<String>,
        r#if: Option<ConditionBody>,
        /// Second keys, each unique in the collection.
        #[serde(default)]
        keys: Vec<String>,
        /// Group with which the record is revoked.
        group: Option<String>,
        /// Record that it belongs to, and is removed with. A later put without it ends that.
        belongs_to: Option<Parent>,
        /// Time for which the record can be read after its end.
        #[cfg_attr(feature = "schema", schema(minimum = 1))]
        retain_seconds: Option<i64>,
        /// Longest lifetime, from now on: neither reads nor touches reach further.
        #[serde(rename = "max_ttl_seconds")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
        max_ttl: Option<Ttl>,
        /// Lets each read renew the lifetime, up to `max_ttl_seconds`.
        #[serde(default)]
        sliding: bool,
    }
}

/// Deserializes a value that may be left out, where null is a value.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl TryFrom<PutBody> for PutRecord {
    type Error = Error;

    fn try_from(body: PutBody) -> Result<Self> {
        let life = body.life()?;
        let value = match (body.value, body.value_base64) {
            (Some(value), None) => RecordValue::from_json(&value),
            (None, Some(text)) => RecordValue::from_bytes(bytes_of("value_base64", &text)?),
            _ => return Err(Error::invalid("give exactly one of `value` and `value_base64`").about("value")),
        };
        let id = id_of(body.id, body.id_base64)?;
        let put = Self::new(body.collection, id, value).life(life).keys(body.keys);
        let mut put = put.only_if(ConditionBody::read(body.r#if)?);
        if let Some(group) = body.group {
            put = put.group(group);
        }
        put.belongs_to = body.belongs_to.map(Box::new);
        if let Some(seconds) = body.retain_seconds {
            let retain = Ttl::from_secs(seconds).map_err(|error| error.about("retain_seconds"))?;
            put = put.retain(retain);
        }
        (put.cap, put.slides) = (body.max_ttl, body.sliding);
        Ok(put)
    }
}

fn bytes_of(member: &'static str, text: &str) -> Result<Vec<u8>> {
    let decoded = Base64::decode_vec(text).or_else(|_| Base64UrlUnpadded::decode_vec(text));
    decoded.map_err(|_| Error::invalid(format!("`{member}` is not base64")).about(member))
}

/// Name of a record: its collection, and exactly one of `id`, `id_base64` and `key`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordName))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct AddressBody {
    #[cfg_attr(feature = "schema", schema(example = "sessions"))]
    pub collection: String,
    #[cfg_attr(feature = "schema", schema(example = "4b7e1c"))]
    pub id: Option<String>,
    /// Id in base64, for one that is not text.
    pub id_base64: Option<String>,
    /// One of the record's second keys.
    pub key: Option<String>,
}

impl TryFrom<AddressBody> for RecordAddress {
    type Error = Error;

    fn try_from(body: AddressBody) -> Result<Self> {
        address(body.collection, body.id, body.id_base64, body.key)
    }
}

fn address(
    collection: String,
    id: Option<String>,
    id_base64: Option<String>,
    key: Option<String>,
) -> Result<RecordAddress> {
    match (id, id_base64, key) {
        (Some(id), None, None) => Ok(RecordAddress::id(collection, id)),
        (None, Some(text), None) => Ok(RecordAddress::id(collection, bytes_of("id_base64", &text)?)),
        (None, None, Some(key)) => Ok(RecordAddress::key(collection, key)),
        _ => Err(Error::invalid("give exactly one of `id`, `id_base64` and `key`").about("id")),
    }
}

/// Id of a call that takes no second key.
fn id_of(id: Option<String>, id_base64: Option<String>) -> Result<RecordId> {
    match (id, id_base64) {
        (Some(id), None) => Ok(id.into()),
        (None, Some(text)) => Ok(bytes_of("id_base64", &text)?.into()),
        _ => Err(Error::invalid("give exactly one of `id` and `id_base64`").about("id")),
    }
}

/// Records to read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordNames))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct GetManyBody {
    pub items: Vec<AddressBody>,
}

with_life! {
    /// New end of a record, named by exactly one of `id`, `id_base64` and `key`.
    #[cfg_attr(feature = "schema", schema(as = RecordTouch))]
    TouchBody {
        #[cfg_attr(feature = "schema", schema(example = "sessions"))]
        collection: String,
        #[cfg_attr(feature = "schema", schema(example = "4b7e1c"))]
        id: Option<String>,
        /// Id in base64, for one that is not text.
        id_base64: Option<String>,
        /// One of the record's second keys.
        key: Option<String>,
    }
}

impl TryFrom<TouchBody> for TouchRecord {
    type Error = Error;

    fn try_from(body: TouchBody) -> Result<Self> {
        let life = body.life()?;
        Ok(Self::new(address(body.collection, body.id, body.id_base64, body.key)?, life))
    }
}

/// Record to delete, named by exactly one of `id`, `id_base64` and `key`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordDelete))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct DeleteBody {
    #[cfg_attr(feature = "schema", schema(example = "sessions"))]
    pub collection: String,
    #[cfg_attr(feature = "schema", schema(example = "4b7e1c"))]
    pub id: Option<String>,
    /// Id in base64, for one that is not text.
    pub id_base64: Option<String>,
    /// One of the record's second keys.
    pub key: Option<String>,
    pub r#if: Option<ConditionBody>,
}

impl TryFrom<DeleteBody> for (RecordAddress, RecordCondition) {
    type Error = Error;

    fn try_from(body: DeleteBody) -> Result<Self> {
        Ok((address(body.collection, body.id, body.id_base64, body.key)?, ConditionBody::read(body.r#if)?))
    }
}

with_life! {
    /// Addition to a counter. Its lifetime counts from its creation.
    #[cfg_attr(feature = "schema", schema(as = RecordIncrement))]
    IncrementBody {
        #[cfg_attr(feature = "schema", schema(example = "sign-ins"))]
        collection: String,
        #[cfg_attr(feature = "schema", schema(example = "203.0.113.7"))]
        id: Option<String>,
        /// Id in base64, for one that is not text.
        id_base64: Option<String>,
        /// Number to add; 1 by default.
        by: Option<i64>,
        /// Highest count that may be reached.
        limit: Option<i64>,
    }
}

impl TryFrom<IncrementBody> for Increment {
    type Error = Error;

    fn try_from(body: IncrementBody) -> Result<Self> {
        let life = body.life()?;
        let id = id_of(body.id, body.id_base64)?;
        let increment = Self::new(body.collection, id).by(body.by.unwrap_or(1)).life(life);
        Ok(match body.limit {
            Some(limit) => increment.limit(limit),
            None => increment,
        })
    }
}

with_life! {
    /// Lease to acquire; 30 seconds without a lifetime.
    #[cfg_attr(feature = "schema", schema(as = RecordAcquire))]
    AcquireBody {
        #[cfg_attr(feature = "schema", schema(example = "locks"))]
        collection: String,
        #[cfg_attr(feature = "schema", schema(example = "nightly-report"))]
        id: Option<String>,
        /// Id in base64, for one that is not text.
        id_base64: Option<String>,
    }
}

impl TryFrom<AcquireBody> for Acquire {
    type Error = Error;

    fn try_from(body: AcquireBody) -> Result<Self> {
        let life = body.life()?;
        Ok(Self::new(body.collection, id_of(body.id, body.id_base64)?, life))
    }
}

/// Lease to release.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordRelease))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct ReleaseBody {
    #[cfg_attr(feature = "schema", schema(example = "locks"))]
    pub collection: String,
    #[cfg_attr(feature = "schema", schema(example = "nightly-report"))]
    pub id: Option<String>,
    /// Id in base64, for one that is not text.
    pub id_base64: Option<String>,
    /// Answer of `acquire`.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "ebl_…"))]
    pub lease: Secret,
}

impl ReleaseBody {
    /// Id of the lease.
    pub fn record_id(&mut self) -> Result<RecordId> {
        id_of(self.id.take(), self.id_base64.take())
    }
}

/// Writes that are committed all or not at all.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordBatch))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct BatchBody {
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 100))]
    pub writes: Vec<WriteBody>,
}

/// One write of a batch.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordWrite))]
pub enum WriteBody {
    /// Writes a record.
    Put(Box<PutBody>),
    /// Deletes a record.
    Delete(ConditionedBody),
    /// Writes nothing, and refuses the batch unless the condition holds.
    Check(ConditionedBody),
}

/// Record of a batch with a condition: `if`, or `version` for short. A check without one is that the record is live.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordConditioned))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct ConditionedBody {
    #[cfg_attr(feature = "schema", schema(example = "sessions"))]
    pub collection: String,
    #[cfg_attr(feature = "schema", schema(example = "4b7e1c"))]
    pub id: Option<String>,
    /// Id in base64, for one that is not text.
    pub id_base64: Option<String>,
    pub r#if: Option<ConditionBody>,
    pub version: Option<String>,
}

impl ConditionedBody {
    fn condition(condition: Option<ConditionBody>, version: Option<&str>) -> Result<RecordCondition> {
        match (condition, version) {
            (condition, None) => ConditionBody::read(condition),
            (None, Some(version)) => Ok(RecordCondition::Version(version.parse::<Version>()?)),
            (Some(_), Some(_)) => Err(Error::invalid("give `if` or `version`, not both").about("if")),
        }
    }
}

impl TryFrom<WriteBody> for RecordWrite {
    type Error = Error;

    fn try_from(body: WriteBody) -> Result<Self> {
        Ok(match body {
            WriteBody::Put(put) => Self::Put((*put).try_into()?),
            WriteBody::Delete(ConditionedBody { collection, id, id_base64, r#if, version }) => {
                let id = id_of(id, id_base64)?;
                let condition = ConditionedBody::condition(r#if, version.as_deref())?;
                Self::Delete { collection, id, condition }
            }
            WriteBody::Check(ConditionedBody { collection, id, id_base64, r#if, version }) => {
                let id = id_of(id, id_base64)?;
                let condition = match ConditionedBody::condition(r#if, version.as_deref())? {
                    RecordCondition::Any => RecordCondition::Present,
                    condition => condition,
                };
                Self::Check { collection, id, condition }
            }
        })
    }
}

/// Group to revoke.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordGroupRevoke))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct GroupBody {
    #[cfg_attr(feature = "schema", schema(example = "oidc"))]
    pub collection: String,
    #[cfg_attr(feature = "schema", schema(example = "grant-1"))]
    pub group: String,
    /// Name that the caller acts for, in the audit log.
    #[serde(rename = "on_behalf_of", alias = "actor")]
    pub actor: Option<String>,
    pub reason: Option<String>,
}

/// Collection to list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = RecordList))]
#[allow(missing_docs, reason = "the members are those of the HTTP contract")]
pub struct ListBody {
    #[cfg_attr(feature = "schema", schema(example = "sessions"))]
    pub collection: String,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// 1 to 1,000 items; 100 by default.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}
