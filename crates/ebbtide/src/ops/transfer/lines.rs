//! Approvals and relationships as JSON lines, without a scope: one object per line.
//!
//! An approval has `identity`, `resource`, `action` and `granted_by`; a relationship `subject`, `relation`, `object`,
//! `relation_type` and `created_by`. Both may have `granted_at` or `created_at`, `expires_at`, `ttl_seconds`,
//! `cap_at`, `sliding_ttl_ms` and `metadata`. Times are milliseconds since 1970; a number that would be before March
//! 1973 is taken as seconds. Lifetimes are kept as they are, regardless of policies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::backend::Cursor;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::approvals::{self, Approval, Approvals, Granted};
use crate::stores::relationships::{Edge, Related, RelationType, Relationship, Relationships};
use crate::stores::shared::lifetime::{Lifetime, Restored};
use crate::timekeeping::Now;

/// Smaller numbers are seconds: as milliseconds they would be before March 1973, and as seconds this is the year
/// 5138.
const MILLIS_FROM: u64 = 100_000_000_000;

/// Outcome of importing a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The line was written, or would have been.
    Written(Kind),
    /// The line was skipped, for this reason.
    Skipped(String),
}

/// Importer of JSON lines into one scope. Existing records are never overwritten, so a second run writes nothing.
#[derive(Debug)]
pub struct Importer {
    stores: Stores,
    scope: Scope,
    dry_run: bool,
}

impl Importer {
    /// Creates an importer into `scope`; a dry run writes nothing and answers as if it had.
    #[must_use]
    pub fn new(stores: Stores, scope: Scope, dry_run: bool) -> Self {
        Self { stores, scope, dry_run }
    }

    /// Imports one line. An invalid line is skipped, with the reason; an error comes from the store, and the import
    /// can be restarted.
    pub async fn line(&self, line: &str) -> Result<ImportOutcome> {
        let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
            return Ok(ImportOutcome::Skipped("it is not a JSON object".to_owned()));
        };
        match self.import(&fields).await {
            Err(error) if error.kind() == ErrorKind::Invalid => {
                Ok(ImportOutcome::Skipped(error.message().to_owned()))
            }
            answer => answer,
        }
    }

    async fn import(&self, fields: &Map<String, Value>) -> Result<ImportOutcome> {
        let is_approval = fields.contains_key("identity");
        let began = if is_approval { "granted_at" } else { "created_at" };
        let (now, dated) = (self.stores.now()?, time(fields, began)?);
        let began_at = dated.unwrap_or_else(|| now.latest());
        let (dated, dry_run) = (dated.is_some(), self.dry_run);
        let expires_at = match (time(fields, "expires_at")?, number(fields, "ttl_seconds")?) {
            (Some(expires_at), _) => expires_at,
            (None, Some(seconds)) => began_at.checked_add(Duration::from_secs(seconds))?,
            (None, None) => Timestamp::NEVER,
        };
        if !now.before(expires_at)? {
            return Ok(ImportOutcome::Skipped("it has expired".to_owned()));
        }
        let slide = number(fields, "sliding_ttl_ms")?.map(Duration::from_millis);
        let lifetime = Lifetime::restored(began_at, time(fields, "cap_at")?, slide);
        let (kind, restored) = if is_approval {
            let mut approval = Approval::new(
                text(fields, "identity")?,
                text(fields, "resource")?,
                text(fields, "action")?,
                text(fields, "granted_by")?,
            );
            approval.metadata = metadata(fields)?;
            let approvals: Approvals = self.stores.approvals(&self.scope);
            (Kind::Approval, approvals.restore(&approval, lifetime, expires_at, dated, dry_run).await?)
        } else {
            let (subject, object) = (text(fields, "subject")?, text(fields, "object")?);
            let edge = Edge::new(subject, text(fields, "relation")?, object, relation_type(fields)?);
            let mut relationship = Relationship::new(edge, text(fields, "created_by")?);
            relationship.metadata = metadata(fields)?;
            let store: Relationships = self.stores.relationships(&self.scope);
            (Kind::Relationship, store.restore(&relationship, lifetime, expires_at, dated, dry_run).await?)
        };
        Ok(match restored {
            Restored::Written => ImportOutcome::Written(kind),
            Restored::Same => ImportOutcome::Skipped("it is there already".to_owned()),
            Restored::Different => ImportOutcome::Skipped("it conflicts with an existing record".to_owned()),
        })
    }
}

/// Exporter of the approvals and relationships of exactly one scope as JSON lines, which [`Importer`] reads back.
#[derive(Debug)]
pub struct Exporter {
    stores: Stores,
    left: Vec<Prefix>,
    after: Option<Cursor>,
    now: Now,
}

impl Exporter {
    /// Creates an exporter of `scope` as of now.
    pub fn new(stores: Stores, scope: &Scope) -> Result<Self> {
        let reach = Reach::Exact(scope.clone());
        let kinds = [Kind::Relationship, Kind::Approval];
        let left = kinds.into_iter().map(|kind| Prefix::reach(kind, &reach)).collect::<Result<_>>()?;
        let now = stores.now()?;
        Ok(Self { stores, left, after: None, now })
    }

    /// Returns the next lines; `None` at the end.
    pub async fn page(&mut self) -> Result<Option<Vec<String>>> {
        let Some(prefix) = self.left.last() else { return Ok(None) };
        let page = self.stores.backend().scan(prefix, self.after.as_ref(), 500, self.now).await?;
        let lines = page.items.iter().map(|(key, record)| line(key, record)).collect::<Result<_>>()?;
        self.after = page.next;
        if self.after.is_none() {
            self.left.pop();
        }
        Ok(Some(lines))
    }
}

fn line(key: &Key, record: &Record) -> Result<String> {
    let value = if key.kind() == Kind::Approval {
        approval_json(&approvals::read(key, record)?)
    } else {
        relationship_json(&Related::read(key, record)?)
    };
    Ok(value.to_string())
}

fn approval_json(granted: &Granted) -> Value {
    let mut value = json!({
        "identity": granted.identity,
        "resource": granted.resource,
        "action": granted.action,
        "granted_by": granted.granted_by,
        "granted_at": granted.granted_at.as_millis(),
    });
    add_life(&mut value, granted.expires_at, granted.cap_at, granted.sliding_ttl, &granted.metadata);
    value
}

fn relationship_json(related: &Related) -> Value {
    let relation_type = match &related.edge.relation_type {
        RelationType::Custom(name) => json!({"custom": name}),
        named => json!(named.to_string()),
    };
    let mut value = json!({
        "subject": related.edge.subject,
        "relation": related.edge.relation,
        "object": related.edge.object,
        "relation_type": relation_type,
        "created_by": related.created_by,
        "created_at": related.created_at.as_millis(),
    });
    add_life(&mut value, related.expires_at, related.cap_at, related.sliding_ttl, &related.metadata);
    value
}

fn add_life(
    value: &mut Value,
    expires_at: Timestamp,
    cap_at: Option<Timestamp>,
    sliding_ttl: Option<Duration>,
    metadata: &BTreeMap<String, String>,
) {
    if !expires_at.is_never() {
        value["expires_at"] = json!(expires_at.as_millis());
    }
    if let Some(cap_at) = cap_at {
        value["cap_at"] = json!(cap_at.as_millis());
    }
    if let Some(ttl) = sliding_ttl {
        value["sliding_ttl_ms"] = json!(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    }
    if !metadata.is_empty() {
        value["metadata"] = json!(metadata);
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<String> {
    let text = fields.get(name).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| Error::invalid(format!("missing text field {name}")))
}

fn number(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| Error::invalid(format!("{name} is not a whole number")))
        }
    }
}

fn time(fields: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>> {
    let millis = |time: u64| if time < MILLIS_FROM { time * 1_000 } else { time };
    number(fields, name)?.map(|time| Timestamp::from_millis(millis(time))).transpose()
}

fn metadata(fields: &Map<String, Value>) -> Result<BTreeMap<String, String>> {
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

/// Parses lower case as Ebbtide writes it, or upper case as others do.
fn relation_type(fields: &Map<String, Value>) -> Result<RelationType> {
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
