//! Members of a line.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::stores::relationships::RelationType;
use crate::stores::shared::belongings::Parent;

/// Smaller numbers are seconds: as milliseconds they would be before March 1973, and as seconds this is the year
/// 5138.
const MILLIS_FROM: u64 = 100_000_000_000;

pub(super) fn text(fields: &Map<String, Value>, name: &str) -> Result<String> {
    let text = fields.get(name).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| Error::invalid(format!("missing text field {name}")))
}

pub(super) fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| Error::invalid(format!("{name} is not a whole number")))
        }
    }
}

pub(super) fn time(fields: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>> {
    let millis = |time: u64| if time < MILLIS_FROM { time * 1_000 } else { time };
    number(fields, name)?.map(|time| Timestamp::from_millis(millis(time))).transpose()
}

pub(super) fn metadata(fields: &Map<String, Value>) -> Result<BTreeMap<String, String>> {
    let wrong = || Error::invalid("its metadata is not an object of texts");
    match fields.get("metadata") {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(metadata)) => metadata
            .iter()
            .map(|(name, value)| Ok((name.clone(), value.as_str().ok_or_else(wrong)?.to_owned())))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

/// Record that the line's belongs to.
pub(super) fn parent(fields: &Map<String, Value>) -> Result<Option<Parent>> {
    let member = fields.get("belongs_to").filter(|member| !member.is_null());
    let wrong =
        |_| Error::invalid("belongs_to is not one of owner, client, grant and relationship, with its name");
    member.map(|member| Parent::deserialize(member).map_err(wrong)).transpose()
}

/// Parses lower case as Ebbtide writes it, or upper case as others do.
pub(super) fn relation_type(fields: &Map<String, Value>) -> Result<RelationType> {
    match fields.get("relation_type") {
        Some(Value::String(name)) => name.to_lowercase().parse(),
        Some(Value::Object(custom)) => {
            let name = custom.get("custom").or_else(|| custom.get("Custom")).and_then(Value::as_str);
            let name = name.ok_or_else(|| Error::invalid("relation_type has no custom name"))?;
            Ok(RelationType::Custom(name.to_owned()))
        }
        _ => Err(Error::invalid("missing relation_type")),
    }
}
