//! Links from a record to what it belongs to: it is removed with it.
//!
//! A record says itself what it belongs to, and is written together with its links in one commit. Afterwards its writer
//! looks at the parent again, and takes the record back if it is gone: a removal that begins later finds the link. A link
//! whose record is absent, or names another parent, leads to nothing, and [`Belongings::reconcile`] removes it.
//!
//! Provider tokens are sealed, and records of earlier versions name no parent: theirs is in the link alone.

use std::collections::HashSet;

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::deletion::Removed;
use super::paging::Pages;
pub use super::parents::Parent;
use super::parents::ParentName;
use super::update::Step;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::audit::{Action, Note};
use crate::stores::relationships::{Edge, keys_of, target_of};
use crate::stores::{Stores, attributes, registry, relationships};
use crate::timekeeping::Now;

/// Partition of the links from a record to what it belongs to.
const UP: &str = "belongs-to";

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
    /// Birth of the parent.
    #[n(3)]
    born: Option<u64>,
}

impl Link {
    fn name(self) -> ParentName {
        ParentName::of_parts(self.parent, self.born)
    }

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

    /// Removes, besides what [`reconcile_below`](Self::reconcile_below) removes, index records whose record is gone. It
    /// reads every link and every index record.
    pub async fn reconcile_all(&self, reach: &Reach) -> Result<Reconciled> {
        let mut done = self.reconcile_below(reach).await?;
        done.links += self.unlist(reach).await?;
        Ok(done)
    }

    async fn reconcile_links(&self, prefix: &Prefix) -> Result<Reconciled> {
        let (mut pages, mut done) = (Pages::new(self, prefix, 100), Reconciled::default());
        while let Some(items) = pages.next().await? {
            for (key, record) in &items {
                if key.partition().first() == Some(&Part::from(UP)) {
                    let belongings = self.belongings(&key.scope());
                    belongings.check(codec::decode(&record.value)?, &mut done).await?;
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

/// Record at the far end of a link.
enum Child {
    /// There is none.
    Absent,
    /// It belongs to another, or to nothing.
    Other(Record),
    /// It belongs to the parent that was asked about, by this name.
    Of(Record, ParentName),
}

impl Belongings {
    /// Writes that link a record.
    pub(crate) fn links(&self, name: &ParentName, child: &Key) -> Result<Vec<Write>> {
        let Some(parent) = name.parent()? else { return Ok(Vec::new()) };
        let (key, kind) = (child.as_bytes().to_vec().into(), child.kind().code());
        let link = Link { kind, key, parent: parent.parts(), born: name.born() };
        let put = |key| {
            let record = self.stores.record(codec::encode(&link), Timestamp::NEVER);
            Write::Put { key, record }
        };
        Ok(vec![put(self.up(child)?), put(self.down(&parent, child)?)])
    }

    /// Writes that link a record, in place of an earlier link.
    pub(crate) fn relinks(
        &self,
        earlier: Option<&ParentName>,
        name: &ParentName,
        child: &Key,
    ) -> Result<Vec<Write>> {
        let mut writes = self.links(name, child)?;
        let parent = name.parent()?;
        if let Some(earlier) = earlier.map(ParentName::parent).transpose()?.flatten()
            && Some(&earlier) != parent.as_ref()
        {
            writes.push(Write::Delete { key: self.down(&earlier, child)? });
            if parent.is_none() {
                writes.push(Write::Delete { key: self.up(child)? });
            }
        }
        Ok(writes)
    }

    /// Writes that remove the links of a record: the one from it, and the one to it.
    pub(crate) fn unlinks(&self, parent: &Parent, child: &Key) -> Result<[Write; 2]> {
        Ok([self.up(child)?, self.down(parent, child)?].map(|key| Write::Delete { key }))
    }

    /// Removes the links of a record that was removed. One that stays behind leads to nothing.
    pub(crate) async fn unlink(&self, name: &ParentName, child: &Key, now: Now) -> Result<()> {
        if let Some(parent) = name.parent()? {
            let mut writes = Vec::from(self.unlinks(&parent, child)?);
            // Unless another writer has linked it anew.
            writes.push(Write::Absent { key: child.clone() });
            let _ = self.stores.backend().commit(Batch::new(writes)?, now).await?;
        }
        Ok(())
    }

    /// Looks at the parent of a record that was written, and takes the record back if it is gone.
    pub(crate) async fn keep_or_take_back(
        &self,
        name: &ParentName,
        keys: &[Key],
        version: Version,
    ) -> Result<()> {
        let now = self.stores.now()?;
        let (Some(parent), Some((child, mirrors))) = (name.parent()?, keys.split_first()) else {
            return Ok(());
        };
        if !self.has_ended(name, now).await? {
            return Ok(());
        }
        let mut writes = vec![Write::Remove { key: child.clone(), expected: version }];
        writes.extend(mirrors.iter().map(|key| Write::Delete { key: key.clone() }));
        writes.extend(self.unlinks(&parent, child)?);
        // If another writer has replaced it, it is theirs.
        let _ = self.stores.backend().commit(Batch::new(writes)?, now).await?;
        Err(Error::invalid("what the record belongs to was deleted meanwhile").about("belongs_to"))
    }

    /// Key of the link from a record.
    pub(crate) fn up(&self, child: &Key) -> Result<Key> {
        Key::new(Kind::System, &self.scope, &[UP.into()], &[digest_of(child).part()])
    }

    /// Parent that a link names.
    pub(crate) fn name_in(link: &Record) -> Result<ParentName> {
        Ok(codec::decode::<Link>(&link.value)?.name())
    }

    /// Parent that the link from a record names, if there is one.
    async fn linked(&self, child: &Key, now: Now) -> Result<Option<ParentName>> {
        let up = self.stores.backend().get(&self.up(child)?, now).await?;
        up.as_ref().map(Self::name_in).transpose()
    }

    /// Record that a link of `parent` leads to.
    async fn child(&self, parent: &Parent, child: &Key, now: Now) -> Result<Child> {
        let Some(record) = self.stores.backend().get(child, now).await? else { return Ok(Child::Absent) };
        let named = match child.kind() {
            Kind::Attribute => attributes::parent_of(&record)?,
            Kind::Relationship => relationships::standing_of(&record)?.1,
            _ => None,
        };
        let name = match named {
            Some(name) => Some(name),
            None => self.linked(child, now).await?,
        };
        Ok(match name {
            Some(name) if name.parent()?.as_ref() == Some(parent) => Child::Of(record, name),
            _ => Child::Other(record),
        })
    }

    /// Names of a record that belongs to `parent`; none if it is not there, or belongs to another.
    async fn names_of(&self, parent: &Parent, child: &Key) -> Result<Option<Vec<String>>> {
        if child.kind() == Kind::Record {
            return self.stores.records(&self.scope).names_if_of(child, parent).await;
        }
        let found = self.child(parent, child, self.stores.now()?).await?;
        Ok(matches!(found, Child::Of(..)).then(|| names(child)))
    }

    /// Lists every record that would be removed with `parent`: those that it has, those that belong to it, and those
    /// that belong to these.
    pub async fn list(&self, parent: &Parent) -> Result<Vec<Belonging>> {
        let (mut found, mut parents) = (Vec::new(), vec![parent.clone()]);
        let (mut known, mut seen) = (HashSet::new(), HashSet::new());
        while let Some(parent) = parents.pop() {
            if !seen.insert(parent.parts()) {
                continue;
            }
            let (owned, more) = self.owned(&parent).await?;
            found.extend(owned.into_iter().filter(|belonging| known.insert(belonging.clone())));
            parents.extend(more);
            for child in self.children(&parent).await? {
                let Some(names) = self.names_of(&parent, &child).await? else { continue };
                if let Some(edge) = edge_of(&child)? {
                    parents.push(Parent::Relationship(edge));
                }
                let belonging = Belonging { kind: child.kind(), names };
                if known.insert(belonging.clone()) {
                    found.push(belonging);
                }
            }
        }
        Ok(found)
    }

    /// Removes every record that belongs to `parent`, and what belongs to those. After an error, another call removes
    /// the rest.
    pub(crate) async fn remove(&self, parent: &Parent, removed: &mut Removed) -> Result<()> {
        let mut parents = vec![parent.clone()];
        while let Some(parent) = parents.pop() {
            for child in self.children(&parent).await? {
                parents.extend(self.remove_child(&parent, &child, removed).await?);
            }
        }
        Ok(())
    }

    /// Removes a record that belongs to `parent`, and its links; only the links, if it does not. Returns it as a parent
    /// if others may belong to it.
    async fn remove_child(
        &self,
        parent: &Parent,
        child: &Key,
        removed: &mut Removed,
    ) -> Result<Option<Parent>> {
        if child.kind() == Kind::Record {
            let gone = self.stores.records(&self.scope).remove_if_of(child, parent).await?;
            removed.add(Kind::Record, u64::from(gone));
            return Ok(None);
        }
        let edge = &edge_of(child)?;
        let is_removed = self.stores.retry(|now| async move {
            let [up, down] = self.unlinks(parent, child)?;
            let key = child.clone();
            Ok(match self.child(parent, child, now).await? {
                Child::Of(record, _) => {
                    let mut writes = vec![up, down, Write::Remove { key, expected: record.version }];
                    let Some(edge) = edge else { return Ok(Step::write(writes, true)) };
                    let [_, reverse] = keys_of(&self.scope, edge)?;
                    writes.push(Write::Delete { key: reverse });
                    let revoked = Note::automatic(Action::Revoke, "what it belonged to was removed")?;
                    let note = revoked.about(Kind::Relationship, target_of(edge));
                    Step::write(writes, true).audited(&self.scope, note)
                }
                // The links go only if the record is still the one that was read. The link from a record that belongs to
                // another is that one's.
                Child::Other(record) => {
                    let name = self.linked(child, now).await?;
                    let is_own =
                        name.map(|name| name.parent()).transpose()?.flatten().as_ref() == Some(parent);
                    let mut writes = if is_own { vec![up, down] } else { vec![down] };
                    writes.push(Write::Check { key, expected: record.version });
                    Step::write(writes, false)
                }
                Child::Absent => Step::write(vec![up, down, Write::Absent { key }], false),
            })
        });
        removed.add(child.kind(), u64::from(is_removed.await?));
        // Also if it was absent: an earlier removal may have been interrupted.
        Ok(edge.clone().map(Parent::Relationship))
    }

    /// Removes links whose record is gone, records whose client, grant or relationship is gone, and index records whose
    /// record is gone, in exactly this scope.
    pub async fn reconcile(&self) -> Result<Reconciled> {
        let prefix = Prefix::partition(Kind::System, &self.scope, &[UP.into()], &[])?;
        let mut done = self.stores.reconcile_links(&prefix).await?;
        done.links += self.stores.unlist(&Reach::Exact(self.scope.clone())).await?;
        Ok(done)
    }

    /// Looks after one link from a record.
    async fn check(&self, link: Link, done: &mut Reconciled) -> Result<()> {
        let (child, now) = (link.child()?, self.stores.now()?);
        let Some(parent) = link.name().parent()? else { return Ok(()) };
        let name = if child.kind() == Kind::Record {
            self.stores.records(&self.scope).name_if_of(&child, &parent).await?
        } else {
            match self.child(&parent, &child, now).await? {
                Child::Of(_, name) => Some(name),
                Child::Other(_) | Child::Absent => None,
            }
        };
        let mut removed = Removed::default();
        match name {
            None => {
                let _ = self.remove_child(&parent, &child, &mut removed).await?;
                done.links += 1;
            }
            Some(name) if self.has_ended(&name, now).await? => {
                if let Some(gone) = self.remove_child(&parent, &child, &mut removed).await? {
                    self.remove(&gone, &mut removed).await?;
                }
            }
            Some(_) => {}
        }
        done.records += removed.total();
        Ok(())
    }

    /// Writes that move the link of a record to another scope.
    pub(crate) async fn moved(&self, child: &Key, to: &Key) -> Result<Vec<Write>> {
        let Some(name) = self.linked(child, self.stores.now()?).await? else { return Ok(Vec::new()) };
        let Some(parent) = name.parent()? else { return Ok(Vec::new()) };
        let mut writes = Vec::from(self.unlinks(&parent, child)?);
        writes.extend(self.stores.belongings(&to.scope()).links(&name, to)?);
        Ok(writes)
    }

    /// Records that are linked to `parent`. They may be absent, or name another parent.
    async fn children(&self, parent: &Parent) -> Result<Vec<Key>> {
        let digest = parent.digest();
        let partition = ["belongings".into(), digest.part()];
        let prefix = Prefix::partition(Kind::System, &self.scope, &partition, &[])?;
        let found = self.stores.backend().scan_all(&prefix, self.stores.now()?).await?;
        found.iter().map(|(_, record)| codec::decode::<Link>(&record.value)?.child()).collect()
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
    (child.kind() == Kind::Relationship).then(|| relationships::edge_of(child)).transpose()
}

pub(super) fn names(child: &Key) -> Vec<String> {
    let text = |part: &Part<'_>| match part {
        Part::Text(text) => Some(text.to_string()),
        _ => None,
    };
    child.partition().iter().chain(&child.sort()).filter_map(text).collect()
}
