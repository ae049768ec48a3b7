//! Records as JSON lines: one object per line.
//!
//! An approval has `identity`, `resource`, `action` and `granted_by`; a relationship `subject`, `relation`, `object`,
//! `relation_type` and `created_by`; an attribute `owner`, `bucket`, `name` and `data`. They may have `granted_at` or
//! `created_at`, `expires_at`, `ttl_seconds`, `cap_at`, `sliding_ttl_ms`, not both of `expires_at` and `ttl_seconds`; the first two `metadata`, an attribute
//! `timestamp`. A [record](super::plain) has `collection`, `id` and `value`. Times are milliseconds since 1970; a number that would be before March 1973 is taken as seconds. Other kinds
//! are [sealed lines](super::sealed). A line may name its `kind`, and its `scope`: that of the import, or one that the
//! import maps. Any other member is refused, and so is a cap that is past and a sliding life without a cap. A life that is
//! longer than its cap, or than an enforced policy allows, is shortened to it; a beginning in the future is now. A relationship
//! and an attribute may have `belongs_to`: what it names must be there, and one that has ended with it is not exported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fields::{metadata, number, parent, relation_type, text, time};
use super::{plain, sealed};
use crate::backend::Cursor;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::stores::Stores;
use crate::stores::approvals::{self, Approval, Approvals, Granted};
use crate::stores::attributes::{Draft, StoredAttribute, parent_of};
use crate::stores::audit::AuditContext;
use crate::stores::relationships::{Edge, Related, RelationType, Relationship, Relationships, standing_of};
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::lifetime::{Import, Lifetime, Restored};
use crate::stores::shared::paging::bounded;
use crate::stores::shared::parents::{MetParents, ParentName};
use crate::timekeeping::Now;

/// Outcome of importing a line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the line may have been skipped"]
pub enum ImportOutcome {
    /// The line was written, or would have been.
    Written(Kind),
    /// The line was skipped, for this reason.
    Skipped(String),
}

/// Importer of JSON lines. Existing records are never overwritten, so a second run writes nothing.
#[derive(Debug)]
pub struct Importer {
    stores: Stores,
    /// Scope of the lines that name none; without it every line names its own.
    scope: Option<Scope>,
    /// Scopes of lines, and those that they are imported into.
    mapped: BTreeMap<Scope, Scope>,
    /// Scope that the importer may write to and read from, with those that it covers.
    within: Scope,
    /// False if API keys are refused.
    takes_keys: bool,
    context: Option<AuditContext>,
    dry_run: bool,
}

const MEMBERS: [&str; 6] = ["kind", "scope", "expires_at", "ttl_seconds", "cap_at", "sliding_ttl_ms"];
const OF_APPROVALS: [&str; 6] = ["identity", "resource", "action", "granted_by", "granted_at", "metadata"];
const OF_RELATIONSHIPS: [&str; 8] =
    ["subject", "relation", "object", "relation_type", "created_by", "created_at", "metadata", "belongs_to"];
const OF_ATTRIBUTES: [&str; 7] = ["owner", "bucket", "name", "data", "timestamp", "created_at", "belongs_to"];

impl Importer {
    /// Creates an importer into `scope`; a dry run writes nothing and answers as if it had.
    #[must_use]
    pub fn new(stores: Stores, scope: Scope, dry_run: bool) -> Self {
        Self { scope: Some(scope), ..Self::by_line(stores, dry_run) }
    }

    /// Creates an importer of lines that name their scopes.
    #[must_use]
    pub fn by_line(stores: Stores, dry_run: bool) -> Self {
        let (mapped, within) = (BTreeMap::new(), Scope::Global);
        Self { stores, scope: None, mapped, within, takes_keys: true, context: None, dry_run }
    }

    /// Takes only lines into `scope` and the scopes that it covers. A sealed line must come from there too: to import it
    /// elsewhere is to open it.
    #[must_use]
    pub fn within(mut self, scope: Scope) -> Self {
        self.within = scope;
        self
    }

    /// Skips API keys: whoever imports one makes a key that does not end with their own.
    #[must_use]
    pub fn without_keys(mut self) -> Self {
        self.takes_keys = false;
        self
    }

    /// Notes this actor and reason in the audit log.
    #[must_use]
    pub fn because(mut self, context: AuditContext) -> Self {
        self.context = Some(context);
        self
    }

    /// Takes lines of the scope `from` into the scope `to`.
    #[must_use]
    pub fn map_scope(mut self, from: Scope, to: Scope) -> Self {
        self.mapped.insert(from, to);
        self
    }

    /// Scope that a line is imported into. `Invalid` if it has none, or one that this importer does not write to.
    pub fn target(&self, fields: &Map<String, Value>) -> Result<Scope> {
        let scope = self.named(fields)?;
        if self.within.covers(&scope) {
            return Ok(scope);
        }
        Err(Error::invalid(format!("the scope {scope} is not covered by {}", self.within)))
    }

    fn named(&self, fields: &Map<String, Value>) -> Result<Scope> {
        let named = fields
            .get("scope")
            .map(|scope| scope.as_str().ok_or_else(|| Error::invalid("scope is not text"))?.parse::<Scope>());
        let named = named.transpose()?;
        match (named, &self.scope) {
            (Some(named), _) if self.mapped.contains_key(&named) => Ok(self.mapped[&named].clone()),
            (Some(named), Some(scope)) if named != *scope => Err(Error::invalid(format!(
                "it belongs to the scope {named}; map that to {scope} to import it"
            ))),
            (Some(scope), _) => Ok(scope),
            (None, Some(scope)) => Ok(scope.clone()),
            (None, None) => Err(Error::invalid("it names no scope, and the import has none")),
        }
    }

    fn run(&self) -> Import<'_> {
        Import { dry_run: self.dry_run, context: self.context.as_ref() }
    }

    /// Scopes that these lines are imported into; that of the importer for those without.
    pub fn targets<'a>(&self, lines: impl Iterator<Item = &'a Value>) -> BTreeSet<Scope> {
        let target = |line: &Value| line.as_object().and_then(|fields| self.target(fields).ok());
        lines.map(|line| target(line).unwrap_or_else(|| self.own().clone())).collect()
    }

    fn own(&self) -> &Scope {
        self.scope.as_ref().unwrap_or(&self.within)
    }

    /// Appends to the audit log of `scope` that an import into it begins or has ended. A dry run is not in the log.
    /// Approvals, relationships, clients, API keys and policies have an entry each besides, in the commit that writes
    /// them.
    pub async fn note(&self, scope: &Scope, detail: &str) -> Result<()> {
        if self.dry_run {
            return Ok(());
        }
        let note = self.run().begin_or_end()?;
        self.stores.audit(scope).append(&note.with_detail(detail)).await
    }

    /// Imports one line. An invalid line is skipped, with the reason; an error comes from the store, and the import
    /// can be restarted.
    pub async fn line(&self, line: &str) -> Result<ImportOutcome> {
        self.item(&serde_json::from_str(line).unwrap_or_default()).await
    }

    /// Imports one line that was parsed before.
    pub async fn item(&self, line: &Value) -> Result<ImportOutcome> {
        let Value::Object(fields) = line else {
            return Ok(ImportOutcome::Skipped("it is not a JSON object".to_owned()));
        };
        match self.import(fields).await {
            Err(error) if error.kind() == ErrorKind::Invalid => {
                Ok(ImportOutcome::Skipped(error.message().to_owned()))
            }
            answer => answer,
        }
    }

    async fn import(&self, fields: &Map<String, Value>) -> Result<ImportOutcome> {
        let kind = kind_of(fields)?;
        let scope = &self.target(fields)?;
        let own: &[&str] = match kind {
            Kind::Approval => &OF_APPROVALS,
            Kind::Relationship => &OF_RELATIONSHIPS,
            Kind::Attribute => &OF_ATTRIBUTES,
            Kind::ApiKey if !self.takes_keys => {
                return Err(Error::invalid(
                    "API keys are imported with the root key, or into a store of this machine",
                ));
            }
            kind if plain::is_plain(kind, fields) => {
                return plain::import(&self.stores, fields, scope, self.dry_run).await;
            }
            _ => {
                let places = sealed::Places { within: &self.within, to: scope };
                return sealed::import(&self.stores, kind, fields, places, self.run()).await;
            }
        };
        let is_known = |name: &str| own.contains(&name) || MEMBERS.contains(&name);
        if let Some(unknown) = fields.keys().find(|name| !is_known(name)) {
            return Err(Error::invalid(format!("unknown member `{unknown}`")));
        }
        let began = if kind == Kind::Approval { "granted_at" } else { "created_at" };
        let (now, dated) = (self.stores.now()?, time(fields, began)?);
        let began_at = dated.unwrap_or_else(|| now.latest()).min(now.latest());
        let (dated, dry_run) = (dated.is_some(), self.dry_run);
        let expires_at = match (time(fields, "expires_at")?, number(fields, "ttl_seconds")?) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("give one of `expires_at` and `ttl_seconds`"));
            }
            (Some(expires_at), None) => expires_at,
            (None, Some(seconds)) => began_at.checked_add(Duration::from_secs(seconds))?,
            (None, None) => Timestamp::NEVER,
        };
        if !now.before(expires_at)? {
            return Ok(ImportOutcome::Skipped("it has expired".to_owned()));
        }
        let slide = number(fields, "sliding_ttl_ms")?.map(Duration::from_millis);
        let cap_at = time(fields, "cap_at")?;
        if let Some(cap_at) = cap_at
            && !now.before(cap_at)?
        {
            return Err(Error::invalid("cap_at is past"));
        }
        if slide.is_some() && cap_at.is_none() {
            return Err(Error::invalid("a life that slides has a cap_at"));
        }
        let longest = self.stores.cap(kind, scope, began_at, cap_at)?;
        // A record without an end keeps none, unless it has a cap: policies bound the lives that are given.
        let expires_at = match cap_at {
            Some(cap_at) => expires_at.min(cap_at).min(longest),
            None if expires_at.is_never() => expires_at,
            None => expires_at.min(longest),
        };
        if !now.before(expires_at)? {
            return Ok(ImportOutcome::Skipped("it has expired".to_owned()));
        }
        let lifetime = Lifetime::restored(began_at, cap_at, slide);
        let restored = match kind {
            Kind::Approval => {
                let mut approval = Approval::new(
                    text(fields, "identity")?,
                    text(fields, "resource")?,
                    text(fields, "action")?,
                    text(fields, "granted_by")?,
                );
                approval.metadata = metadata(fields)?;
                let approvals: Approvals = self.stores.approvals(scope);
                approvals.restore(&approval, lifetime, expires_at, dated, self.run()).await?
            }
            Kind::Relationship => {
                let (subject, object) = (text(fields, "subject")?, text(fields, "object")?);
                let edge = Edge::new(subject, text(fields, "relation")?, object, relation_type(fields)?);
                let mut relationship = Relationship::new(edge, text(fields, "created_by")?);
                relationship.metadata = metadata(fields)?;
                relationship.belongs_to = parent(fields)?;
                let store: Relationships = self.stores.relationships(scope);
                store.restore(&relationship, lifetime, expires_at, dated, self.run()).await?
            }
            _ => {
                let data = fields.get("data").ok_or_else(|| Error::invalid("missing field data"))?;
                let mut draft = Draft::new(data.clone());
                draft.timestamp = time(fields, "timestamp")?;
                draft.belongs_to = parent(fields)?;
                let bucket = text(fields, "bucket")?;
                let bucket = self.stores.attributes(scope).bucket(text(fields, "owner")?, bucket)?;
                bucket.restore(&text(fields, "name")?, &draft, lifetime, expires_at, dry_run).await?
            }
        };
        Ok(match restored {
            Restored::Written => ImportOutcome::Written(kind),
            Restored::Same => ImportOutcome::Skipped("it is there already".to_owned()),
            Restored::Different => ImportOutcome::Skipped("it conflicts with an existing record".to_owned()),
        })
    }
}

/// Kind of a line: the one that it names, or the one that its members belong to.
fn kind_of(fields: &Map<String, Value>) -> Result<Kind> {
    match fields.get("kind") {
        Some(Value::String(kind)) => kind.parse(),
        Some(_) => Err(Error::invalid("kind is not text")),
        None if fields.contains_key("identity") => Ok(Kind::Approval),
        None if fields.contains_key("owner") => Ok(Kind::Attribute),
        None if fields.contains_key("collection") => Ok(Kind::Record),
        None => Ok(Kind::Relationship),
    }
}

/// Exporter of records as JSON lines, which [`Importer`] reads back.
#[derive(Debug)]
pub struct Exporter {
    stores: Stores,
    left: Vec<Prefix>,
    after: Option<Cursor>,
    now: Now,
    names_scope: bool,
}

impl Exporter {
    /// Kinds that are exported. What was issued under the epochs of subjects and clients (codes, grants, tokens,
    /// sessions) means nothing without them: a [`Copier`](super::Copier) moves it.
    pub const KINDS: [Kind; 16] = [
        // Before the records that may belong to them.
        Kind::Client,
        Kind::ClientIndex,
        Kind::Approval,
        Kind::Relationship,
        Kind::Attribute,
        Kind::ApiKey,
        Kind::Policy,
        Kind::Record,
        Kind::RecordKey,
        Kind::RecordGroup,
        Kind::Counter,
        Kind::Replay,
        Kind::Nonce,
        Kind::Challenge,
        Kind::ChallengeIndex,
        Kind::Lease,
    ];

    /// Kinds that can be read without the keyring.
    pub const READABLE: [Kind; 2] = [Kind::Approval, Kind::Relationship];

    /// Creates an exporter of every kind in exactly `scope`, as of now.
    pub fn new(stores: Stores, scope: &Scope) -> Result<Self> {
        Self::of(stores, &Reach::Exact(scope.clone()), &Self::KINDS)
    }

    /// Creates an exporter of some kinds, as of now. With the scopes below a scope, each line names its own.
    pub fn of(stores: Stores, reach: &Reach, kinds: &[Kind]) -> Result<Self> {
        if let Some(kind) = kinds.iter().find(|kind| !Self::KINDS.contains(kind)) {
            return Err(Error::invalid(format!("{kind} are not exported; `ebbtide copy` moves them")));
        }
        let left = kinds.iter().rev().map(|kind| Prefix::reach(*kind, reach)).collect::<Result<_>>()?;
        let now = stores.now()?;
        let names_scope = matches!(reach, Reach::Below(_));
        Ok(Self { stores, left, after: None, now, names_scope })
    }

    /// Goes on behind the page that left `place`. `Invalid` if that is not a place of such an export.
    pub fn resume(mut self, place: &Cursor) -> Result<Self> {
        let wrong = || Error::invalid("it is not a place of this export");
        let (code, after) = place.as_bytes().split_first().ok_or_else(wrong)?;
        let kind = Kind::from_code(*code);
        let at = self.left.iter().position(|prefix| Some(prefix.kind()) == kind).ok_or_else(wrong)?;
        self.left.truncate(at + 1);
        self.after = (!after.is_empty()).then(|| Cursor::from_bytes(after));
        Ok(self)
    }

    /// Place of the next page, for [`resume`](Self::resume); none at the end.
    #[must_use]
    pub fn place(&self) -> Option<Cursor> {
        let kind = self.left.last()?.kind();
        let after = self.after.as_ref().map(Cursor::as_bytes).unwrap_or_default();
        Some(Cursor::from_bytes([&[kind.code()], after].concat()))
    }

    /// Returns the next lines; `None` at the end.
    pub async fn page(&mut self) -> Result<Option<Vec<String>>> {
        let items = self.items(500).await?;
        Ok(items.map(|items| items.iter().map(Value::to_string).collect()))
    }

    /// Returns the next lines as values: at most `limit`, of about 2 MiB. `None` at the end.
    pub async fn items(&mut self, limit: usize) -> Result<Option<Vec<Value>>> {
        let Some(prefix) = self.left.last() else { return Ok(None) };
        let page = bounded(&self.stores, prefix, self.after.as_ref(), limit, self.now).await?;
        let (mut items, mut parents) = (Vec::new(), MetParents::new(&self.stores, self.now));
        for (key, record) in &page.items {
            let parent = match key.kind() {
                Kind::Relationship => standing_of(record)?.1,
                Kind::Attribute => parent_of(record)?,
                _ => None,
            };
            if !parents.ended(&key.scope(), parent.as_ref()).await? {
                items.push(self.item(key, record, parent)?);
            }
        }
        self.after = page.next;
        if self.after.is_none() {
            self.left.pop();
        }
        Ok(Some(items))
    }

    fn item(&self, key: &Key, record: &Record, parent: Option<ParentName>) -> Result<Value> {
        let mut value = match key.kind() {
            Kind::Approval => approval_json(&approvals::read(key, record)?),
            Kind::Relationship => relationship_json(&Related::read(key, record)?),
            Kind::Attribute => attribute_json(key, record)?,
            _ => sealed::line(&self.stores, key, record)?,
        };
        if let Some(parent) = parent.map(|name| name.parent()).transpose()?.flatten() {
            value["belongs_to"] = parent_json(&parent);
        }
        if self.names_scope {
            value["scope"] = json!(key.scope().to_string());
        }
        Ok(value)
    }
}

fn attribute_json(key: &Key, record: &Record) -> Result<Value> {
    let (partition, sort) = (key.partition(), key.sort());
    let ([Part::Text(owner)], [Part::Text(bucket), Part::Text(name)]) =
        (partition.as_slice(), sort.as_slice())
    else {
        return Err(Error::corrupt("an attribute is stored under the key of another kind"));
    };
    let (data, timestamp, lifetime) = StoredAttribute::exported(record)?;
    let mut value = json!({
        "owner": owner,
        "bucket": bucket,
        "name": name,
        "data": data,
        "created_at": lifetime.began_at()?.as_millis(),
    });
    if let Some(timestamp) = timestamp {
        value["timestamp"] = json!(timestamp);
    }
    add_life(&mut value, record.expires_at, lifetime.cap_at()?, lifetime.sliding_ttl(), &BTreeMap::new());
    Ok(value)
}

fn parent_json(parent: &Parent) -> Value {
    match parent {
        Parent::Owner(owner) => json!({"owner": owner}),
        Parent::Client(client) => json!({"client": client}),
        Parent::Grant(id) => json!({"grant": id}),
        Parent::Relationship(Edge { subject, relation, object, relation_type }) => {
            json!({"relationship": {"subject": subject, "relation": relation, "object": object,
                "relation_type": type_json(relation_type)}})
        }
    }
}

fn type_json(relation_type: &RelationType) -> Value {
    match relation_type {
        RelationType::Custom(name) => json!({"custom": name}),
        named => json!(named.to_string()),
    }
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
    let mut value = json!({
        "subject": related.edge.subject,
        "relation": related.edge.relation,
        "object": related.edge.object,
        "relation_type": type_json(&related.edge.relation_type),
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
