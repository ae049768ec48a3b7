//! Links from a record to what it belongs to: it is removed with it.
//!
//! A link is written before the record that has it, and the record is taken back if the link is gone afterwards: there
//! is no record without its link. A removal takes every link of what it removes, also those whose record is not written
//! yet. A link whose record is absent is harmless, and [`Belongings::reconcile`] removes it.
//!
//! The records of frameworks are written and removed with their links in one commit, and say themselves what they belong
//! to.

use std::future::ready;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use serde::Deserialize;

use super::deletion::Removed;
use super::paging::Pages;
use super::update::Step;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::Stores;
use crate::stores::audit::{Action, Note};
use crate::stores::grants::GrantId;
use crate::stores::registry;
use crate::stores::relationships::{Edge, keys_of, target_of};

/// Partition of the links from a record to what it belongs to.
const UP: &str = "belongs-to";

/// Record that another one belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = BelongsTo))]
#[non_exhaustive]
pub enum Parent {
    /// An owner, a subject or a peer.
    #[serde(alias = "peer")]
    Owner(String),
    /// A client.
    Client(String),
    /// A grant, by its id.
    Grant(String),
    /// A relationship, such as a trust.
    Relationship(Edge),
}

impl Parent {
    /// Refuses the id of no grant.
    pub(crate) fn check(&self) -> Result<()> {
        if let Self::Grant(id) = self {
            let _: GrantId = id.parse()?;
        }
        Ok(())
    }

    pub(crate) fn parts(&self) -> Vec<String> {
        match self {
            Self::Owner(owner) => vec!["owner".to_owned(), owner.clone()],
            Self::Client(client) => vec!["client".to_owned(), client.clone()],
            Self::Grant(id) => vec!["grant".to_owned(), id.clone()],
            Self::Relationship(edge) => vec![
                "relationship".to_owned(),
                edge.subject.clone(),
                edge.relation_type.to_string(),
                edge.relation.clone(),
                edge.object.clone(),
            ],
        }
    }

    pub(crate) fn read(parts: &[String]) -> Result<Self> {
        match parts {
            [form, owner] if form == "owner" => Ok(Self::Owner(owner.clone())),
            [form, client] if form == "client" => Ok(Self::Client(client.clone())),
            [form, id] if form == "grant" => Ok(Self::Grant(id.clone())),
            [form, subject, kind, relation, object] if form == "relationship" => {
                Ok(Self::Relationship(Edge::new(subject, relation, object, kind.parse()?)))
            }
            _ => Err(Error::corrupt("a link names nothing that a record belongs to")),
        }
    }

    fn digest(&self) -> Digest {
        let parts = self.parts();
        let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
        Digest::of("belongs-to", &parts)
    }
}

/// Link of a record, as it is stored.
#[derive(Encode, Decode)]
struct Link {
    /// Code of the record's kind.
    #[n(0)]
    kind: u8,
    #[n(1)]
    key: ByteVec,
    #[n(2)]
    parent: Vec<String>,
}

impl Link {
    fn child(&self) -> Result<Key> {
        let kind = Kind::from_code(self.kind).ok_or_else(|| Error::corrupt("no kind has this code"))?;
        Key::decode(kind, &self.key)
    }
}

/// Records that belong to others, in one scope.
#[derive(Debug, Clone)]
pub struct Belongings {
    pub(super) stores: Stores,
    pub(super) scope: Scope,
}

/// Record that belongs to another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Belonging {
    /// Kind of the record.
    pub kind: Kind,
    /// Its names, such as owner, bucket and name.
    pub names: Vec<String>,
}

/// Result of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reconciled {
    /// Links that were removed since their record is gone.
    pub links: u64,
    /// Records that were removed since what they belonged to is gone.
    pub records: u64,
}

impl Stores {
    /// Records of a scope that belong to others.
    #[must_use]
    pub fn belongings(&self, scope: &Scope) -> Belongings {
        Belongings { stores: self.clone(), scope: scope.clone() }
    }

    /// Removes links whose record is gone, and records whose client, grant or relationship is gone, in every scope of
    /// `reach`. It reads every link.
    pub async fn reconcile_below(&self, reach: &Reach) -> Result<Reconciled> {
        self.reconcile_links(&Prefix::reach(Kind::System, reach)?).await
    }

    async fn reconcile_links(&self, prefix: &Prefix) -> Result<Reconciled> {
        let (mut pages, mut done) = (Pages::new(self, prefix, 100), Reconciled::default());
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                if key.partition().first() == Some(&Part::from(UP)) {
                    let belongings = self.belongings(&key.scope());
                    belongings.check(&codec::decode(&record.value)?, &mut done).await?;
                }
            }
        }
        Ok(done)
    }

    /// Removes index records whose record is gone, and returns their number. Both are written in one commit, so that an
    /// index record without its record leads to nothing and never will.
    async fn unlist(&self, reach: &Reach) -> Result<u64> {
        let mut removed = 0;
        for (kind, target) in registry::indexes() {
            let prefix = Prefix::reach(kind, reach)?;
            let mut pages = Pages::new(self, &prefix, 100);
            while let Some(items) = pages.next().await? {
                for (key, record) in items {
                    let Some(target) = target(&key, &record) else { continue };
                    let now = self.now()?;
                    if self.backend().get(&target, now).await?.is_none() {
                        let removal = self.backend().remove(key, record.version, now).await?;
                        removed += u64::from(removal.is_applied());
                    }
                }
            }
        }
        Ok(removed)
    }
}

impl Belongings {
    /// Links a record that is about to be written, in place of an earlier link.
    pub(crate) async fn link(&self, parent: &Parent, child: &Key) -> Result<()> {
        parent.check()?;
        let mut writes = Vec::from(self.links(parent, child)?);
        if let Some(earlier) = self.parent(child).await?.filter(|earlier| earlier != parent) {
            writes.push(Write::Delete { key: self.down(&earlier, child)? });
        }
        // A put has no condition that could be refused.
        let _ = self.stores.backend().commit(Batch::new(writes)?, self.stores.now()?).await?;
        Ok(())
    }

    /// Writes that link a record.
    pub(crate) fn links(&self, parent: &Parent, child: &Key) -> Result<[Write; 2]> {
        let link =
            Link { kind: child.kind().code(), key: child.as_bytes().to_vec().into(), parent: parent.parts() };
        let put = |key| {
            let record = self.stores.record(codec::encode(&link), Timestamp::NEVER);
            Write::Put { key, record }
        };
        Ok([put(self.up(child)?), put(self.down(parent, child)?)])
    }

    /// Writes that remove the links of a record: the one from it, and the one to it.
    pub(crate) fn unlinks(&self, parent: &Parent, child: &Key) -> Result<[Write; 2]> {
        Ok([self.up(child)?, self.down(parent, child)?].map(|key| Write::Delete { key }))
    }

    /// Names of a record that is linked to `parent`; none if it is not there, or names another.
    async fn names_of(&self, parent: &Parent, child: &Key) -> Result<Option<Vec<String>>> {
        if child.kind() == Kind::Record {
            return self.stores.records(&self.scope).names_if_of(child, parent).await;
        }
        Ok(self.stores.backend().get(child, self.stores.now()?).await?.map(|_| names(child)))
    }

    /// Returns whether the link of a record that was written is still there: otherwise its parent was deleted
    /// meanwhile.
    async fn is_linked(&self, parent: &Parent, child: &Key) -> Result<bool> {
        Ok(self.stores.backend().get(&self.down(parent, child)?, self.stores.now()?).await?.is_some())
    }

    /// Takes a record that was written back if its link is gone.
    pub(crate) async fn keep_or_take_back(&self, parent: &Parent, keys: &[Key]) -> Result<()> {
        let Some(child) = keys.first() else { return Ok(()) };
        if self.is_linked(parent, child).await? {
            return Ok(());
        }
        let deletes = keys.iter().map(|key| Write::Delete { key: key.clone() }).collect();
        // A delete has no condition that could be refused.
        let _ = self.stores.backend().commit(Batch::new(deletes)?, self.stores.now()?).await?;
        Err(Error::invalid("what the record belongs to was deleted meanwhile"))
    }

    /// Record that another one belongs to, if it does.
    async fn parent(&self, child: &Key) -> Result<Option<Parent>> {
        let up = self.stores.backend().get(&self.up(child)?, self.stores.now()?).await?;
        up.map(|up| Parent::read(&codec::decode::<Link>(&up.value)?.parent)).transpose()
    }

    /// Lists every record that would be removed with `parent`: those that it has, those that belong to it, and those
    /// that belong to these.
    pub async fn list(&self, parent: &Parent) -> Result<Vec<Belonging>> {
        let (mut found, mut parents, mut seen) = (Vec::new(), vec![parent.clone()], Vec::new());
        while let Some(parent) = parents.pop() {
            if seen.contains(&parent) {
                continue;
            }
            let (owned, more) = self.owned(&parent).await?;
            found.extend(owned);
            parents.extend(more);
            for child in self.children(&parent).await? {
                let Some(names) = self.names_of(&parent, &child).await? else { continue };
                if let Some(edge) = edge_of(&child)? {
                    parents.push(Parent::Relationship(edge));
                }
                let belonging = Belonging { kind: child.kind(), names };
                if !found.contains(&belonging) {
                    found.push(belonging);
                }
            }
            seen.push(parent);
        }
        Ok(found)
    }

    /// Removes every record that belongs to `parent`, and what belongs to those. After an error, another call removes
    /// the rest.
    pub(crate) async fn remove(&self, parent: &Parent, removed: &mut Removed) -> Result<()> {
        let mut parents = vec![parent.clone()];
        while let Some(parent) = parents.pop() {
            for child in self.children(&parent).await? {
                if child.kind() == Kind::Record {
                    let gone = self.stores.records(&self.scope).remove_if_of(&child, &parent).await?;
                    removed.add(Kind::Record, u64::from(gone));
                    continue;
                }
                let mut writes = Vec::from(self.unlinks(&parent, &child)?);
                let is_there = self.stores.backend().get(&child, self.stores.now()?).await?.is_some();
                removed.add(child.kind(), u64::from(is_there));
                let mut note = None;
                if let Some(edge) = edge_of(&child)? {
                    writes.extend(keys_of(&self.scope, &edge)?.map(|key| Write::Delete { key }));
                    let revoked = Note::automatic(Action::Revoke, "what it belonged to was removed")?;
                    note = is_there.then(|| revoked.about(Kind::Relationship, target_of(&edge)));
                    parents.push(Parent::Relationship(edge));
                } else {
                    writes.push(Write::Delete { key: child.clone() });
                }
                let delete = self.stores.retry(|_| {
                    let step = Step::write(writes.clone(), ());
                    ready(Ok(match &note {
                        Some(note) => step.audited(&self.scope, note.clone()),
                        None => step,
                    }))
                });
                delete.await?;
            }
        }
        Ok(())
    }

    /// Removes links whose record is gone, records whose client, grant or relationship is gone, and index records whose
    /// record is gone, in exactly this scope.
    pub async fn reconcile(&self) -> Result<Reconciled> {
        let prefix = Prefix::partition(Kind::System, &self.scope, &[UP.into()], &[])?;
        let mut done = self.stores.reconcile_links(&prefix).await?;
        done.links += self.stores.unlist(&Reach::Exact(self.scope.clone())).await?;
        Ok(done)
    }

    /// Looks after one link.
    async fn check(&self, link: &Link, done: &mut Reconciled) -> Result<()> {
        let (child, parent, now) = (link.child()?, Parent::read(&link.parent)?, self.stores.now()?);
        if child.kind() == Kind::Record && self.names_of(&parent, &child).await?.is_none() {
            let _ = self.stores.records(&self.scope).remove_if_of(&child, &parent).await?;
            done.links += 1;
        } else if self.stores.backend().get(&child, now).await?.is_none() {
            let deletes = self.unlinks(&parent, &child)?;
            let _ = self.stores.backend().commit(Batch::new(deletes.into())?, now).await?;
            done.links += 1;
        } else if self.is_gone(&parent).await? {
            let mut removed = Removed::default();
            self.remove(&parent, &mut removed).await?;
            done.records += removed.total();
        }
        Ok(())
    }

    /// Returns whether a client, a grant or a relationship is absent. Of an owner that cannot be told: it may have no
    /// record.
    async fn is_gone(&self, parent: &Parent) -> Result<bool> {
        match parent {
            Parent::Owner(_) => Ok(false),
            Parent::Client(client) => Ok(self.stores.clients(&self.scope).find(client).await?.is_none()),
            Parent::Grant(id) => {
                let grants = self.stores.grants(&self.scope);
                Ok(grants.active(id.parse()?, self.stores.now()?).await?.is_none())
            }
            Parent::Relationship(edge) => {
                let [forward, _] = keys_of(&self.scope, edge)?;
                Ok(self.stores.backend().get(&forward, self.stores.now()?).await?.is_none())
            }
        }
    }

    /// Records that are linked to `parent`, and name it as theirs. They may not be written yet.
    async fn children(&self, parent: &Parent) -> Result<Vec<Key>> {
        let digest = parent.digest();
        let partition = ["belongings".into(), digest.part()];
        let prefix = Prefix::partition(Kind::System, &self.scope, &partition, &[])?;
        let now = self.stores.now()?;
        let mut children = Vec::new();
        for (_, record) in self.stores.backend().scan_all(&prefix, now).await? {
            let child = codec::decode::<Link>(&record.value)?.child()?;
            if self.parent(&child).await?.as_ref() == Some(parent) {
                children.push(child);
            }
        }
        Ok(children)
    }

    fn up(&self, child: &Key) -> Result<Key> {
        Key::new(Kind::System, &self.scope, &[UP.into()], &[digest_of(child).part()])
    }

    fn down(&self, parent: &Parent, child: &Key) -> Result<Key> {
        let digest = parent.digest();
        let partition = ["belongings".into(), digest.part()];
        Key::new(Kind::System, &self.scope, &partition, &[digest_of(child).part()])
    }
}

fn digest_of(child: &Key) -> Digest {
    Digest::of("belonging", &[&[child.kind().code()], child.as_bytes()])
}

fn edge_of(child: &Key) -> Result<Option<Edge>> {
    (child.kind() == Kind::Relationship).then(|| crate::stores::relationships::edge_of(child)).transpose()
}

pub(super) fn names(child: &Key) -> Vec<String> {
    let text = |part: &Part<'_>| match part {
        Part::Text(text) => Some(text.to_string()),
        _ => None,
    };
    child.partition().iter().chain(&child.sort()).filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Memory;
    use crate::model::time::ManualClock;

    /// The removal comes between the link of a record and the record.
    #[test]
    fn a_record_that_is_written_after_the_removal_of_its_parent_is_taken_back() {
        pollster::block_on(async {
            let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
            let stores = Stores::builder(Arc::new(Memory::default())).clock(clock).build();
            let scope = Scope::tenant("acme").unwrap();
            let belongings = stores.belongings(&scope);
            for parent in [Parent::Owner("bob".to_owned()), Parent::Client("app".to_owned())] {
                let key =
                    Key::new(Kind::Attribute, &scope, &["alice".into()], &["b".into(), "n".into()]).unwrap();
                belongings.link(&parent, &key).await.unwrap();
                belongings.remove(&parent, &mut Removed::default()).await.unwrap();
                let record = stores.record(Vec::new(), Timestamp::NEVER);
                let now = stores.now().unwrap();
                let _ = stores.backend().put(key.clone(), record, now).await.unwrap();
                let kept = belongings.keep_or_take_back(&parent, std::slice::from_ref(&key)).await;
                assert!(kept.is_err(), "{parent:?}");
                assert_eq!(stores.backend().get(&key, now).await.unwrap(), None);
            }
        });
    }

    #[test]
    fn a_record_that_is_linked_anew_leaves_no_link_behind() {
        pollster::block_on(async {
            let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
            let stores = Stores::builder(Arc::new(Memory::default())).clock(clock).build();
            let scope = Scope::Global;
            let belongings = stores.belongings(&scope);
            let key =
                Key::new(Kind::Attribute, &scope, &["alice".into()], &["b".into(), "n".into()]).unwrap();
            for owner in ["bob", "carol"] {
                belongings.link(&Parent::Owner(owner.to_owned()), &key).await.unwrap();
            }
            let prefix = Prefix::reach(Kind::System, &Reach::Exact(scope)).unwrap();
            let links = stores.backend().scan_all(&prefix, stores.now().unwrap()).await.unwrap();
            assert_eq!(links.len(), 2, "one up, one down");
        });
    }
}
