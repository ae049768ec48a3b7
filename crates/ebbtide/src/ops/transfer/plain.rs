//! Lines of records from other systems: `collection`, `id` or `id_base64`, `value` or `value_base64`, and at most one of
//! `ttl_ms`, `ttl_seconds` and `expires_at`; without one, the policy of the collection holds.

use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use serde_json::{Map, Value};

use super::fields::{number, text, time};
use super::lines::ImportOutcome;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::ttl::Ttl;
use crate::stores::Stores;
use crate::stores::records::{PutOutcome, PutRecord, RecordAddress, RecordCondition, RecordId, RecordValue};
use crate::stores::shared::life::RecordTtl;

const MEMBERS: [&str; 10] = [
    "kind",
    "scope",
    "collection",
    "id",
    "id_base64",
    "value",
    "value_base64",
    "ttl_ms",
    "ttl_seconds",
    "expires_at",
];

/// Returns true if a line is one of these, and not one of an export.
pub(super) fn is_plain(kind: Kind, fields: &Map<String, Value>) -> bool {
    kind == Kind::Record && !fields.contains_key("mac")
}

/// Imports a line.
pub(super) async fn import(
    stores: &Stores,
    fields: &Map<String, Value>,
    scope: &Scope,
    dry_run: bool,
) -> Result<ImportOutcome> {
    if let Some(unknown) = fields.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(Error::invalid(format!("unknown member `{unknown}`")));
    }
    let (collection, records) = (text(fields, "collection")?, stores.records(scope));
    let id = match bytes(fields, "id_base64")? {
        Some(_) if fields.contains_key("id") => {
            return Err(Error::invalid("give one of `id` and `id_base64`"));
        }
        Some(id) => RecordId::from(id),
        None => RecordId::from(text(fields, "id")?),
    };
    let value = match (fields.get("value"), bytes(fields, "value_base64")?) {
        (Some(value), None) => RecordValue::from(value.clone()),
        (None, Some(bytes)) => RecordValue::from_bytes(bytes),
        _ => return Err(Error::invalid("give exactly one of `value` and `value_base64`")),
    };
    let now = stores.now()?;
    let ttl = number(fields, "ttl_ms")?.map(Duration::from_millis);
    let ttl = ttl.or(number(fields, "ttl_seconds")?.map(Duration::from_secs));
    let life = match (ttl, time(fields, "expires_at")?) {
        (Some(ttl), None) => RecordTtl::For(Ttl::new(ttl)?),
        (None, Some(end)) if !now.before(end)? => {
            return Ok(ImportOutcome::Skipped("it has expired".to_owned()));
        }
        (None, Some(end)) => RecordTtl::For(Ttl::new(end.since(now.latest()))?),
        (None, None) => RecordTtl::Default,
        (Some(_), Some(_)) => return Err(Error::invalid("give one of the TTL and `expires_at`")),
    };
    let there = || Ok(ImportOutcome::Skipped("it is there already".to_owned()));
    if dry_run {
        let found = records.get(&RecordAddress::id(&collection, id)).await?.found();
        return if found.is_some() { there() } else { Ok(ImportOutcome::Written(Kind::Record)) };
    }
    let put = PutRecord::new(collection, id, value).life(life).only_if(RecordCondition::Absent);
    match records.put(&put).await? {
        PutOutcome::Stored { .. } => Ok(ImportOutcome::Written(Kind::Record)),
        PutOutcome::Conflict => there(),
        _ => Ok(ImportOutcome::Skipped("it has expired".to_owned())),
    }
}

/// Bytes of a member in base64.
fn bytes(fields: &Map<String, Value>, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(member) = fields.get(name) else { return Ok(None) };
    let decoded = member.as_str().and_then(|text| Base64::decode_vec(text).ok());
    decoded.map(Some).ok_or_else(|| Error::invalid(format!("`{name}` is not base64")))
}
