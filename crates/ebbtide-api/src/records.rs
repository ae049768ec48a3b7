//! Answers of `/v1/records`.

use base64ct::{Base64, Encoding as _};
use ebbtide::stores::records::{FoundRecord, ListedRecord, RecordId, RecordValue, WriteAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answers::millis;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordStored {
    pub version: String,
    pub expires_at: Option<u64>,
    /// False if it replaced a live record.
    pub created: bool,
}

/// Record with its value: `value` if it was written as JSON, else `value_base64`.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct RecordRead {
    /// Left out if the id is not text; then `id_base64` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    pub version: String,
    pub expires_at: Option<u64>,
    pub consumed_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Latest end that a touch or a read gives; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_at: Option<u64>,
    /// True if reads renew the lifetime.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sliding: bool,
}

impl TryFrom<FoundRecord> for RecordRead {
    type Error = ebbtide::Error;

    fn try_from(record: FoundRecord) -> Result<Self, Self::Error> {
        let (value, value_base64) = members(&record.value)?;
        let (id, id_base64) = names(&record.id);
        Ok(Self {
            id,
            id_base64,
            value,
            value_base64,
            version: record.version.to_string(),
            expires_at: millis(record.expires_at),
            consumed_at: record.consumed_at.and_then(millis),
            group: record.group,
            cap_at: record.cap_at.and_then(millis),
            sliding: record.slides,
        })
    }
}

/// Members `id` and `id_base64`, one of which is there.
fn names(id: &RecordId) -> (Option<String>, Option<String>) {
    match id.as_str() {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(Base64::encode_string(id.as_bytes()))),
    }
}

/// Members `value` and `value_base64`, one of which is there.
fn members(value: &RecordValue) -> Result<(Option<Value>, Option<String>), ebbtide::Error> {
    Ok(match value.to_json()? {
        Some(json) => (Some(json), None),
        None => (None, Some(Base64::encode_string(value.as_bytes()))),
    })
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct RecordsRead {
    /// In the order of the names; null for one that is not live.
    pub items: Vec<Option<RecordRead>>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordTouched {
    pub expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordDeleted {
    pub deleted: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordCounted {
    pub count: i64,
    pub expires_at: Option<u64>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct LeaseAcquired {
    /// Secret that releases the lease.
    pub lease: String,
    pub expires_at: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseReleased {
    pub released: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordsWritten {
    /// One answer for each write, in their order.
    pub items: Vec<RecordWritten>,
}

/// Answer to one write of a batch: a put has `version`, `expires_at` and `created`, a delete has `deleted`, and a check
/// has none.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RecordWritten {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
}

impl From<WriteAnswer> for RecordWritten {
    fn from(answer: WriteAnswer) -> Self {
        match answer {
            WriteAnswer::Stored { version, expires_at, created } => Self {
                version: Some(version.to_string()),
                expires_at: millis(expires_at),
                created: Some(created),
                deleted: None,
            },
            WriteAnswer::Deleted(deleted) => Self { deleted: Some(deleted), ..Self::default() },
            _ => Self::default(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GroupRevoked {
    pub revoked: bool,
    /// End of the time in which writes to the group are refused.
    pub expires_at: Option<u64>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct RecordListed {
    /// Left out if the id is not text; then `id_base64` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_base64: Option<String>,
    pub version: String,
    pub expires_at: Option<u64>,
    pub consumed_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl From<&ListedRecord> for RecordListed {
    fn from(record: &ListedRecord) -> Self {
        let (id, id_base64) = names(&record.id);
        Self {
            id,
            id_base64,
            version: record.version.to_string(),
            expires_at: millis(record.expires_at),
            consumed_at: record.consumed_at.and_then(millis),
            group: record.group.clone(),
        }
    }
}
