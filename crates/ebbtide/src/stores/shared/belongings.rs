//! Links from a record to what it belongs to: it is removed with it.
//!
//! A link is written before the record that has it, and the record is taken back if the link is gone afterwards: there
//! is no record without its link. A link whose record is absent is harmless, and [`Belongings::reconcile`] removes it.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use serde::Deserialize;

use super::deletion::Removed;
use super::paging::Pages;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::Stores;
use crate::stores::relationships::{Edge, keys_of};

/// Record that another one belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = BelongsTo))]
#[non_exhaustive]
pub enum Parent {
    /// An owner, a subject or a peer.
    Owner(String),
    /// A client.
    Client(String),
    /// A relationship, such as a trust.
    Relationship(Edge),
}

impl Parent {
    fn parts(&self) -> Vec<String> {
        match self {
            Self::Owner(owner) => vec!["owner".to_owned(), owner.clone()],
            Self::Client(client) => vec!["client".to_owned(), client.clone()],
            Self::Relationship(edge) => vec![
                "relationship".to_owned(),
                edge.subject.clone(),
                edge.relation_type.to_string(),
                edge.relation.clone(),
                edge.object.clone(),
            ],
        }
    }

    fn read(parts: &[String]) -> Result<Self> {
        match parts {
            [form, owner] if form == "owner" => Ok(Self::Owner(owner.clone())),
            [form, client] if form == "client" => Ok(Self::Client(client.clone())),
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
    stores: Stores,
    scope: Scope,
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
}

impl Belongings {
    /// Links a record that is about to be written.
    pub(crate) async fn link(&self, parent: &Parent, child: &Key) -> Result<()> {
        let link =
            Link { kind: child.kind().code(), key: child.as_bytes().to_vec().into(), parent: parent.parts() };
        let record = || self.stores.record(codec::encode(&link), Timestamp::NEVER);
        let writes = vec![
            Write::Put { key: self.up(child)?, record: record() },
            Write::Put { key: self.down(parent, child)?, record: record() },
        ];
        // A put has no condition that could be refused.
        let _ = self.stores.backend().commit(Batch::new(writes)?, self.stores.now()?).await?;
        Ok(())
    }

    /// Returns whether the link of a record that was written is still there: otherwise its parent was deleted
    /// meanwhile.
    pub(crate) async fn is_linked(&self, parent: &Parent, child: &Key) -> Result<bool> {
        Ok(self.stores.backend().get(&self.down(parent, child)?, self.stores.now()?).await?.is_some())
    }

    /// Lists every record that would be removed with `parent`, those of its relationships included.
    pub async fn list(&self, parent: &Parent) -> Result<Vec<Belonging>> {
        let (mut found, mut parents, mut seen) = (Vec::new(), vec![parent.clone()], Vec::new());
        while let Some(parent) = parents.pop() {
            if seen.contains(&parent) {
                continue;
            }
            for child in self.children(&parent).await? {
                let names = names(&child);
                if let Some(edge) = edge_of(&child)? {
                    parents.push(Parent::Relationship(edge));
                }
                found.push(Belonging { kind: child.kind(), names });
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
                let mut writes = vec![
                    Write::Delete { key: self.up(&child)? },
                    Write::Delete { key: self.down(&parent, &child)? },
                ];
                match edge_of(&child)? {
                    Some(edge) => {
                        writes.extend(keys_of(&self.scope, &edge)?.map(|key| Write::Delete { key }));
                        parents.push(Parent::Relationship(edge));
                    }
                    None => writes.push(Write::Delete { key: child.clone() }),
                }
                let now = self.stores.now()?;
                removed.add(child.kind(), 1);
                // A delete has no condition that could be refused.
                let _ = self.stores.backend().commit(Batch::new(writes)?, now).await?;
            }
        }
        Ok(())
    }

    /// Removes links whose record is gone, and records whose client or relationship is gone.
    pub async fn reconcile(&self) -> Result<Reconciled> {
        let prefix = Prefix::partition(Kind::System, &self.scope, &["belongs-to".into()], &[])?;
        let mut pages = Pages::new(&self.stores, &prefix, 100);
        let (mut done, mut removed) = (Reconciled::default(), Removed::default());
        while let Some(items) = pages.next().await? {
            for (_, record) in &items {
                let link: Link = codec::decode(&record.value)?;
                let (child, parent) = (link.child()?, Parent::read(&link.parent)?);
                let now = self.stores.now()?;
                if self.stores.backend().get(&child, now).await?.is_none() {
                    let links = [self.up(&child)?, self.down(&parent, &child)?];
                    let deletes = links.map(|key| Write::Delete { key });
                    let _ = self.stores.backend().commit(Batch::new(deletes.into())?, now).await?;
                    done.links += 1;
                } else if self.is_gone(&parent).await? {
                    self.remove(&parent, &mut removed).await?;
                }
            }
        }
        done.records = removed.total();
        Ok(done)
    }

    /// Returns whether a client or a relationship is absent. Of an owner that cannot be told: it may have no record.
    async fn is_gone(&self, parent: &Parent) -> Result<bool> {
        match parent {
            Parent::Owner(_) => Ok(false),
            Parent::Client(client) => Ok(self.stores.clients(&self.scope).find(client).await?.is_none()),
            Parent::Relationship(edge) => {
                let [forward, _] = keys_of(&self.scope, edge)?;
                Ok(self.stores.backend().get(&forward, self.stores.now()?).await?.is_none())
            }
        }
    }

    /// Records that are linked to `parent`, name it as theirs, and exist.
    async fn children(&self, parent: &Parent) -> Result<Vec<Key>> {
        let digest = parent.digest();
        let partition = ["belongings".into(), digest.part()];
        let prefix = Prefix::partition(Kind::System, &self.scope, &partition, &[])?;
        let now = self.stores.now()?;
        let mut children = Vec::new();
        for (_, record) in self.stores.backend().scan_all(&prefix, now).await? {
            let child = codec::decode::<Link>(&record.value)?.child()?;
            let up = self.stores.backend().get(&self.up(&child)?, now).await?;
            let own = up.map(|up| codec::decode::<Link>(&up.value)).transpose()?;
            let is_ours = own.is_some_and(|own| own.parent == parent.parts());
            if is_ours && self.stores.backend().get(&child, now).await?.is_some() {
                children.push(child);
            }
        }
        Ok(children)
    }

    fn up(&self, child: &Key) -> Result<Key> {
        Key::new(Kind::System, &self.scope, &["belongs-to".into()], &[digest_of(child).part()])
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

fn names(child: &Key) -> Vec<String> {
    let text = |part: &Part<'_>| match part {
        Part::Text(text) => Some(text.to_string()),
        _ => None,
    };
    child.partition().iter().chain(&child.sort()).filter_map(text).collect()
}
