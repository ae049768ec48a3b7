//! API keys: role, scope and lifetime of the callers of a server. Only a digest of the key is stored.
//!
//! A key and its id contain the key's scope, so that one read finds the key, and the deletion of the scope deletes it.
//!
//! ```
//! use ebbtide::stores::api_keys::{KeyRequest, Role};
//! use ebbtide::stores::audit::AuditContext;
//! use ebbtide::{Ebbtide, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let db = Ebbtide::in_memory();
//! let keys = db.scope("tenant:acme")?.api_keys();
//! let request = KeyRequest::new(Scope::tenant("acme")?, Role::Writer).name("deploy");
//! let context = AuditContext::new("alice", "new pipeline")?;
//! let created = keys.create(&request, &context).await?;
//! assert_eq!(db.stores().find_api_key(&created.key).await?.as_ref(), Some(&created.about));
//! assert!(keys.revoke(&created.about.id, &context).await?);
//! assert_eq!(db.stores().find_api_key(&created.key).await?, None);
//! # Ok(())
//! # }
//! ```

mod id;
mod role;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use serde::Deserialize;

pub use id::KeyId;
pub use role::Role;

use super::Stores;
use super::registry::{Store, parsed, question};
use super::shared::finding::Finding;
use super::shared::lifetime::{Lifetime, RecordHandle};
use super::shared::paging::{Listing, Pages, check_limit};
use super::shared::setters::setters;
use super::shared::update::Step;
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::audit::{Action, AuditContext, Author, Note, check_text};
use crate::timekeeping::Now;

/// API key to be created.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct KeyRequest {
    /// Scope of the key, with all that the scope covers.
    #[serde(deserialize_with = "parsed")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "tenant:acme"))]
    pub scope: Scope,
    /// `reader`, `writer` or `admin`.
    #[serde(deserialize_with = "parsed")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "writer"))]
    pub role: Role,
    /// Purpose of the key; not a secret.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// Lifetime; without one, the key is valid until it is revoked.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Maximum requests per second, on each node.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000))]
    pub rate_limit: Option<u32>,
    /// Calls that the key is limited to: the first segment of a path, such as `introspect` or `replays`, or the path of
    /// one call, such as `approvals/extend`. By default, all that its role allows.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 32, example = json!(["introspect", "replays"])))]
    pub allow: Option<Vec<String>>,
}

impl KeyRequest {
    /// Creates a request for a key of a scope and all that it covers.
    pub fn new(scope: Scope, role: Role) -> Self {
        Self { scope, role, name: None, ttl: None, rate_limit: None, allow: None }
    }

    setters!(name: String, ttl: Ttl);

    /// Limits the requests per second on each node.
    pub fn rate_limit(mut self, per_second: u32) -> Self {
        self.rate_limit = Some(per_second);
        self
    }

    /// Limits the key to these calls.
    pub fn allow(mut self, calls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.allow = Some(calls.into_iter().map(Into::into).collect());
        self
    }

    fn check(&self) -> Result<()> {
        let call = |text: &String| {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-/_".contains(&byte);
            (1..=64).contains(&text.len()) && text.bytes().all(plain)
        };
        if self
            .allow
            .as_ref()
            .is_some_and(|calls| calls.is_empty() || calls.len() > 32 || !calls.iter().all(call))
        {
            return Err(Error::invalid(
                "`allow` lists 1 to 32 calls, each the first segment of a path (introspect) or a whole one \
                 (approvals/extend)",
            )
            .about("allow"));
        }
        if let Some(name) = &self.name {
            let checked = check_text("the name of a key", name, ApiKeys::MAX_NAME_BYTES);
            checked.map_err(|error| error.about("name"))?;
        }
        if self.rate_limit.is_some_and(|limit| !(1..=ApiKeys::MAX_RATE_LIMIT).contains(&limit)) {
            return Err(Error::invalid(format!(
                "a rate limit is 1 to {} requests per second",
                ApiKeys::MAX_RATE_LIMIT
            ))
            .about("rate_limit"));
        }
        Ok(())
    }
}

/// Created key. The secret cannot be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedKey {
    /// Secret.
    pub key: Secret,
    /// Key, without its secret.
    pub about: ApiKey,
}

/// API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiKey {
    /// Id.
    pub id: KeyId,
    /// Scope of the key, with all that the scope covers.
    pub scope: Scope,
    /// Role.
    pub role: Role,
    /// Purpose of the key.
    pub name: Option<String>,
    /// Maximum requests per second, on each node.
    pub rate_limit: Option<u32>,
    /// Calls that it is limited to.
    pub allow: Option<Vec<String>>,
    /// Key that created it. It ends with that one.
    pub parent: Option<KeyId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// End of the key.
    pub expires_at: Timestamp,
}

#[derive(Encode, Decode)]
struct StoredKey {
    #[n(0)]
    digest: ByteArray<32>,
    #[n(1)]
    role: Role,
    #[n(2)]
    name: Option<String>,
    #[n(3)]
    rate_limit: Option<u32>,
    #[n(4)]
    created_at: u64,
    #[n(5)]
    allow: Option<Vec<String>>,
    #[n(6)]
    parent: Option<String>,
}

impl ApiKey {
    /// Returns whether a text has the form of an API key, valid or not.
    #[must_use]
    pub fn is_secret(text: &str) -> bool {
        text.starts_with(super::shared::token::API_KEY)
    }

    /// Returns whether the key may make the call with this path, such as `approvals/extend`.
    #[must_use]
    pub fn allows(&self, call: &str) -> bool {
        self.allow.as_ref().is_none_or(|calls| calls.iter().any(|allowed| covers(allowed, call)))
    }

    /// Returns whether the key names this very call, which an administrator has allowed it.
    #[must_use]
    pub fn names(&self, call: &str) -> bool {
        self.allow.as_ref().is_some_and(|calls| calls.iter().any(|allowed| allowed == call))
    }
}

/// Returns whether an allowed call is this one, or the group of calls that it belongs to.
fn covers(allowed: &str, call: &str) -> bool {
    call.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// API keys that a caller of one scope manages: those of the scopes that it covers.
#[derive(Debug, Clone)]
pub struct ApiKeys {
    stores: Stores,
    caller: Scope,
}

question! {
    /// API key to explain.
    ApiKeyQuestion {
        #[serde(deserialize_with = "parsed")]
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        id: KeyId,
    }
}

impl Store for ApiKeys {
    const KINDS: &'static [Kind] = &[Kind::ApiKey];
    type Question = ApiKeyQuestion;

    async fn explain(&self, question: &ApiKeyQuestion) -> Result<Finding> {
        if *question.id.scope() != self.caller {
            return Ok(Finding::unknown("it is a key of another scope"));
        }
        Finding::of(&self.handle(&question.id)?).await
    }
}

impl ApiKeys {
    /// Maximum length of a name, in bytes.
    pub const MAX_NAME_BYTES: usize = 128;

    /// Longest chain of keys that create keys.
    pub const MAX_DEPTH: usize = 8;

    /// Highest rate limit, in requests per second.
    pub const MAX_RATE_LIMIT: u32 = 1_000_000;

    pub(super) fn new(stores: Stores, caller: Scope) -> Self {
        Self { stores, caller }
    }

    /// Keys of exactly one scope.
    pub(crate) fn partition(scope: &Scope) -> Result<Prefix> {
        Prefix::partition(Kind::ApiKey, scope, &[PARTITION.into()], &[])
    }

    /// Creates a key, and writes to the audit log of its scope, in one commit.
    pub async fn create(&self, request: &KeyRequest, context: &AuditContext) -> Result<CreatedKey> {
        request.check()?;
        self.caller.require(&request.scope)?;
        let id = KeyId::new(request.scope.clone(), self.stores.rng());
        let (key, digest) = id.mint(self.stores.rng());
        let (id, digest) = (&id, digest.as_bytes());
        // The author is authenticated: it is the parent, whatever the request says.
        let author = Author::current();
        let parent_id = &author.key_id().parse::<KeyId>().ok();
        let create = self.stores.retry(|now| async move {
            let asked = self.stores.expiry(Kind::ApiKey, &request.scope, request.ttl, now)?;
            let limits = self.clamped(request, asked, parent_id.as_ref(), now).await?;
            let expires_at = limits.expires_at;
            let stored = StoredKey {
                digest: (*digest).into(),
                role: request.role,
                name: request.name.clone(),
                rate_limit: limits.rate_limit,
                created_at: now.latest().as_millis(),
                allow: limits.allow,
                parent: parent_id.as_ref().map(KeyId::to_string),
            };
            let record = self.stores.record(codec::encode(&stored), expires_at);
            let about = describe(id.clone(), stored, expires_at)?;
            let write = Write::Insert { key: place(id)?, record };
            let note = Note::of(Action::Create, context)?.about(Kind::ApiKey, vec![id.to_string()]);
            let note = note.with_detail(format!("{} of {}", request.role, request.scope));
            let mut writes = vec![write];
            writes.extend(limits.parent);
            Ok(Step::write(writes, about).audited(&request.scope, note))
        });
        Ok(CreatedKey { about: create.await?, key })
    }

    /// Limits of a new key: those that are asked for, within those of its parent, which must be there when it is
    /// created.
    async fn clamped(
        &self,
        request: &KeyRequest,
        asked: Timestamp,
        parent: Option<&KeyId>,
        now: Now,
    ) -> Result<Limits> {
        let own = (request.rate_limit, request.allow.clone());
        let Some(id) = parent else {
            return Ok(Limits { expires_at: asked, rate_limit: own.0, allow: own.1, parent: None });
        };
        let gone = || Error::invalid("the key that creates this one is not valid any more");
        let key = place(id)?;
        let record = self.stores.backend().get(&key, now).await?.ok_or_else(gone)?;
        let parent = read(&key, &record)?;
        if !parent.scope.covers(&request.scope) || parent.role < request.role {
            return Err(Error::invalid(
                "a key has at most the scope and the role of the key that creates it",
            )
            .about("scope"));
        }
        let mut depth = 1;
        let mut above = parent.parent.clone();
        while let Some(id) = above {
            depth += 1;
            if depth > Self::MAX_DEPTH {
                return Err(Error::invalid(format!("keys create keys to a depth of {}", Self::MAX_DEPTH)));
            }
            let key = place(&id)?;
            let record = self.stores.backend().get(&key, now).await?.ok_or_else(gone)?;
            above = read(&key, &record)?.parent;
        }
        let allow = match (own.1, parent.allow) {
            (Some(own), Some(theirs)) => {
                if !own.iter().all(|call| theirs.iter().any(|allowed| covers(allowed, call))) {
                    return Err(Error::invalid(
                        "`allow` names a call that the key that creates this one may not make",
                    )
                    .about("allow"));
                }
                Some(own)
            }
            (own, theirs) => own.or(theirs),
        };
        let rate_limit = match (own.0, parent.rate_limit) {
            (Some(own), Some(theirs)) => Some(own.min(theirs)),
            (own, theirs) => own.or(theirs),
        };
        let expires_at = asked.min(parent.expires_at);
        Ok(Limits {
            expires_at,
            rate_limit,
            allow,
            parent: Some(Write::Check { key, expected: record.version }),
        })
    }

    /// Lists the keys of a scope, or of all below it. `Below` scans a table on some engines.
    pub async fn list(&self, reach: &Reach, after: Option<&Cursor>, limit: usize) -> Result<Listing<ApiKey>> {
        check_limit(limit)?;
        self.caller.require(reach.scope())?;
        let prefix = match reach {
            Reach::Exact(scope) => Self::partition(scope)?,
            Reach::Below(_) => Prefix::reach(Kind::ApiKey, reach)?,
        };
        let page = self.stores.backend().scan(&prefix, after, limit, self.stores.now()?).await?;
        Listing::read(page, |key, record| read(&key, &record))
    }

    /// Reads the valid key with this id.
    pub async fn get(&self, id: &KeyId) -> Result<Option<ApiKey>> {
        self.caller.require(id.scope())?;
        let key = place(id)?;
        let record = self.stores.backend().get(&key, self.stores.now()?).await?;
        record.map(|record| read(&key, &record)).transpose()
    }

    /// Revokes a key, and writes to the audit log of its scope, in one commit. Returns `true` only to the caller that
    /// revoked it. Keys that it has created are not honoured from then on, and are revoked next.
    pub async fn revoke(&self, id: &KeyId, context: &AuditContext) -> Result<bool> {
        let revoked = self.handle(id)?.revoke(context).await?;
        let below = AuditContext::because(format!("the key that created it was revoked: {id}"))?;
        let mut parents = vec![id.clone()];
        while let Some(parent) = parents.pop() {
            for child in self.children(&parent).await? {
                self.handle(&child)?.revoke(&below).await?;
                parents.push(child);
            }
        }
        Ok(revoked)
    }

    /// Keys that a key has created. It reads all keys of the scopes that it covers.
    async fn children(&self, id: &KeyId) -> Result<Vec<KeyId>> {
        let prefix = Prefix::reach(Kind::ApiKey, &Reach::Below(id.scope().clone()))?;
        let (mut pages, mut children) = (Pages::new(&self.stores, &prefix, 500), Vec::new());
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                let found = read(key, record)?;
                if found.parent.as_ref() == Some(id) && self.caller.covers(&found.scope) {
                    children.push(found.id);
                }
            }
        }
        Ok(children)
    }

    fn handle<'a>(&'a self, id: &'a KeyId) -> Result<RecordHandle<'a>> {
        self.caller.require(id.scope())?;
        Ok(RecordHandle {
            stores: &self.stores,
            scope: id.scope(),
            keys: vec![place(id)?],
            target: vec![id.to_string()],
            whose: Vec::new(),
            lifetime: |record| {
                let stored: StoredKey = codec::decode(&record.value)?;
                Ok(Lifetime::restored(Timestamp::from_stored(stored.created_at)?, None, None))
            },
            parent: |_| Ok(None),
        })
    }
}

impl Stores {
    /// Finds the valid key with this secret: one read, and a comparison in constant time. Text that is no key is refused
    /// without a read.
    pub async fn find_api_key(&self, secret: &Secret) -> Result<Option<ApiKey>> {
        let Some((id, digest)) = KeyId::read(secret) else { return Ok(None) };
        let Some(record) = self.backend().get(&place(&id)?, self.now()?).await? else { return Ok(None) };
        let stored: StoredKey = codec::decode(&record.value)?;
        if Digest::from_bytes(*stored.digest) != digest {
            return Ok(None);
        }
        describe(id, stored, record.expires_at).map(Some)
    }

    /// Keys above `key`, its parent first; `None` if one of them is not valid any more, and so neither is `key`.
    pub async fn api_key_ancestors(&self, key: &ApiKey) -> Result<Option<Vec<ApiKey>>> {
        let (mut ancestors, mut above) = (Vec::new(), key.parent.clone());
        while let Some(id) = above.take() {
            let place = place(&id)?;
            let Some(record) = self.backend().get(&place, self.now()?).await? else { return Ok(None) };
            let ancestor = read(&place, &record)?;
            above.clone_from(&ancestor.parent);
            ancestors.push(ancestor);
            if ancestors.len() > ApiKeys::MAX_DEPTH {
                return Err(Error::corrupt("the parents of an API key form a circle"));
            }
        }
        Ok(Some(ancestors))
    }
}

/// Limits of a new key.
struct Limits {
    expires_at: Timestamp,
    rate_limit: Option<u32>,
    allow: Option<Vec<String>>,
    /// Condition that the parent is still there.
    parent: Option<Write>,
}

const PARTITION: &str = "keys";

fn place(id: &KeyId) -> Result<Key> {
    Key::new(Kind::ApiKey, id.scope(), &[PARTITION.into()], &[id.bytes().into()])
}

/// Id of the API key that is stored under this key.
pub(crate) fn id_of(key: &Key) -> Result<KeyId> {
    let strange = || Error::corrupt("an API key is stored under the key of another kind");
    let sort = key.sort();
    let [Part::Bytes(bytes)] = sort.as_slice() else { return Err(strange()) };
    KeyId::from_parts(key.scope(), bytes).ok_or_else(strange)
}

fn read(key: &Key, record: &Record) -> Result<ApiKey> {
    describe(id_of(key)?, codec::decode(&record.value)?, record.expires_at)
}

fn describe(id: KeyId, stored: StoredKey, expires_at: Timestamp) -> Result<ApiKey> {
    Ok(ApiKey {
        scope: id.scope().clone(),
        id,
        role: stored.role,
        name: stored.name,
        rate_limit: stored.rate_limit,
        allow: stored.allow,
        parent: stored.parent.map(|parent| parent.parse()).transpose()?,
        created_at: Timestamp::from_stored(stored.created_at)?,
        expires_at,
    })
}
