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
mod moving;
mod relationship;
mod search;

use futures_util::future::join_all;

pub use graph::{Reached, TransitiveOutcome};
pub(crate) use relationship::edge_of;
pub use relationship::{Edge, Related, RelationType, Relationship};
pub use search::RelationshipFilter;

use super::approvals::{MAX_BATCH, Origin, StoredGrant, check_batch, lifetime_of};
use super::registry::Store;
use super::shared::belongings::Parent;
use super::shared::deletion::{Owned, Progress, Removed};
use super::shared::extension::{ExtendOutcome, Extension};
use super::shared::finding::Finding;
use super::shared::lifetime::{GrantRights, Import, Lifetime, Present, RecordHandle, RestoreTerms, Restored};
use super::shared::paging::{Listing, bounded, check_limit};
use super::shared::parents::{MetParents, ParentName};
use super::shared::tombstones::Principal;
use super::{Stores, name_member};
use crate::admin::Erased;
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::audit::AuditContext;

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
        let mut handle = there.handle(&edge)?;
        handle.whose.extend(relationship.belongs_to.as_ref().and_then(Parent::owner));
        let terms = &GrantRights { granted_by: &relationship.created_by, may_lengthen };
        let belongings = &self.stores.belongings(&there.scope);
        let (handle, scope) = (&handle, &there.scope);
        let update = self.stores.retry(|now| async move {
            let present = handle.present(now).await?;
            let parent = match &relationship.belongs_to {
                Some(parent) => belongings.name_of(parent, now).await?,
                None => ParentName::default(),
            };
            let (born, earlier) = match &present {
                Some(Present::Live(record)) => standing_of(record)?,
                Some(Present::Ended(record)) => (Some(self.birth()), standing_of(record)?.1),
                None => (Some(self.birth()), None),
            };
            let (lifetime, expires_at) =
                relationship.lifetime().begin(&self.stores, Kind::Relationship, scope, None, now)?;
            let origin = Origin { parent: parent.clone(), born };
            let ([forward, _], record) = self.prepare(relationship, lifetime, expires_at, origin)?;
            let links = belongings.relinks(earlier.as_ref(), &parent, &forward)?;
            let added = AddOutcome::Added(Box::new(Related::read(&forward, &record)?));
            let longer = |expires_at| (AddOutcome::Longer { expires_at }, None);
            let step = handle.grant(present, (lifetime, &record), terms, (added, Some(parent)), longer)?;
            Ok(step.and(links))
        });
        let (outcome, parent) = update.await?;
        if let (Some(parent), AddOutcome::Added(related)) = (&parent, &outcome) {
            belongings.keep_or_take_back(parent, &handle.keys, related.version).await?;
        }
        Ok(outcome)
    }

    /// Mints the birth of a relationship.
    fn birth(&self) -> u64 {
        u64::from_be_bytes(self.stores.rng().bytes())
    }

    /// Writes an imported relationship with its lifetime and its link, if none exists.
    pub(crate) async fn restore(
        &self,
        relationship: &Relationship,
        lifetime: Lifetime,
        expires_at: Timestamp,
        dated: bool,
        import: Import<'_>,
    ) -> Result<Restored> {
        let (belongings, dry_run) = (self.stores.belongings(&self.scope), import.dry_run);
        let parent = belongings.name_of_imported(relationship.belongs_to.as_ref(), dry_run).await?;
        let origin = Origin { parent: parent.clone(), born: Some(self.birth()) };
        let (keys, record) = self.prepare(relationship, lifetime, expires_at, origin)?;
        let (edge, version) = (relationship.edge(), record.version);
        let note = Some(&import.note(Kind::Relationship, target_of(&edge), expires_at)?);
        let terms = RestoreTerms { dry_run, note, links: belongings.links(&parent, &keys[0])? };
        let mut whose = principals(&edge).to_vec();
        whose.extend(relationship.belongs_to.as_ref().and_then(Parent::owner));
        let all = keys.to_vec();
        let restored = StoredGrant::restore(&self.stores, all, &whose, record, dated, terms).await?;
        if restored == Restored::Written && !dry_run {
            belongings.keep_or_take_back(&parent, &keys, version).await?;
        }
        Ok(restored)
    }

    fn prepare(
        &self,
        relationship: &Relationship,
        lifetime: Lifetime,
        expires_at: Timestamp,
        origin: Origin,
    ) -> Result<([Key; 2], Record)> {
        let scope = relationship.scope.as_ref().unwrap_or(&self.scope);
        self.scope.require(scope)?;
        let Relationship { created_by, metadata, .. } = relationship;
        let value =
            StoredGrant::encode("the maker of a relationship", created_by, metadata, lifetime, Some(origin))?;
        Ok((keys_of(scope, &relationship.edge())?, self.stores.record(value, expires_at)))
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
        self.delete_all(false, context).await
    }

    /// Removes some of the relationships under `prefix`, each with its other end, and returns whether there may be
    /// more.
    pub(super) async fn erase_both_ends(&self, prefix: &Prefix) -> Result<Erased> {
        let now = self.stores.now()?;
        let page = self.stores.backend().scan(prefix, None, Batch::MAX_WRITES / 2, now).await?;
        let mut deletes = Vec::new();
        for (key, _) in &page.items {
            let ends = keys_of(&self.scope, &edge_of(key)?)?;
            deletes.extend(ends.map(|key| Write::Delete { key }));
        }
        if !deletes.is_empty() {
            // A delete has no condition that could be refused.
            let _ = self.stores.backend().commit(Batch::new(deletes)?, now).await?;
        }
        for (key, _) in &page.items {
            self.remove_belongings(&edge_of(key)?).await?;
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
        let now = self.stores.now()?;
        let mut page = bounded(&self.stores, &prefix, after, limit, now).await?;
        let (mut parents, mut ended) = (MetParents::new(&self.stores, now), Vec::new());
        for (_, record) in &page.items {
            ended.push(parents.ended(&self.scope, standing_of(record)?.1.as_ref()).await?);
        }
        let mut ended = ended.into_iter();
        page.items.retain(|_| ended.next() == Some(false));
        Listing::read(page, |key, record| Related::read(&key, &record))
    }

    fn handle<'a>(&'a self, edge: &'a Edge) -> Result<RecordHandle<'a>> {
        Ok(RecordHandle {
            stores: &self.stores,
            scope: &self.scope,
            keys: keys_of(&self.scope, edge)?.into(),
            target: target_of(edge),
            whose: principals(edge).into(),
            lifetime: lifetime_of,
            parent: |record| Ok(standing_of(record)?.1),
        })
    }
}

/// Birth of a relationship, and the record that it belongs to; neither if an earlier version wrote it.
pub(crate) fn standing_of(record: &Record) -> Result<(Option<u64>, Option<ParentName>)> {
    let StoredGrant { born, parent, .. } = codec::decode(&record.value)?;
    Ok((born, parent))
}

/// Names of a relationship in the audit log.
pub(crate) fn target_of(edge: &Edge) -> Vec<String> {
    let Edge { subject, relation, object, relation_type } = edge.clone();
    vec![subject, relation_type.to_string(), relation, object]
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

/// Key of the reverse of a relationship.
pub(crate) fn reverse_of(key: &Key) -> Result<Key> {
    let [_, reverse] = keys_of(&key.scope(), &edge_of(key)?)?;
    Ok(reverse)
}

/// Owners at both ends.
fn principals(edge: &Edge) -> [Principal<'_>; 2] {
    [Principal::Owner(&edge.subject), Principal::Owner(&edge.object)]
}

/// Keys of a relationship and of its reverse.
pub(crate) fn keys_of(scope: &Scope, edge: &Edge) -> Result<[Key; 2]> {
    let key = |kind, from: &str, to: &str| {
        let mut sort = edge.relation_type.parts();
        sort.extend([Part::from(edge.relation.as_str()), to.into()]);
        let key = Key::new(kind, scope, &[from.into()], &sort);
        let names = [("subject", &edge.subject), ("relation", &edge.relation), ("object", &edge.object)];
        name_member(key, &names.map(|(member, name)| (member, name.as_str())))
    };
    Ok([
        key(Kind::Relationship, &edge.subject, &edge.object)?,
        key(Kind::RelationshipReverse, &edge.object, &edge.subject)?,
    ])
}
