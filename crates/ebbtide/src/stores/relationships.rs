//! Relationships between a subject and an object, until a time. Each is written with its reverse in one commit, so
//! that the relationships of a subject and those of an object are both listings of one partition.
//!
//! ```
//! use ebbtide::stores::relationships::Relationship;
//! use ebbtide::{Ebbtide, Ttl};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let db = Ebbtide::in_memory();
//! let (acme, widgets) = (db.scope("tenant:acme-corp")?, db.scope("tenant:widgets-inc")?);
//! let month = Ttl::from_secs(30 * 24 * 3600)?;
//! let alice = Relationship::role("alice", "editor", "document-123", "admin").ttl(month);
//! let bob = Relationship::role("bob", "editor", "document-123", "admin").ttl(month);
//! acme.relationships().add(&alice).await?;
//! widgets.relationships().add(&bob).await?;
//!
//! // Both are editors of "document-123", each in a tenant of their own.
//! assert!(acme.relationships().check(&alice.edge()).await?);
//! assert!(!acme.relationships().check(&bob.edge()).await?);
//! # Ok(())
//! # }
//! ```

mod graph;
mod relationship;
mod search;

use futures_util::future::join_all;

pub use graph::{Reached, TransitiveOutcome};
use relationship::StoredRelationship;
pub use relationship::{Edge, Related, RelationType, Relationship};
pub use search::RelationshipFilter;

use super::Stores;
use super::approvals::{MAX_BATCH, MAX_GRANTOR_BYTES, check_batch, check_metadata};
use super::registry::Store;
use super::shared::belongings::Parent;
use super::shared::deletion::{Owned, Progress, Removed};
use super::shared::extension::{ExtendOutcome, Extension};
use super::shared::finding::Finding;
use super::shared::lifetime::{GrantTerms, Lifetime, RecordHandle, Restored, restore};
use super::shared::paging::{Listing, check_limit};
use super::shared::tombstones::Principal;
use crate::admin::Erased;
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::audit::{AuditContext, check_text};

/// Relationships of one scope. A handle covers a scope as that of [approvals](super::approvals) does.
#[derive(Debug, Clone)]
pub struct Relationships {
    stores: Stores,
    scope: Scope,
}

impl Store for Relationships {
    const KINDS: &'static [Kind] = &[Kind::Relationship, Kind::RelationshipReverse];
    type Question = Edge;

    async fn explain(&self, edge: &Edge) -> Result<Finding> {
        Finding::of(&self.handle(edge)?).await
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        for end in Self::KINDS {
            let Some(prefix) = owned.prefix(*end)? else { continue };
            let erased = self.erase_both_ends(&prefix).await?;
            progress.removed.add(Kind::Relationship, erased.removed);
            if erased.more {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Relationships {
    /// Most checks of one batch.
    pub const MAX_QUESTIONS: usize = MAX_BATCH;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Relationships of a scope that this one covers. Returns `Invalid` for any other.
    pub fn within(&self, scope: &Scope) -> Result<Self> {
        self.scope.require(scope)?;
        Ok(Self { stores: self.stores.clone(), scope: scope.clone() })
    }

    /// Adds a relationship with its reverse, replaces the one that exists, with its lifetime, and appends to the audit
    /// log in the same commit.
    pub async fn add(&self, relationship: &Relationship) -> Result<Related> {
        match self.add_as(relationship, true).await? {
            AddOutcome::Added(related) => Ok(*related),
            AddOutcome::Longer { .. } => {
                Err(Error::invalid("the relationship would live longer than the one that exists"))
            }
        }
    }

    /// Adds a relationship for a caller that may not extend one: a live relationship is not replaced by one that
    /// lives longer.
    pub async fn add_no_longer(&self, relationship: &Relationship) -> Result<AddOutcome> {
        self.add_as(relationship, false).await
    }

    async fn add_as(&self, relationship: &Relationship, may_lengthen: bool) -> Result<AddOutcome> {
        let there = self.within(relationship.scope.as_ref().unwrap_or(&self.scope))?;
        let edge = relationship.edge();
        let handle = there.handle(&edge)?;
        let terms = GrantTerms { granted_by: &relationship.created_by, may_lengthen };
        let belongings = self.stores.belongings(&there.scope);
        if let Some(parent) = &relationship.belongs_to {
            belongings.link(parent, &handle.keys[0]).await?;
        }
        let update = self.stores.update(&handle.keys[0], |present, now| {
            let (lifetime, expires_at) =
                relationship.lifetime().begin(&self.stores, Kind::Relationship, &there.scope, None, now)?;
            let ([forward, _], record) = self.prepare(relationship, lifetime, expires_at)?;
            let added = AddOutcome::Added(Box::new(Related::read(&forward, &record)?));
            let longer = |expires_at| AddOutcome::Longer { expires_at };
            handle.grant(present, (lifetime, &record), &terms, added, longer)
        });
        let outcome = update.await?;
        if let (Some(parent), AddOutcome::Added(_)) = (&relationship.belongs_to, &outcome) {
            belongings.keep_or_take_back(parent, &keys(&there.scope, &edge)?).await?;
        }
        Ok(outcome)
    }

    /// Writes an imported relationship with its lifetime, if none exists. One without a date is equal to an existing
    /// one whatever the date of that.
    pub(crate) async fn restore(
        &self,
        relationship: &Relationship,
        lifetime: Lifetime,
        expires_at: Timestamp,
        dated: bool,
        dry_run: bool,
    ) -> Result<Restored> {
        let (keys, record) = self.prepare(relationship, lifetime, expires_at)?;
        let ours = (record.value.clone(), record.expires_at);
        restore(&self.stores, keys.into(), &principals(&relationship.edge()), record, dry_run, |there| {
            let stored: StoredRelationship = codec::decode(&there.value)?;
            let alike =
                stored.created_by == relationship.created_by && stored.metadata == relationship.metadata;
            Ok(alike && (!dated || ours == (there.value.clone(), there.expires_at)))
        })
        .await
    }

    fn prepare(
        &self,
        relationship: &Relationship,
        lifetime: Lifetime,
        expires_at: Timestamp,
    ) -> Result<([Key; 2], Record)> {
        let scope = relationship.scope.as_ref().unwrap_or(&self.scope);
        self.scope.require(scope)?;
        check_text("the maker of a relationship", &relationship.created_by, MAX_GRANTOR_BYTES)?;
        check_metadata(&relationship.metadata)?;
        let stored = StoredRelationship {
            created_by: relationship.created_by.clone(),
            metadata: relationship.metadata.clone(),
            lifetime,
        };
        Ok((keys(scope, &relationship.edge())?, self.stores.record(codec::encode(&stored), expires_at)))
    }

    /// Returns whether exactly this relationship exists, in exactly this scope. An error is no answer: refuse.
    pub async fn check(&self, edge: &Edge) -> Result<bool> {
        Ok(self.get(edge).await?.is_some())
    }

    /// Checks several relationships concurrently. An error answers none of them.
    pub async fn check_many(&self, edges: &[Edge]) -> Result<Vec<bool>> {
        check_batch(edges.len())?;
        join_all(edges.iter().map(|edge| self.check(edge))).await.into_iter().collect()
    }

    /// Returns the relationship, if there is one. A sliding one is renewed.
    pub async fn get(&self, edge: &Edge) -> Result<Option<Related>> {
        let handle = self.handle(edge)?;
        handle.read().await?.map(|record| Related::read(&handle.keys[0], &record)).transpose()
    }

    /// Lists the relationships of a subject, by type, relation and object; of one type where it is given.
    pub async fn list(
        &self,
        subject: &str,
        relation_type: Option<&RelationType>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<Related>> {
        self.page(Kind::Relationship, subject, relation_type, after, limit).await
    }

    /// Lists the relationships of an object, by type, relation and subject; of one type where it is given.
    pub async fn list_reverse(
        &self,
        object: &str,
        relation_type: Option<&RelationType>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<Related>> {
        self.page(Kind::RelationshipReverse, object, relation_type, after, limit).await
    }

    /// Removes a relationship and its reverse with what belongs to it, and appends to the audit log. True only for the caller that removed
    /// it.
    pub async fn remove(&self, edge: &Edge, context: &AuditContext) -> Result<bool> {
        let removed = self.handle(edge)?.revoke(context).await?;
        // Also if it was absent: an earlier removal may have been interrupted.
        self.remove_belongings(edge).await?;
        Ok(removed)
    }

    /// Removes what belongs to a relationship.
    async fn remove_belongings(&self, edge: &Edge) -> Result<()> {
        let (belongings, parent) = (self.stores.belongings(&self.scope), Parent::Relationship(edge.clone()));
        belongings.remove(&parent, &mut Removed::default()).await
    }

    /// Extends a relationship, and appends to the audit log in the same commit.
    pub async fn extend(&self, edge: &Edge, extension: &Extension) -> Result<ExtendOutcome> {
        self.handle(edge)?.extend(extension).await
    }

    /// Deletes every relationship of exactly this scope, appends to the audit log, and returns their number. After an
    /// error, call it again to delete the rest.
    pub async fn delete_scope(&self, context: &AuditContext) -> Result<u64> {
        let (scopes, reach) = (self.stores.scopes(&self.scope), Reach::Exact(self.scope.clone()));
        // Checks read the forward record: it is removed first, where an engine keeps kinds apart.
        let kinds = vec![Kind::Relationship, Kind::RelationshipReverse];
        let removed = scopes.delete_kinds(kinds, &reach, context).await?.finish().await?;
        let _ = self.stores.reconcile_below(&reach).await?;
        Ok(removed.records.get(&Kind::Relationship).copied().unwrap_or_default())
    }

    /// Removes some of the relationships under `prefix`, each with its other end, and returns whether there may be
    /// more.
    pub(super) async fn erase_both_ends(&self, prefix: &Prefix) -> Result<Erased> {
        let now = self.stores.now()?;
        let page = self.stores.backend().scan(prefix, None, Batch::MAX_WRITES / 2, now).await?;
        let mut deletes = Vec::new();
        for (key, _) in &page.items {
            let ends = keys(&self.scope, &relationship::edge_of(key)?)?;
            deletes.extend(ends.map(|key| Write::Delete { key }));
        }
        if !deletes.is_empty() {
            // A delete has no condition that could be refused.
            let _ = self.stores.backend().commit(Batch::new(deletes)?, now).await?;
        }
        for (key, _) in &page.items {
            self.remove_belongings(&relationship::edge_of(key)?).await?;
        }
        Ok(Erased { removed: page.items.len() as u64, more: page.next.is_some() })
    }

    async fn page(
        &self,
        kind: Kind,
        name: &str,
        relation_type: Option<&RelationType>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<Related>> {
        check_limit(limit)?;
        if self.stores.is_deleted(&self.scope, &[Principal::Owner(name)], self.stores.now()?).await? {
            return Ok(Listing { items: Vec::new(), next: None });
        }
        let sort = relation_type.map(RelationType::parts).unwrap_or_default();
        let prefix = Prefix::partition(kind, &self.scope, &[name.into()], &sort)?;
        let page = self.stores.backend().scan(&prefix, after, limit, self.stores.now()?).await?;
        Listing::read(page, |key, record| Related::read(&key, &record))
    }

    fn handle<'a>(&'a self, edge: &'a Edge) -> Result<RecordHandle<'a>> {
        Ok(RecordHandle {
            stores: &self.stores,
            scope: &self.scope,
            keys: keys(&self.scope, edge)?.into(),
            target: target_of(edge),
            whose: principals(edge).into(),
            lifetime: lifetime_of,
        })
    }
}

/// Names of a relationship in the audit log.
pub(crate) fn target_of(edge: &Edge) -> Vec<String> {
    let Edge { subject, relation, object, relation_type } = edge.clone();
    vec![subject, relation_type.to_string(), relation, object]
}

/// Lifetime of a stored relationship.
pub(crate) fn lifetime_of(record: &Record) -> Result<Lifetime> {
    Ok(codec::decode::<StoredRelationship>(&record.value)?.lifetime)
}

/// Answer to an addition by a caller that may not extend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "only `Added` is an addition"]
#[non_exhaustive]
pub enum AddOutcome {
    /// It was added, and the audit log has an entry.
    Added(Box<Related>),
    /// There is one already, and the new one would live longer: extend it instead.
    Longer {
        /// Time at which the present one expires.
        expires_at: Timestamp,
    },
}

/// Keys of a relationship and of its reverse.
pub(crate) fn keys_of(scope: &Scope, edge: &Edge) -> Result<[Key; 2]> {
    keys(scope, edge)
}

/// Subject, relation, object and type of a key.
pub(crate) fn edge_of(key: &Key) -> Result<Edge> {
    relationship::edge_of(key)
}

/// Key of the reverse of a relationship.
pub(crate) fn reverse_of(key: &Key) -> Result<Key> {
    let [_, reverse] = keys(&key.scope(), &relationship::edge_of(key)?)?;
    Ok(reverse)
}

/// Owners at both ends.
fn principals(edge: &Edge) -> [Principal<'_>; 2] {
    [Principal::Owner(&edge.subject), Principal::Owner(&edge.object)]
}

/// Keys of a relationship and of its reverse.
fn keys(scope: &Scope, edge: &Edge) -> Result<[Key; 2]> {
    let key = |kind, from: &str, to: &str| {
        let mut sort = edge.relation_type.parts();
        sort.extend([Part::from(edge.relation.as_str()), to.into()]);
        Key::new(kind, scope, &[from.into()], &sort)
    };
    Ok([
        key(Kind::Relationship, &edge.subject, &edge.object)?,
        key(Kind::RelationshipReverse, &edge.object, &edge.subject)?,
    ])
}
