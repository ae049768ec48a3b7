//! Records that others belong to. A record that has a parent names it in its value, so that it ends with the parent at
//! every read, also if the parent expires and nothing was removed yet.

use std::collections::HashMap;

use minicbor::{Decode, Encode};
use serde::Deserialize;

use super::belongings::Belongings;
use super::tombstones::Principal;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::scope::Scope;
use crate::stores::Stores;
use crate::stores::grants::GrantId;
use crate::stores::relationships::{Edge, keys_of, standing_of};
use crate::timekeeping::Now;

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

    pub(super) fn digest(&self) -> Digest {
        let parts = self.parts();
        let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
        Digest::of("belongs-to", &parts)
    }

    /// Owner whose deletion a commit has to exclude.
    pub(crate) fn owner(&self) -> Option<Principal<'_>> {
        match self {
            Self::Owner(owner) => Some(Principal::Owner(owner)),
            _ => None,
        }
    }
}

/// Parent of a record, as the record's value names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Encode, Decode)]
pub(crate) struct ParentName {
    /// Parts of the parent; none if the record belongs to nothing.
    #[n(0)]
    parts: Vec<String>,
    /// Birth of the parent. A later one of the same names is another.
    #[n(1)]
    born: Option<u64>,
}

impl ParentName {
    pub(crate) fn new(parent: &Parent, born: Option<u64>) -> Self {
        Self { parts: parent.parts(), born }
    }

    /// Parent of a record whose value has its parts and its birth in fields of its own.
    pub(crate) fn of_parts(parts: Vec<String>, born: Option<u64>) -> Self {
        Self { parts, born }
    }

    pub(crate) fn born(&self) -> Option<u64> {
        self.born
    }

    /// Parent; none if the record belongs to nothing.
    pub(crate) fn parent(&self) -> Result<Option<Parent>> {
        if self.parts.is_empty() { Ok(None) } else { Parent::read(&self.parts).map(Some) }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Parent that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveParent {
    /// Birth, where the names alone could be those of an earlier one.
    pub(crate) born: Option<u64>,
    /// Parent of the parent.
    above: Option<ParentName>,
}

impl LiveParent {
    const PLAIN: Self = Self { born: None, above: None };
}

impl Belongings {
    /// Parent of a record that is to be written. Returns `Invalid` if it is not there.
    pub(crate) async fn name_of(&self, parent: &Parent, now: Now) -> Result<ParentName> {
        parent.check()?;
        let absent = || Error::invalid("what the record belongs to does not exist").about("belongs_to");
        let found = self.look(parent, now).await?.ok_or_else(absent)?;
        let name = ParentName::new(parent, found.born);
        if self.has_ended(&name, now).await? { Err(absent()) } else { Ok(name) }
    }

    /// Name of what an imported record belongs to. In a dry run it need not be there: an earlier line may bring it.
    pub(crate) async fn name_of_imported(
        &self,
        parent: Option<&Parent>,
        dry_run: bool,
    ) -> Result<ParentName> {
        match parent {
            None => Ok(ParentName::default()),
            Some(parent) if dry_run => parent.check().map(|()| ParentName::new(parent, None)),
            Some(parent) => self.name_of(parent, self.stores.now()?).await,
        }
    }

    /// Returns whether what a record belongs to is gone: then the record is gone too.
    pub(crate) async fn has_ended(&self, name: &ParentName, now: Now) -> Result<bool> {
        let (mut name, mut seen) = (name.clone(), Vec::new());
        while let Some(parent) = name.parent()? {
            let Some(found) = self.look_everywhere(&parent, &name, now).await? else { return Ok(true) };
            seen.push(name);
            match found.above {
                // A circle ends with none of its members.
                Some(above) if !seen.contains(&above) => name = above,
                _ => break,
            }
        }
        Ok(false)
    }

    /// Parent of this birth, also where its scope is being moved.
    async fn look_everywhere(
        &self,
        parent: &Parent,
        name: &ParentName,
        now: Now,
    ) -> Result<Option<LiveParent>> {
        let same = |found: &LiveParent| match (found.born, name.born) {
            (Some(found), Some(named)) => found == named,
            _ => true,
        };
        if let Some(found) = self.look(parent, now).await?.filter(same) {
            return Ok(Some(found));
        }
        // An owner does not move: one that is being deleted here may be there in the other scope.
        if matches!(parent, Parent::Owner(_)) {
            return Ok(None);
        }
        for scope in self.stores.moving_with(&self.scope).await? {
            let there = self.stores.belongings(&scope);
            if let Some(found) = there.look(parent, now).await?.filter(same) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Client, grant or relationship of this scope. An owner may have no record, and is there unless it is being deleted.
    async fn look(&self, parent: &Parent, now: Now) -> Result<Option<LiveParent>> {
        match parent {
            Parent::Owner(owner) => {
                let deleted = self.stores.is_deleted(&self.scope, &[Principal::Owner(owner)], now).await?;
                Ok((!deleted).then_some(LiveParent::PLAIN))
            }
            Parent::Client(client) => {
                let born = self.stores.clients(&self.scope).born(client, now).await?;
                Ok(born.map(|born| LiveParent { born: Some(born), above: None }))
            }
            Parent::Grant(id) => {
                let active = self.stores.grants(&self.scope).active(id.parse()?, now).await?;
                Ok(active.map(|_| LiveParent::PLAIN))
            }
            Parent::Relationship(edge) => {
                let [forward, _] = keys_of(&self.scope, edge)?;
                let ends = [Principal::Owner(&edge.subject), Principal::Owner(&edge.object)];
                let Some(record) = self.stores.backend().get(&forward, now).await? else { return Ok(None) };
                if self.stores.is_deleted(&self.scope, &ends, now).await? {
                    return Ok(None);
                }
                let (born, above) = standing_of(&record)?;
                Ok(Some(LiveParent { born, above: above.filter(|above| !above.is_none()) }))
            }
        }
    }
}

/// Parents that a listing has met: each is looked at once.
pub(crate) struct MetParents<'a> {
    stores: &'a Stores,
    now: Now,
    met: HashMap<(Scope, ParentName), bool>,
}

impl<'a> MetParents<'a> {
    pub(crate) fn new(stores: &'a Stores, now: Now) -> Self {
        Self { stores, now, met: HashMap::new() }
    }

    /// Returns whether a record of `scope` with this parent is gone.
    pub(crate) async fn ended(&mut self, scope: &Scope, name: Option<&ParentName>) -> Result<bool> {
        let Some(name) = name.filter(|name| !name.is_none()) else { return Ok(false) };
        let asked = (scope.clone(), name.clone());
        if let Some(ended) = self.met.get(&asked) {
            return Ok(*ended);
        }
        let ended = self.stores.belongings(scope).has_ended(name, self.now).await?;
        self.met.insert(asked, ended);
        Ok(ended)
    }
}
